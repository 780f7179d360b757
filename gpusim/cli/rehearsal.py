"""`gpusim run --dry-run`: how many runs, how many are there already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from gpusim.cli.output import emit_json

if TYPE_CHECKING:
    from gpusim.experiment.tasks import GridPlan, Task


def rehearse(todo: GridPlan, waiting: Sequence[Task], *, samples: int, json: bool) -> None:
    """Say it; nothing is run and nothing is written."""
    from gpusim.experiment import walls

    found = walls.expected(todo.out, waiting)
    tasks, own = todo.tasks, len(set(todo.grid))
    values = {
        "runs": own, "references": len(tasks) - own, "there": len(tasks) - len(todo.waiting()), "to_do": len(waiting),
        "samples": samples, "seconds": found.seconds, "basis": found.basis if waiting else "", "folder": str(todo.out),
    }  # fmt: skip
    if json:
        emit_json(values)
        return
    extent = todo.extent()
    typer.echo(f"{own:,} {'run' if own == 1 else 'runs'}{f', and {extent}' if extent else ''}")
    typer.echo(f"{values['there']:,} of {len(tasks):,} are in {todo.out}; {len(waiting):,} to do")
    if samples and waiting:
        typer.echo(f"each of the {own:,} is repeated on {samples:,} machines, for which no time is told")
    if not waiting:
        return
    if found.seconds is None:
        typer.echo(f"expected time: not known: {found.basis}")
    else:
        typer.echo(f"expected time: about {_shown(found.seconds)}, without compiling and drawing: {found.basis}")


def _shown(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
