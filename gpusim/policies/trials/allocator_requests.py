"""What a program asks of its allocator, as the compiled loop reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.base.tables import table
from gpusim.policies.place.parts.packing.buffers import Buffers
from gpusim.policies.trials.requests import R_ALLOC, R_FREE, REQUEST
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import ALLOC, FREE, I64, OOM, Trace

NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class AllocatorRequests:
    """A program's requests in order, in pieces that are made when they are asked for.

    pieces    makes them again from the start: arrays of dtype core.requests.REQUEST
    total     number of requests
    units     ids of units are below it; an id may be used again when its unit has been freed
    max_live  most units alive at once, or a bound of it

    Of a recorded program, empty otherwise:
    event     (total,) index of the trace's event behind each request
    iteration (total,) the iteration of the program that it belongs to, -1: none
    size      (units,) bytes of each unit: the trace's tensors, then one for each request that failed in the recording
    site      (units,) where each unit comes from, as an index of sites
    before    so many requests, the first ones, only make what lived before the recording
    returned  unit -> the request from which on the program was done with it, where that was before it was free
    """

    name: str
    pieces: Callable[[], Iterator[Any]]
    total: int
    units: int
    max_live: int
    event: I64 = field(default_factory=NONE.copy)
    iteration: I64 = field(default_factory=NONE.copy)
    size: I64 = field(default_factory=NONE.copy)
    site: I64 = field(default_factory=NONE.copy)
    sites: tuple[str, ...] = ()
    stacks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # site -> frames of one such stack, innermost first
    before: int = 0
    returned: Mapping[int, int] = field(default_factory=dict)

    def rows(self) -> Any:
        """All requests at once."""
        return np.concatenate(list(self.pieces()))

    def buffers(self, align: int = 512) -> Buffers:
        """What a planner places for a recorded program, those requests included that failed in the recording."""
        rows = self.rows()
        made, freed, at = rows["kind"] == R_ALLOC, rows["kind"] == R_FREE, np.arange(len(rows))
        lower, upper = np.zeros(self.units, np.int64), np.full(self.units, len(rows))
        lower[rows["unit"][made]], upper[rows["unit"][freed]] = at[made], at[freed]
        return Buffers(lower, upper, -(-self.size // align) * align)

    @property
    def failed(self) -> int:
        """Requests that failed in the recording."""
        return int(np.count_nonzero(self.site == len(self.sites) - 1)) if self.sites else 0

    def columns(self) -> tuple[Any, Any, Any, Any]:
        """What a place policy is shown that plans ahead: kind (1 alloc, 0 free), unit, bytes and iteration of each."""
        if not len(self.iteration):
            raise PolicyError(f"'{self.name}' is no recorded program, so that nothing can be planned for it ahead")
        rows = self.rows()
        kept = (rows["kind"] == R_ALLOC) | (rows["kind"] == R_FREE)
        of = rows[kept]
        return (of["kind"] == R_ALLOC).astype(np.int64), of["unit"].copy(), of["size"].copy(), self.iteration[kept]

    def asked(self) -> I64:
        """(total,) bytes requested and not freed after each request."""
        rows = self.rows()
        size = self.size[np.where(rows["kind"] <= R_FREE, rows["unit"], 0)] if len(self.size) else rows["size"]
        return np.cumsum(np.select([rows["kind"] == R_ALLOC, rows["kind"] == R_FREE], [size, -size], 0))


@dataclass(frozen=True, eq=False)
class WholeProgram:
    """The pieces of a program that is there as a whole: one."""

    rows: Any

    def __call__(self) -> Iterator[Any]:
        return iter([self.rows])


def of_trace(trace: Trace) -> AllocatorRequests:
    """The allocs and frees of a recorded program.  What lived before the recording is allocated first.

    A request that failed in the recording is tried here too, and freed at once should it succeed.
    """
    failed = np.flatnonzero(trace.kind == OOM)
    event = np.flatnonzero((trace.kind == ALLOC) | (trace.kind == FREE) | (trace.kind == OOM))
    event = np.sort(np.concatenate([event, failed]))  # those that failed twice: alloc and free
    again = np.zeros(len(event), bool)
    again[1:] = event[1:] == event[:-1]
    kind = trace.kind[event]
    unit = trace.arg[event].copy()
    unit[kind == OOM] = trace.tensors + np.repeat(np.arange(len(failed)), 2)
    rows = table(len(event), REQUEST)
    rows["kind"] = np.where((kind == FREE) | again, R_FREE, R_ALLOC)
    rows["unit"], rows["size"], rows["stream"] = unit, sizes(trace)[unit], trace.stream[event]
    return of_rows(trace, rows, event, int((trace.meta.get("start") or {}).get("tensors", 0)))


def sizes(trace: Trace) -> I64:
    """Bytes of each unit: the trace's tensors, then its requests that failed."""
    return np.concatenate([trace.size, trace.bytes[trace.kind == OOM]])


def of_rows(trace: Trace, rows: Any, event: I64, before: int) -> AllocatorRequests:
    """A recorded program, as these requests; event: of each its event.  `before`: so many, the first ones, make the start."""
    size, failed = sizes(trace), int(np.count_nonzero(trace.kind == OOM))
    live = np.cumsum(np.select([rows["kind"] == R_ALLOC, rows["kind"] == R_FREE], [1, -1], 0))
    site = np.concatenate([trace.category.astype(np.int64), np.full(failed, len(trace.categories))])
    return AllocatorRequests(
        trace.name, WholeProgram(rows), len(rows), len(size), int(live.max(initial=0)), event.astype(np.int64),
        iterations(trace)[event], size, site,
        (*trace.categories, "request that failed"), trace.meta.get("stacks") or {}, before,
        {tensor: int(np.searchsorted(event, at)) for tensor, at in trace.meta.get("free_requested") or []},
    )  # fmt: skip
