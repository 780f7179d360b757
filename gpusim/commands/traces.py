"""`gpusim import` and `gpusim trace`."""

from __future__ import annotations

from pathlib import Path

import typer

from gpusim.commands.output import emit_json


def import_file(file: Path, out: Path | None, format: str | None, *, json: bool) -> None:
    """A recording as a trace beside it, or at `out`."""
    from gpusim.trace.files import save_trace
    from gpusim.trace.importers import import_trace

    trace = import_trace(file, format)
    path = out or file.with_name(file.name.split(".")[0] + ".npz")
    save_trace(trace, path)
    found = {"file": str(path), "tensors": trace.tensors, "events": trace.events, "operators": trace.ops, **trace.meta}
    if json:
        emit_json(found)
    else:
        typer.echo(f"{path}: {trace.tensors:,} tensors, {trace.events:,} events, {trace.ops:,} operators")
