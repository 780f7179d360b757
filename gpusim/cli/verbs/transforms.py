"""List the transforms of traces, or explain one and its parameters."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.base.errors import GpusimError, suggest
from gpusim.cli import complete, options
from gpusim.cli.options import Json, Use
from gpusim.cli.output import emit, emit_json
from gpusim.cli.words import own_files


def verb(name: Annotated[str, options.name(complete.transforms)] = "", *, use: Use = None, json: Json = False) -> None:
    """All transforms in a line each, or everything about one."""
    from gpusim.programs import transforms as package

    entries = {e.name: e for e in package.entries(own_files(use))}
    if not name:
        rows = [
            {"transform": e.name, "parameters": ", ".join(f"{k}={v}" for k, v in e.parameters.items()), "help": e.summary}
            for e in entries.values()
        ]
        emit(rows, json)
        return
    if name not in entries:
        raise GpusimError(f"there is no transform '{name}'", hint=suggest(name, entries))
    e = entries[name]
    if json:
        emit_json({"transform": e.name, "help": e.help, "parameters": dict(e.parameters)})
        return
    typer.echo(f"{e.name}\n\n{e.help}\n")
    for key, value in e.parameters.items():
        typer.echo(f"  parameter {key} = {value}")
