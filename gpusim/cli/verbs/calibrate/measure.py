"""Measure this machine's GPU, host and disk.

Without a GPU nothing is measured, unless --only host and --only disk ask for nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.base.errors import MeasurementError
from gpusim.cli import say
from gpusim.cli.options import output
from gpusim.cli.output import emit, emit_json


def verb(
    *,
    out: Annotated[Path | None, output("A .csv or .json to write.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats: under a minute.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="GROUP", help="Only this group, as host or copies, or kernel_times. Repeatable."),
    ] = None,
    device: Annotated[int, typer.Option(min=0, help="Which GPU, as CUDA counts them.")] = 0,
    folder: Annotated[Path, typer.Option(help="Whose disk is measured; default: here.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Measure a card that is busy or a MIG slice all the same.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compute how long an H200 would take.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the conditions as JSON.")] = False,
) -> None:
    """Write the measurements, and print the conditions when asked."""
    from gpusim.calibrate.measure.session import measure

    if dry_run:
        return _rehearse(quick, only or [], json=json)
    if out is None:
        raise MeasurementError("there is no file to write to", hint="write -o FILE, or --dry-run")
    found = measure(out, only or [], quick=quick, ordinal=device, force=force, folder=folder, say=say.plain)
    if json:
        emit_json(found)


def _rehearse(quick: bool, only: list[str], *, json: bool) -> None:
    """Print how long measuring takes by an H200's published rates."""
    from gpusim.calibrate.measure.rehearsal import rehearse

    found = rehearse(quick, only)
    total = sum(row["seconds"] for row in found)
    if json:
        return emit_json({"groups": found, "seconds": round(total, 1)})
    emit(found)
    typer.echo(f"\n{total:.0f} s in all: computed, not measured, by an H200's published rates and this host's own work.")
