"""Rows of measurements and the profile beneath a fit, as the verbs of `gpusim calibrate` name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.base.errors import MeasurementError
from gpusim.cli import complete

if TYPE_CHECKING:
    from gpusim.calibrate.rows import Row
    from gpusim.machine.profile import Profile

Rows = Annotated[
    list[Path],
    typer.Argument(metavar="ROWS...", help="Measurements: our CSV or JSON, nvbandwidth's output, texts of gpu-benches."),
]
Gpu = Annotated[str, typer.Option("--gpu", help="The GPU, where the files hold several or do not name theirs.")]
Base = Annotated[
    str, typer.Option("--base", help="The profile that says what the rows do not; default: by the GPU.",
                      autocompletion=complete.machines)
]


def rows_of(files: Sequence[Path], gpu: str) -> list[Row]:
    """The rows of all files, of one GPU.  Hosts without a GPU belong to it only where no other GPU is beside it."""
    from gpusim.calibrate.readers import read
    from gpusim.calibrate.rows import gpus, of_gpu

    found = [row for file in files for row in read(file, gpu)]
    mine = of_gpu(found, gpu or None, ", ".join(map(str, files)))
    return mine if len(gpus(found)) < 2 else [row for row in mine if row.gpu == gpu]


def base_of(found: list[str], name: str) -> Profile:
    """The profile that is named, or that of the only GPU that was found."""
    from gpusim.machine.catalogue import load, names

    if name:
        return load(name)
    if not found:
        raise MeasurementError("the rows name no GPU", hint="say with --base which profile is to be fitted")
    if found[0].lower() not in names():
        raise MeasurementError(f"the catalogue has no '{found[0]}'", hint="say with --base which profile is nearest")
    return load(found[0].lower())
