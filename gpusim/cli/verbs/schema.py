"""Print the JSON Schema of experiments, profiles, machines or managed programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.options import output


def verb(
    kind: Annotated[str, typer.Argument(help="experiment, profile, machine or program")] = "experiment",
    *,
    out: Annotated[Path | None, output("A file to write; default: it is printed.")] = None,
) -> None:
    """The JSON Schema on stdout, or in a file."""
    from gpusim.base.files import write_text
    from gpusim.cli.schema import text

    if out is None:
        typer.echo(text(kind), nl=False)
    else:
        write_text(out, text(kind))
