"""Fit a profile to measured rows.

One series in three, chosen by its name, is held out for `compare`, unless --all is given. The profile lists what it saw.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.options import Json, output
from gpusim.cli.output import emit, emit_json
from gpusim.cli.verbs.calibrate.rows import Base, Gpu, Rows, base_of, rows_of


def verb(
    files: Rows,
    *,
    base: Base = "",
    out: Annotated[Path | None, output("The profile to write; default: only the table.")] = None,
    gpu: Gpu = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Fit all rows: best for use, but nothing is left to prove it.")
    ] = False,
    json: Json = False,
) -> None:
    """Fit a profile to the rows that are not held out, or to all, write it, and print what it changes."""
    from gpusim.base.files import write_text
    from gpusim.calibrate.fit.fitting import difference
    from gpusim.calibrate.fit.fitting import fit as fitting
    from gpusim.calibrate.fit.kernel_numbers import moved, programs
    from gpusim.calibrate.rows import gpus

    mine = rows_of(files, gpu)
    fitted = fitting(mine, base_of(gpus(mine), base), out.stem if out else None, everything)
    if out:
        write_text(out, fitted.text)
    left = [{"number": one.path, "why": one.why} for one in fitted.left]
    numbers = moved(fitted.base, fitted.profile)
    steps = programs(fitted.base, fitted.profile) if numbers else []
    if json:
        said = {"fitted": difference(fitted), "left": left, "kernel_times": numbers, "programs": steps}
        emit_json({"profile": fitted.profile.name, **said})
        return
    seen = len(fitted.seen)
    typer.echo(f"{fitted.base.name}: {seen:,} rows fitted, {len(mine) - seen:,} held out for the comparison\n")
    emit(difference(fitted))
    if numbers:
        typer.echo("\nKernel times take of these:\n")
        emit(numbers)
        typer.echo("\nSo the kernels of a step of shipped programs take:\n")
        emit(steps)
    else:
        typer.echo("\nKernel times take none of these: no large products, and the rate of streaming stands.")
    typer.echo("\nAs the catalogue has it:\n")
    emit(left)
    if out:
        typer.echo(f"\n{out}")
