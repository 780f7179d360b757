"""`gpusim zoo`: models to record without a program of one's own."""

from __future__ import annotations

import typer

from gpusim.cli.output import emit, emit_json
from gpusim.programs.zoo import entries
from gpusim.programs.zoo.catalogue import OPTIONS, Value, ask, options


def zoo(name: str, *, json: bool) -> None:
    """All models in a line each, or the options of one with their defaults."""
    if not name:
        emit([{"model": e.name, "parameters": e.parameters, "help": e.help} for e in entries()], json)
        return
    entry = ask(name).entry
    train, infer = options(entry, "train"), options(entry, "infer")
    rows = [
        {"option": key, "train": _plain(train.get(key)), "infer": _plain(infer.get(key)), "help": OPTIONS[key]}
        for key in OPTIONS
        if key in train or key in infer
    ]
    if json:
        emit_json({"model": entry.name, "parameters": entry.parameters, "help": entry.help, "options": rows})
        return
    typer.echo(f"{entry.name}: {entry.help}; {entry.parameters:,} parameters\n\nOptions, with their defaults:\n")
    emit(rows)


def _plain(value: Value | None) -> str | None:
    return None if value is None else str(value).lower()
