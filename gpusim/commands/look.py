"""`gpusim plot` and `compare`, and what `gpusim run` shows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from gpusim.commands.output import emit, emit_json
from gpusim.errors import ResultError, suggest
from gpusim.results.result import Result

# What a table shows, as far as the runs differ in it; the first is shown in any case.
COLUMNS = (
    "slowdown", "makespan_ns", "over_oracle", "stall_ns", "h2d_bytes", "d2h_bytes", "swap_ins", "reserved_peak_bytes",
    "frag_utilisation", "host_peak_bytes", "prefetch_hits", "device_allocs",
)  # fmt: skip
MOST_COLUMNS = 7


def print_results(results: Sequence[Result], *, json: bool) -> None:
    """One row per run: what differs, how it ended, what was measured; a star marks policies that read the future."""
    from gpusim.show.view import ORACLE, human, text, value, varying

    if json:
        emit_json([_plain(result) for result in results])
        return
    keys = varying(results) or ["evict"]
    shown = _columns(results)
    rows = []
    for result in results:
        row: dict[str, Any] = {key: text(key, result.spec.get(key)) for key in keys}
        future = [kind for kind in keys if kind in _oracles(result)]
        for kind in future:
            row[kind] += ORACLE
        row["outcome"] = result.outcome
        row |= {name: human(name, value(result, name)) for name in shown}
        rows.append(row)
    emit(rows)
    if any(result.oracle for result in results):
        typer.echo(f"{ORACLE} reads the future")


def draw(
    folder: Path, results: Sequence[Result], question: str, names: Sequence[str], out: Path | None = None
) -> list[Path]:
    """The named figures as PNG, SVG and PDF; returns their paths.  Raises ResultError for an unknown name."""
    from gpusim.results.folder import FIGURES
    from gpusim.show import figures
    from gpusim.show.style import save

    known = figures.NAMES
    paths = []
    for name in names:
        if name not in known:
            raise ResultError(f"there is no figure '{name}'", hint=suggest(name, known))
    for name in names:
        paths += save(figures.draw(name, results, question, folder), (out or folder / FIGURES) / name)
    return paths


def plot(folder: Path, names: Sequence[str], out: Path | None, *, json: bool) -> None:
    """Draw the figures of a results folder again: those of its experiment, or the named ones."""
    question, figures = _experiment(folder)
    from gpusim.results.folder import load_folder

    paths = draw(folder, load_folder(folder), question, names or figures, out)
    if json:
        emit_json([str(path) for path in paths])
    else:
        for path in paths:
            typer.echo(path)


def compare(a: Path, b: Path | None, *, json: bool) -> None:
    """The table and the answer of one folder, or what changed from one to another."""
    from gpusim.results.folder import load_folder
    from gpusim.show.answer import answer

    results = load_folder(a)
    if b is not None:
        emit(_changes(results, load_folder(b)), json)
        return
    print_results(results, json=json)
    if not json:
        typer.echo(f"\n{answer(results)}")


def _changes(a: Sequence[Result], b: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per run of both and metric that differs."""
    from gpusim.results.metrics import METRICS
    from gpusim.show.view import human, name, varying

    keys = varying(a) or ["evict"]
    there = {name(result, keys): result for result in b}
    rows = []
    for result in a:
        label = name(result, keys)
        other = there.get(label)
        if other is None:
            rows.append({"run": label, "metric": "", "A": result.outcome, "B": "not there", "change": "", "": ""})
            continue
        if result.outcome != other.outcome:
            rows.append({"run": label, "metric": "outcome", "A": result.outcome, "B": other.outcome, "change": "", "": ""})
        for metric in METRICS:
            old, new = result.metrics.get(metric), other.metrics.get(metric)
            if old is None or new is None or old == new:
                continue
            change = f"{(new / old - 1) * 100:+.2f} %" if old else "from zero"
            better = METRICS[metric].better
            verdict = "" if not better else "better" if (new < old) == (better == "lower") else "worse"
            row = {"run": label, "metric": metric, "A": human(metric, old), "B": human(metric, new)}
            rows.append({**row, "change": change, "": verdict})
    if not rows:
        rows.append({"run": f"all {len(a)} runs", "metric": "all", "A": "equal", "B": "equal", "change": "", "": ""})
    return rows


def _columns(results: Sequence[Result]) -> list[str]:
    from gpusim.show.view import value

    found = []
    for name in COLUMNS:
        values = [value(result, name) for result in results]
        known = {v for v in values if v is not None}
        if len(known) > 1 or (known and not found):
            found.append(name)
    return found[:MOST_COLUMNS]


def _oracles(result: Result) -> Sequence[str]:
    """The kinds of policy (place, evict, prefetch) that read the future in this run."""
    kinds: Sequence[str] = result.spec.get("oracles") or ()
    return kinds


def _plain(result: Result) -> dict[str, Any]:
    return {
        "run": result.key, "outcome": result.outcome, "spec": result.spec, "failure": result.failure,
        "metrics": result.metrics, "bounds": result.bounds, "checked": result.checked,
    }  # fmt: skip


def _experiment(folder: Path) -> tuple[str, list[str]]:
    """Question and figures of the experiment whose results lie here."""
    from gpusim.config import document
    from gpusim.results.folder import EXPERIMENT

    path = folder / EXPERIMENT
    if not path.is_file():
        raise ResultError("this is not a results folder", str(folder), "`gpusim run` makes one")
    data = document.read(path).data
    return str(data.get("question", "")), [str(name) for name in data.get("figures", [])]
