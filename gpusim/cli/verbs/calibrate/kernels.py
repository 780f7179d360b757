"""Take a GPU's kernel times from another project's tables.

They come from the package aiconfigurator-core (`pip install 'gpusim[kernels]'`), and `--kernel-times` takes the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import words
from gpusim.cli.options import Machine, output


def verb(
    *,
    on: Machine = None,
    out: Annotated[Path | None, output("The table to write; default: standard output.")] = None,
) -> None:
    """Write the measured products and attentions of a machine as a table for --kernel-times."""
    from gpusim.base.files import write_text
    from gpusim.calibrate.readers.aiconfigurator import table

    text = table(words.machine(on, "gpusim calibrate kernels").name)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text)
    rows = text.count("\n") - 1
    typer.echo(f"{out}: {rows:,} rows")
