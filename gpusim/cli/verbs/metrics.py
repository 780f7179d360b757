"""List what a run records, or explain one number: unit, meaning, how it is computed, its parts, where to read on."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.cli import complete, options
from gpusim.cli.options import Json
from gpusim.cli.output import emit, emit_json

UNITS = {"ns": "nanoseconds", "B": "bytes", "1/s": "per second", "1": "a ratio or share, not in percent", "": "a count"}


def verb(name: Annotated[str, options.name(complete.metrics)] = "", *, json: Json = False) -> None:
    """Every metric with its unit and meaning, or all about one."""
    from gpusim.results.metrics import METRICS

    if name:
        _explain(name, json=json)
        return
    rows = [
        {"metric": m.name, "unit": m.unit, "better": m.better, "meaning": m.meaning, "group": m.group} for m in METRICS.values()
    ]
    emit(rows, json, ["metric", "unit", "better", "meaning"])


def _explain(name: str, *, json: bool) -> None:
    from dataclasses import asdict

    from gpusim.results.explained import explain

    found = explain(name)
    if json:
        emit_json(asdict(found))
        return
    lines = {
        "unit": UNITS[found.unit],
        "better": f"{found.better} is better" if found.better else "neither more nor less is better",
        "computed": found.formula or "counted or timed while the program runs",
        **{f"sum of{f' ({when})' if when else ''}": " + ".join(parts) for when, parts in found.parts.items()},
        "part of": ", ".join(found.part_of),
        "needs": f"a trace that answers: {', '.join(found.needs)}" if found.needs else "",
        "group": found.group,
        "read on": found.page,
    }
    lines = {word: text for word, text in lines.items() if text}
    if found.parts and not found.formula:
        del lines["computed"]
    width = max(map(len, lines))
    typer.echo(f"{found.name}: {found.meaning}\n")
    for word, text in lines.items():
        typer.echo(f"  {word:<{width}}  {text}")
