"""`gpusim record`."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.output import emit_json
from gpusim.programs.record.where import RecordWarning


def record(
    program: Sequence[str], out: Path | None, zoo: str | None, *, steps: int | None, json: bool, **options: Any
) -> None:  # fmt: skip
    """A program, or a model of the zoo, as a trace; what the program prints goes to stderr."""
    from gpusim.programs.record.script import record_script
    from gpusim.programs.zoo.traced import record_zoo

    if not program and not zoo:
        raise GpusimError("say what to record: a script, or a model of the zoo", hint="gpusim record train.py -o train.npz")
    path = out or Path(f"{zoo.split('(')[0] if zoo else Path(program[0]).stem}.npz")
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("always", RecordWarning)
        warnings.showwarning = _show(warnings.showwarning)
        if zoo:
            wanted = {**pairs(program), **({"steps": steps} if steps else {})}
            trace = record_zoo(zoo, wanted, path, **options)
        else:
            trace = record_script(Path(program[0]), program[1:], path, steps=steps or 2, **options)
    if json:
        emit_json({
            "file": str(path), "name": trace.name, "tensors": trace.tensors, "events": trace.events, "operators": trace.ops,
            "phases": list(trace.phases), **trace.meta,
        })  # fmt: skip
    else:
        phases = f"{trace.phases[0]} to {trace.phases[-1]}" if len(trace.phases) > 1 else "".join(trace.phases)
        typer.echo(f"{path}: {trace.tensors:,} tensors, {trace.events:,} events, {trace.ops:,} operators; {phases}")


def pairs(args: Sequence[str]) -> dict[str, Any]:
    """--batch 4 --checkpoint=true -> {"batch": "4", ...}: options of the model."""
    found: dict[str, Any] = {}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, given, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and not given and not rest:
            raise GpusimError(f"option '{word}' has no value", hint="such as --batch 4")
        if not word.startswith("--"):
            raise GpusimError(f"'{word}' is no option of a model", hint="such as --batch 4 --seq 1024; `gpusim zoo` lists them")
        found[name.replace("-", "_")] = value if given else rest.pop(0)
    return found


def _show(otherwise: Any) -> Any:
    """Warnings of the recorder in one line, those of the program as ever."""

    def show(message: Any, category: type[Warning], filename: str, lineno: int, *more: Any) -> None:
        if issubclass(category, RecordWarning):
            typer.echo(f"gpusim: warning: {filename}:{lineno}: {message}", err=True)
        else:
            otherwise(message, category, filename, lineno, *more)

    return show
