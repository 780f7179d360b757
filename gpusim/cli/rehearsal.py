"""`gpusim run --dry-run`: how many runs, how many are there already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from gpusim.cli.output import emit_json

if TYPE_CHECKING:
    from gpusim.experiment.spec import Uncertainty
    from gpusim.experiment.tasks import GridPlan, Task
    from gpusim.experiment.walls import Expected


def rehearse(
    todo: GridPlan, waiting: Sequence[Task], uncertainty: Uncertainty, *, force: bool = False, json: bool = False
) -> None:
    """Say it; nothing is run and nothing is written."""
    from gpusim.experiment import walls

    samples = uncertainty.samples
    sampled: Sequence[Task] = []
    if samples:
        from gpusim.experiment.uncertainty import waiting as without_samples

        sampled = todo.grid if force else without_samples(todo, uncertainty)
    found, repeated = walls.expected(todo.out, waiting), walls.expected(todo.out, sampled, samples)
    tasks, own = todo.tasks, len(set(todo.grid))
    values = {
        "runs": own, "references": len(tasks) - own, "there": len(tasks) - len(todo.waiting()), "to_do": len(waiting),
        "samples": samples, "seconds": found.seconds, "basis": found.basis if waiting else "", "folder": str(todo.out),
        "to_sample": len(sampled), "sample_seconds": repeated.seconds,
    }  # fmt: skip
    if json:
        emit_json(values)
        return
    extent = todo.extent()
    typer.echo(f"{own:,} {'run' if own == 1 else 'runs'}{f', and {extent}' if extent else ''}")
    typer.echo(f"{values['there']:,} of {len(tasks):,} are in {todo.out}; {len(waiting):,} to do")
    if waiting:
        typer.echo(f"expected time: {_time(found)}")
    if sampled:
        typer.echo(f"{len(sampled):,} of {own:,} to repeat on {samples:,} sampled machines each")
        typer.echo(f"expected time of that: {_time(repeated)}")


def _time(found: Expected) -> str:
    if found.seconds is None:
        return f"not known: {found.basis}"
    return f"about {_shown(found.seconds)}, without compiling and drawing: {found.basis}"


def _shown(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
