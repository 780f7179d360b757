"""List the policies by kind, or explain one and its parameters."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.base.errors import PolicyError, suggest
from gpusim.cli import complete, options
from gpusim.cli.options import Json, Use
from gpusim.cli.output import emit, emit_json
from gpusim.cli.words import own_files


def verb(name: Annotated[str, options.name(complete.policies)] = "", *, use: Use = None, json: Json = False) -> None:
    """All policies by kind, or everything about those called `name` (a name may exist in two kinds, as `none` does)."""
    from gpusim.policies.facts import facts

    entries = own_files(use).entries()
    if not name:
        rows = [
            {
                "kind": e.kind,
                "policy": e.name,
                "knows": e.knows,
                "parameters": ", ".join(f"{k}={v}" for k, v in e.parameters.items()),
                "help": e.summary,
            }
            for e in entries
        ]
        emit(rows, json)
        return
    found = [e for e in entries if name in (e.name, *e.aliases)]
    if not found:
        raise PolicyError(f"there is no policy '{name}'", hint=suggest(name, [e.name for e in entries]))
    if json:
        emit_json([
            {
                "kind": e.kind, "policy": e.name, "knows": e.knows, "help": e.help, "parameters": e.parameters,
                "facts": e.facts, "aliases": e.aliases, "source": e.source, "where": e.where,
            }
            for e in found
        ])  # fmt: skip
        return
    for e in found:
        typer.echo(f"{e.name} ({e.kind}{', oracle' if e.oracle else ''})\n\n{e.help}\n")
        for key, value in e.parameters.items():
            typer.echo(f"  parameter {key} = {value}")
        for fact in e.facts:
            typer.echo(f"  reads {fact}: {facts(e.kind)[fact]}")
        if e.aliases:
            typer.echo(f"  formerly {', '.join(e.aliases)}")
        if e.source:
            typer.echo(f"  source: {e.source}")
        typer.echo(f"  defined in {e.where}")
