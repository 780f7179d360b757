"""What a program asks of its allocator, as the compiled loop reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.core.requests import R_ALLOC, R_FREE, REQUEST
from gpusim.core.tables import table
from gpusim.trace.trace import ALLOC, FREE, I64, Trace


@dataclass(frozen=True)
class Requests:
    """A program's requests in order, in pieces that are made when they are asked for.

    pieces    makes them again from the start: arrays of dtype core.requests.REQUEST
    total     number of requests
    units     ids of units are below it; an id may be used again when its unit has been freed
    max_live  most units alive at once, or a bound of it
    event     index of the trace's event behind each request, empty for a program that was generated
    """

    name: str
    pieces: Callable[[], Iterator[Any]]
    total: int
    units: int
    max_live: int
    event: I64


def of_trace(trace: Trace) -> Requests:
    """The allocs and frees of a recorded program.  What lived before the recording is allocated first."""
    event = np.flatnonzero((trace.kind == ALLOC) | (trace.kind == FREE))
    unit = trace.arg[event]
    rows = table(len(event), REQUEST)
    rows["kind"] = np.where(trace.kind[event] == ALLOC, R_ALLOC, R_FREE)
    rows["unit"], rows["size"], rows["stream"] = unit, trace.size[unit], trace.stream[event]
    live = np.cumsum(np.where(rows["kind"] == R_ALLOC, 1, -1))
    return Requests(
        trace.name, lambda: iter([rows]), len(rows), trace.tensors, int(live.max(initial=0)), event.astype(np.int64)
    )
