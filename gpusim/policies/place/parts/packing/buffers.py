"""What an offset planner places: buffers with sizes and lives known beforehand, and the sections of their time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.trace import ALLOC, FREE, Trace

I64 = npt.NDArray[np.int64]
MOST_BYTES = 2**60  # of all buffers together, so that no sum of offsets and sizes overflows


@dataclass(frozen=True, eq=False)
class Buffers:
    """n buffers: `size` bytes over [lower, upper) of a clock that only orders; at one tick ends come before starts.

    A *section* is a span of time in which the largest sets of buffers live together: between a start and the end that
    follows it.  Two buffers overlap in time exactly if they share a section, so sections are all that planning needs.
    """

    lower: I64
    upper: I64
    size: I64

    def __post_init__(self) -> None:
        if sum(map(int, self.size)) > MOST_BYTES:
            raise TraceError("the buffers are more than 2^60 bytes together", hint="sizes are bytes")

    def __len__(self) -> int:
        return len(self.size)

    def take(self, which: npt.NDArray[np.intp]) -> Buffers:
        return Buffers(self.lower[which], self.upper[which], self.size[which])

    @cached_property
    def moments(self) -> I64:
        """(sections,) the start that begins each section."""
        time = np.concatenate([self.upper, self.lower])
        starts = np.arange(len(time)) >= len(self)
        order = np.lexsort((starts, time))
        time, starts = time[order], starts[order]
        return time[np.flatnonzero(starts[:-1] & ~starts[1:])]

    @cached_property
    def first(self) -> I64:
        """(n,) the first section that each buffer lives in."""
        return np.searchsorted(self.moments, self.lower).astype(np.int64)

    @cached_property
    def end(self) -> I64:
        """(n,) the section after the last one that each buffer lives in."""
        return np.searchsorted(self.moments, self.upper).astype(np.int64)

    @cached_property
    def live(self) -> I64:
        """(sections,) bytes alive in each section."""
        step = np.zeros(len(self.moments) + 1, np.int64)
        np.add.at(step, self.first, self.size)
        np.subtract.at(step, self.end, self.size)
        return np.cumsum(step)[:-1]

    @property
    def peak_live(self) -> int:
        """The most bytes alive at once: no plan and no allocator needs less."""
        return int(self.live.max(initial=0))


def from_trace(trace: Trace, align: int = 512) -> Buffers:
    """A buffer per tensor, over the indices of its events; sizes rounded up to `align` bytes.

    Offsets that a planner gives are then multiples of `align` as well.
    """
    lower, upper = np.zeros(trace.tensors, np.int64), np.full(trace.tensors, trace.events, np.int64)
    for kind, column in ((ALLOC, lower), (FREE, upper)):
        at = np.flatnonzero(trace.kind == kind)
        column[trace.arg[at]] = at
    return Buffers(lower, upper, -(-trace.size // align) * align)
