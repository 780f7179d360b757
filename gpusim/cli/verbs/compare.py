"""Show one table of results, or what changed from A to B."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.options import Json
from gpusim.cli.output import emit

if TYPE_CHECKING:
    from gpusim.results.compare import Change
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

    results = load_folder(a)
    say_missing(a)
    if b is not None:
        say_missing(b)
        found = _unequal(a, b) if exact else _changes(results, load_folder(b))
        emit(found or [_EQUAL | {"run": f"all {len(results)} runs"}], json)
        return int(exact and bool(found))
    if exact:
        raise GpusimError("--exact compares two folders", hint="gpusim compare A B --exact")
    print_results(results, json=json)
    return 0


def _unequal(a: Path, b: Path) -> list[dict[str, Any]]:
    """One row for each value, timeline column and event log that is not the same to the last bit."""
    from gpusim.results.compare import unequal

    return [{"run": _name(c), "metric": c.metric, "A": c.a, "B": c.b} for c in unequal(a, b)]


def _changes(a: Sequence[Result], b: Sequence[Result]) -> list[dict[str, Any]]:
    """One row for each metric that differs in a pair of runs, and for each run without a counterpart."""
    from gpusim.results.compare import changes

    return [
        {
            "run": _name(c), "metric": c.metric, "A": _value(c.metric, c.a), "B": _value(c.metric, c.b),
            "change": f"{(c.ratio - 1) * 100:+.2f} %" if c.ratio is not None else "from zero" if c.a == 0 else "",
            "": "" if c.better is None else "better" if c.better else "worse",
        }
        for c in changes(a, b, always=())
    ]  # fmt: skip


def _name(change: Change) -> str:
    from gpusim.results.result import FINISHED, Result
    from gpusim.show.view import run_name

    return run_name(Result(change.run, FINISHED, {}), list(change.run))


def _value(metric: str, value: Any) -> str:
    from gpusim.show.view import human

    if metric in ("run", "outcome"):
        return str(value or "not there")
    return human(metric, value)
