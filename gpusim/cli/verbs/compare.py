"""Show one table of results, or what changed from A to B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.options import Json
from gpusim.cli.output import emit

if TYPE_CHECKING:
    from gpusim.results.result import Result

_EQUAL = {"run": "", "metric": "all", "A": "equal", "B": "equal"}


def verb(
    a: Annotated[Path, typer.Argument(metavar="A", help="A results folder.")],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="Another one, of the same experiment.")] = None,
    *,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare to the last bit, timelines and event logs too; exit code 1 if they differ.")
    ] = False,
    json: Json = False,
) -> int:
    """The table and the answer of one folder, or what changed from one to another."""
    from gpusim.cli.show import print_results, say_missing
    from gpusim.results.folder import load_folder

    results = _renamed(load_folder(a))
    say_missing(a)
    if b is not None:
        say_missing(b)
        found = _unequal(a, b) if exact else _changes(results, _renamed(load_folder(b)))
        emit(found or [_EQUAL | {"run": f"all {len(results)} runs"}], json)
        return int(exact and bool(found))
    if exact:
        raise GpusimError("--exact compares two folders", hint="gpusim compare A B --exact")
    print_results(results, json=json)
    return 0


def _unequal(a: Path, b: Path) -> list[dict[str, Any]]:
    """One row for each value, timeline column and event log that is not the same to the last bit."""
    from gpusim.results.compare import unequal

    return [
        {"run": " ".join(str(value) for value in c.run.values() if value is not None), "metric": c.metric, "A": c.a, "B": c.b}
        for c in unequal(a, b, _renamed)
    ]


def _renamed(results: Sequence[Result]) -> list[Result]:
    """The results with policies under the names that they have now, so that old ones are paired with new ones."""
    from gpusim.policies import registry
    from gpusim.policies.entry import KINDS

    def now(key: str, value: Any) -> Any:
        return registry.renamed(key, value) if key in KINDS and isinstance(value, str) else value

    return [replace(r, spec={key: now(key, value) for key, value in r.spec.items()}) for r in results]


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
    return rows
