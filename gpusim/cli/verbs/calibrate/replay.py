"""Simulate measured training steps.

Anywhere, from what `steps` wrote: peaks of memory, kernel times, times of steps, with their activations offloaded too.
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
    from gpusim.calibrate.steps.compare import STEP, TARGET
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
    steps = [f for f in found if f.what == STEP]
    within = sum(abs(f.error) <= TARGET for f in steps)
    typer.echo(f"\n{within} of {len(steps)} steps are within {TARGET:.0%} of the time that was measured.")
