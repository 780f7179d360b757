"""List the models that can be recorded without a program of one's own, or the options of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli import options
from gpusim.cli.options import Json
from gpusim.cli.output import emit, emit_json

if TYPE_CHECKING:
    from gpusim.programs.zoo.catalogue import Value


def _models(incomplete: str) -> list[str]:
    from gpusim.programs.zoo import entries

    return [entry.name for entry in entries() if entry.name.startswith(incomplete)]


def verb(name: Annotated[str, options.name(_models)] = "", *, json: Json = False) -> None:
    """All models in a line each, or the options of one with their defaults."""
    from gpusim.programs.zoo import entries
    from gpusim.programs.zoo.catalogue import OPTIONS, ask
    from gpusim.programs.zoo.catalogue import options as options_of

    if not name:
        emit([{"model": e.name, "parameters": e.parameters, "help": e.help} for e in entries()], json)
        return
    entry = ask(name).entry
    train, infer = options_of(entry, "train"), options_of(entry, "infer")
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
