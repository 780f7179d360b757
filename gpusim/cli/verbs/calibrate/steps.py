"""Measure training steps on this GPU.

Each with its activations on the device, then offloaded to host memory, and recorded as a trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import say
from gpusim.cli.options import output


def verb(
    *,
    out: Annotated[Path, output("A folder for the steps, their traces and conditions.")],
    programs: Annotated[
        list[str] | None, typer.Option("--program", help="A model of the zoo, as 'gpt2-small(batch=8)'. Repeatable.")
    ] = None,
) -> None:
    """Write the measured steps into the folder."""
    from gpusim.calibrate.steps.measure import PROGRAMS, measure

    found = measure(out, programs or PROGRAMS, say.plain)
    typer.echo(f"{out}: {len(found)} steps")
