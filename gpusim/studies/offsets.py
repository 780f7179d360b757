"""Buffers from any recording, and plans as the CSV that minimalloc reads and writes: id,lower,upper,size,offset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.base.files import write_text
from gpusim.policies.place.parts.packing.buffers import I64, Buffers, from_trace
from gpusim.programs.recordings import FORMATS, HEAD, import_trace
from gpusim.trace.answers import require
from gpusim.trace.files import load_trace
from gpusim.trace.importers.minimalloc import rows
from gpusim.trace.importers.recording import read_bytes
from gpusim.trace.trace import Trace

ALIGN = 512  # bytes: what tensors of a trace are rounded up to


def read(path: Path, align: int | None = None, device: int | None = None) -> tuple[list[str], Buffers]:
    """The buffers of a trace (.npz), a minimalloc problem, or a recording that can be imported, and their names.

    align   bytes that sizes are rounded up to; None: 512 for tensors, as they are for a minimalloc problem
    device  which GPU of a snapshot that holds several
    """
    chosen: dict[str, Any] = {} if device is None else {"device": device}
    if path.suffix == ".npz":
        if chosen:
            raise TraceError("--device chooses one GPU of a snapshot", str(path), "leave it out: a trace is of one")
        return _tensors(load_trace(path), align)
    data = read_bytes(path)
    if chosen or not FORMATS["minimalloc"].looks_like(data[:HEAD]):
        return _tensors(import_trace(path, None, **chosen), align)
    found = rows(data, str(path))
    table = np.array([row[1:4] for row in found], np.int64).reshape(-1, 3)
    lower, upper, size = (table[:, k].copy() for k in range(3))
    step = align or 1
    return [row.id for row in found], Buffers(lower, upper, -(-size // step) * step)


def _tensors(trace: Trace, align: int | None) -> tuple[list[str], Buffers]:
    if trace.tensors:  # the caller says of an empty one that it is empty
        require(trace, "allocator", "a plan of offsets")
    return [str(i) for i in range(trace.tensors)], from_trace(trace, align or ALIGN)


def write(path: Path, ids: Sequence[str], buffers: Buffers, offset: I64) -> None:
    """A row per buffer; the file appears whole or not at all."""
    columns = zip(ids, buffers.lower, buffers.upper, buffers.size, offset, strict=True)
    write_text(path, "\n".join(["id,lower,upper,size,offset", *(",".join(map(str, row)) for row in columns), ""]))
