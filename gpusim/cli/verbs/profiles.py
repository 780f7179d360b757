"""List the hardware profiles, or explain one with its sources."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli import complete, options
from gpusim.cli.options import Json
from gpusim.cli.output import emit, emit_json
from gpusim.cli.words import machine


def verb(name: Annotated[str, options.name(complete.machines)] = "", *, json: Json = False) -> None:
    """All machines in a line each, or every number of one with its basis and source."""
    from dataclasses import asdict

    from gpusim.machine import catalogue

    if not name:
        emit([catalogue.overview(catalogue.load(each)) for each in catalogue.names()], json)
        return
    profile = machine(name, "gpusim profiles")
    rows = [asdict(row) for row in catalogue.describe(profile)]
    if json:
        emit_json({"name": profile.name, "summary": profile.summary, "sources": profile.sources, "numbers": rows})
        return
    typer.echo(f"{profile.name}: {profile.summary}\n")
    emit(rows, columns=["path", "value", "basis", "source", "meaning"])
    typer.echo("")
    emit([{"source": key, "what it is": text} for key, text in profile.sources.items()])
