"""`gpusim policies`, `profiles`, `metrics` and `schema`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from gpusim.base.errors import PolicyError, suggest
from gpusim.cli.output import emit, emit_json


def policies(name: str, use: Sequence[str], *, json: bool) -> None:
    """All policies by kind, or everything about those called `name` (a name may exist in two kinds, as `none` does)."""
    from gpusim.policies import registry
    from gpusim.policies.facts import facts

    entries = registry.of(*use).entries()
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
    found = [e for e in entries if e.name == name]
    if not found:
        raise PolicyError(f"there is no policy '{name}'", hint=suggest(name, [e.name for e in entries]))
    if json:
        emit_json([
            {
                "kind": e.kind, "policy": e.name, "knows": e.knows, "help": e.help, "parameters": e.parameters,
                "facts": e.facts, "source": e.source, "where": e.where,
            }
            for e in found
        ])  # fmt: skip
        return
    for e in found:
        typer.echo(f"{e.name} ({e.kind}{', oracle' if e.oracle else ''})\n\n{e.help}\n")
        for key, value in e.parameters.items():
            typer.echo(f"  parameter {key} = {value}")
        for fact in e.facts:
            typer.echo(f"  reads {fact}: {facts()[fact]}")
        if e.source:
            typer.echo(f"  source: {e.source}")
        typer.echo(f"  defined in {e.where}")


def metrics(*, json: bool) -> None:
    """Every metric with its unit and meaning."""
    from gpusim.results.metrics import METRICS

    rows = [
        {"metric": m.name, "unit": m.unit, "better": m.better, "meaning": m.meaning, "group": m.group} for m in METRICS.values()
    ]
    emit(rows, json, ["metric", "unit", "better", "meaning"])


def profiles(name: str, *, json: bool) -> None:
    """All machines in a line each, or every number of one with its basis and source."""
    from dataclasses import asdict

    from gpusim.machine import catalogue

    if not name:
        emit([catalogue.overview(catalogue.load(each)) for each in catalogue.names()], json)
        return
    profile = catalogue.load(name)
    rows = [asdict(row) for row in catalogue.describe(profile)]
    if json:
        emit_json({"name": profile.name, "summary": profile.summary, "sources": profile.sources, "numbers": rows})
        return
    typer.echo(f"{profile.name}: {profile.summary}\n")
    emit(rows, columns=["path", "value", "basis", "source", "meaning"])
    typer.echo("")
    emit([{"source": key, "what it is": text} for key, text in profile.sources.items()])


def schema(kind: str, out: Path | None) -> None:
    """The JSON Schema on stdout, or in a file."""
    from gpusim.base.files import write_text
    from gpusim.cli.schema import text

    if out is None:
        typer.echo(text(kind), nl=False)
    else:
        write_text(out, text(kind))
