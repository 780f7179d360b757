"""List the policies by kind, or explain one and its parameters."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.base.errors import PolicyError, suggest
from gpusim.cli import complete, options
from gpusim.cli.options import Json, Use
from gpusim.cli.output import emit, emit_json
from gpusim.cli.words import own_files
from gpusim.policies.entry import KINDS
from gpusim.policies.registry import versioned


def verb(name: Annotated[str, options.name(complete.policies)] = "", *, use: Use = None, json: Json = False) -> None:
    """All policies by kind, those of one kind, or everything about those called `name` (`none` is in two kinds)."""
    from gpusim.engine.pages import variants
    from gpusim.policies.facts import facts
    from gpusim.policies.units import units

    entries = [(e, units(e)) for e in own_files(use).entries()] + variants.entries()
    if not name or name in KINDS:
        rows = [
            {
                "kind": e.kind,
                "policy": e.name,
                "decides about": ", ".join(about),
                "knows": e.knows,
                "trained on": ", ".join(e.trained),
                "parameters": ", ".join(f"{k}={v}" for k, v in e.parameters.items()),
                "help": e.summary,
            }
            for e, about in sorted(entries, key=lambda pair: KINDS.index(pair[0].kind)) if name in ("", e.kind)
        ]  # fmt: skip
        emit(rows, json, ["kind", "policy", "decides about", "knows", "help"])
        if not json:
            typer.echo("\n`gpusim policies NAME` explains one, its parameters and its source.")
        return
    found = [(e, about) for e, about in entries if versioned(name)[0] in (e.name, *e.aliases)]
    if not found:
        raise PolicyError(f"there is no policy '{name}'", hint=suggest(name, [e.name for e, _ in entries]))
    if json:
        emit_json([
            {
                "kind": e.kind, "policy": e.name, "decides_about": about, "knows": e.knows, "help": e.help,
                "parameters": e.parameters, "facts": e.facts, "trained": e.trained, "aliases": e.aliases, "source": e.source,
                "where": e.where,
            }
            for e, about in found
        ])  # fmt: skip
        return
    for e, about in found:
        typer.echo(f"{e.name} ({e.kind}{', oracle' if e.oracle else ''})\n\n{e.help}\n")
        if about:
            typer.echo(f"  decides about {', '.join(about)}")
        for key, value in e.parameters.items():
            typer.echo(f"  parameter {key} = {value}")
        for fact in e.facts:
            typer.echo(f"  reads {fact}: {facts(e.kind)[fact]}")
        if e.trained:
            typer.echo(f"  trained on {', '.join(e.trained)}")
        if e.aliases:
            typer.echo(f"  formerly {', '.join(e.aliases)}")
        if e.source:
            typer.echo(f"  source: {e.source}")
        typer.echo(f"  defined in {e.where}")
