"""`gpusim zoo` and `gpusim record --zoo`: models to record without a program of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from gpusim.commands.output import emit, emit_json
from gpusim.zoo import build, entries
from gpusim.zoo.catalogue import OPTIONS, Value, ask


def zoo(name: str, *, json: bool) -> None:
    """All models in a line each, or the options of one with their defaults."""
    if not name:
        emit([{"model": e.name, "parameters": e.parameters, "help": e.help} for e in entries()], json)
        return
    entry = ask(name).entry
    train, infer = entry.options("train"), entry.options("infer")
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


def record(spec: str, options: Mapping[str, Value | None], out: Path | None, *, json: bool, **recording: Any) -> None:
    """Record a model of the zoo; options that are None have their defaults, `recording` goes to the recorder."""
    from gpusim.record.recording import Recording
    from gpusim.trace.stats import ROUND, live_bytes
    from gpusim.units import show_bytes

    asked = ask(spec, {key: value for key, value in options.items() if value is not None})
    path = out or Path(f"{asked.entry.name}.npz")
    with Recording(path, name=asked.spec, **recording) as recorded:
        build(asked.spec).run()
    trace = recorded.trace
    assert trace is not None
    peak = int(live_bytes(trace, -(-trace.size // ROUND) * ROUND).max(initial=0))
    found = {
        "file": str(path), "name": trace.name, "tensors": trace.tensors, "events": trace.events, "operators": trace.ops,
        "peak": peak, "flops": float(trace.flops.sum()), **trace.meta,
    }  # fmt: skip
    if json:
        emit_json(found)
    else:
        typer.echo(
            f"{path}: {trace.name}, {trace.tensors:,} tensors, {trace.events:,} events, {trace.ops:,} operators, "
            f"peak {show_bytes(peak)}"
        )


def _plain(value: Value | None) -> str | None:
    return None if value is None else str(value).lower()
