"""How long a program's kernels take on a machine, by class: what bounds them, how that is known, and how sure it is."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli import words
from gpusim.cli.options import Device, Json, Machine, OwnKernelTimes, trace
from gpusim.cli.output import emit, emit_json


def verb(
    name: Annotated[str, trace("A trace by file or name, or another tool's recording.")],
    *,
    on: Machine = None,
    kernel_times: OwnKernelTimes = None,
    recorded_on: Annotated[
        str | None,
        typer.Option("--recorded-on", metavar="MACHINE", help="The machine of the recorded times, which are scaled to --on."),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Per class of kernels: count, time, bound, basis and interval."""
    from gpusim.machine.kernels.durations import load_own_times
    from gpusim.studies.kernels import study
    from gpusim.trace.answers import require

    program, profile = words.recording(name, device), words.machine(on, "gpusim kernels")
    require(program, "times", "gpusim kernels")
    origin = words.machine(recorded_on, "gpusim kernels") if recorded_on else None
    found = study(program, profile, origin, load_own_times(kernel_times, profile) if kernel_times else None)
    if json:
        emit_json(found.values())
        return
    emit(found.rows())
    typer.echo("\n" + "\n".join(found.sentences()))
