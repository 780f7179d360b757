"""`gpusim plot` and `compare`, and what `gpusim run` shows at its end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from gpusim.base.errors import ResultError, suggest
from gpusim.cli.output import emit, emit_json
from gpusim.results.result import Result


def print_results(results: Sequence[Result], *, json: bool) -> None:
    """One row per run: what differs, how it ended, what was measured; then what that says, in words."""
    from gpusim.show import table
    from gpusim.show.answer import answer
    from gpusim.show.basis import basis
    from gpusim.show.interval import drawn

    if json:
        emit_json(table.rows(results))
        return
    seen = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if seen else 120
    typer.echo(table.render(results, width=width, colour=seen))
    for words in (answer(results), drawn(results), basis(results)):
        if words:
            typer.echo(f"\n{words}")


def chosen_formats(text: str) -> list[str]:
    """ "png,svg" as a list; ResultError for a format that figures do not come in."""
    from gpusim.show.figures import FORMATS

    asked = [word.strip() for word in text.split(",") if word.strip()]
    for word in asked:
        if word not in FORMATS:
            raise ResultError(f"figures do not come as '{word}'", hint=suggest(word, FORMATS) or f"one of {', '.join(FORMATS)}")
    return list(dict.fromkeys(asked)) or list(FORMATS)


def plot(folder: Path, names: Sequence[str], out: Path | None, *, formats: str, json: bool) -> None:
    """Draw the figures of a results folder again: those of its experiment, or the named ones."""
    from gpusim.cli.draw import NEEDS, draw
    from gpusim.cli.report import experiment_of, refresh
    from gpusim.experiment.pool import cores, prepare
    from gpusim.results.folder import load_folder
    from gpusim.show.figures import left_out

    wanted = chosen_formats(formats)
    if cores() > 1:
        prepare(NEEDS)  # meanwhile this process reads
    question, asked = experiment_of(folder)
    results = load_folder(folder)
    say_missing(folder)
    made = draw(folder, names or asked, question, out, results=results, formats=wanted)
    if out is None:
        refresh(folder, results)
    left = left_out(names or asked, made)
    paths = [path for files in made.values() for path in files]
    if names and not paths:
        said = "; ".join(f"{name}: {why}" for name, why in left.items())
        raise ResultError(f"these results have nothing to show as {', '.join(names)}", str(folder), said)
    if json:
        emit_json([str(path) for path in paths])
    else:
        for path in paths:
            typer.echo(path)
        for name, why in left.items():
            typer.echo(f"gpusim: not drawn: {name}: {why}", err=True)


def say_missing(folder: Path) -> None:
    """A note on stderr when a grid is not complete."""
    from gpusim.results.folder import missing, run_folders

    if left := missing(folder):
        there = len(run_folders(folder))
        typer.echo(
            f"gpusim: note: {folder}: {there} of {there + left} runs are there; the others failed, were stopped, or still run: "
            "the `gpusim run` that made it does the rest", err=True,
        )  # fmt: skip


def compare(a: Path, b: Path | None, *, json: bool) -> None:
    """The table and the answer of one folder, or what changed from one to another."""
    from gpusim.results.folder import load_folder

    results = load_folder(a)
    say_missing(a)
    if b is not None:
        say_missing(b)
        emit(_changes(results, load_folder(b)), json)
        return
    print_results(results, json=json)


def _changes(a: Sequence[Result], b: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per run of both and metric that differs."""
    from gpusim.results.metrics import METRICS
    from gpusim.show.view import human, run_name, varying

    keys = list(dict.fromkeys([*varying(a), *varying(b)])) or ["evict"]  # in which runs of either folder differ
    there = {run_name(result, keys): result for result in b}
    rows = []
    for result in a:
        label = run_name(result, keys)
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
