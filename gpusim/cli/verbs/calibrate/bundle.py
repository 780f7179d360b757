"""Write `measure` as one file.

For machines without gpusim: it needs python3, numpy and the CUDA packages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.options import output


def verb(*, out: Annotated[Path, output("The zip-app to write.")] = Path("gpusim-measure.pyz")) -> None:
    """Write the zip-app."""
    from gpusim.calibrate.measure.bundle import bundle

    size = bundle(out)
    typer.echo(f"{out}: {size:,} bytes; run it with: python3 {out.name} -o FILE")
