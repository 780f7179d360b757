"""Simulate measured training steps.

Anywhere, from what `steps` wrote: peaks of memory, kernel times, times of the offloaded steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import words
from gpusim.cli.options import Json, Machine
from gpusim.cli.output import emit, emit_json


def verb(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `gpusim calibrate steps` wrote.")],
    *,
    on: Machine = None,
    json: Json = False,
) -> None:
    """Print measured and simulated numbers of the folder's training steps."""
    from gpusim.calibrate.steps.compare import TARGET
    from gpusim.calibrate.steps.compare import compare as comparing

    found = comparing(folder, words.machine(on, "gpusim calibrate replay"))
    table = [
        {"program": f.program, "activations": f.way, "what": f.what, "unit": f.unit, "measured": f.measured,
         "simulated": f.simulated, "error": f"{f.error:+.1%}"}
        for f in found
    ]  # fmt: skip
    if json:
        emit_json(table)
        return
    emit(table)
    off = [f for f in found if f.what == "step"]
    within = sum(abs(f.error) <= TARGET for f in off)
    typer.echo(f"\n{within} of {len(off)} steps with offloaded activations are within {TARGET:.0%}.")
