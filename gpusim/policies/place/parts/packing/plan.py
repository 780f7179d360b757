"""The lowest plan that can be found: greedy, then exact search, or climbing where there is too much to search.

    plan(from_trace(trace))     -> Plan: offsets, their top, and a bound that no plan is below
    static_bounds(trace)        -> the same in four numbers, in less than a second, or None for very long traces
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from gpusim.policies.place.parts.packing import portfolio
from gpusim.policies.place.parts.packing.buffers import I64, Buffers, from_trace
from gpusim.policies.place.parts.packing.greedy import Packing, by_size, climb, greedy
from gpusim.trace.trace import Trace

NODES = 200_000       # of the exact search, about 20 us each
WORK = 50_000_000    # of climbing, in entries of about 10 ns
MOST_TENSORS = 30_000  # that are planned in passing: the time grows with the square of what lives together


@dataclass(frozen=True, eq=False)
class OffsetPlan:
    """Fixed offsets for buffers; bytes.

    bound   no plan's top is below this: the live peak, or more where the search has ruled lower ones out
    greedy  the top of greedy by size
    nodes   visited by the exact search
    """

    offset: I64
    top: int
    bound: int
    peak_live: int
    greedy: int
    nodes: int

    @property
    def proven(self) -> bool:
        """No plan is lower."""
        return self.top == self.bound


def plan(
    buffers: Buffers, capacity: int = 0, *, nodes: int = NODES, work: int = WORK, seconds: float | None = None
) -> OffsetPlan:
    """Offsets with the lowest top that was found within so many nodes and so much work.

    capacity  what it has to fit into: nothing lower is looked for
    seconds   end the search after this time; without it the same buffers get the same plan, whatever the machine
    """
    offset = np.zeros(len(buffers), np.int64)
    real = np.flatnonzero(buffers.size)
    if not len(real):
        return OffsetPlan(offset, 0, 0, 0, 0, 0)
    kept = buffers.take(real)
    begun = time.monotonic()
    late = (lambda: time.monotonic() - begun > seconds) if seconds is not None else lambda: False
    first, bound, used = by_size(kept), kept.peak_live, 0
    offset[real] = first.offset
    for which, base in _layers(kept) if first.top > max(bound, capacity) else ():
        part = kept.take(which)
        packing, low, visited = _plan(part, max(bound, capacity) - base, nodes - used, work, late)
        offset[real[which]] = base + packing.offset
        bound = max(bound, base + low)
        used += visited
    top = int((offset + buffers.size).max())
    return OffsetPlan(offset, top, bound, kept.peak_live, first.top, used)


def static_bounds(trace: Trace, align: int = 512) -> tuple[int, int, int, bool] | None:
    """`bounds` of a trace's tensors."""
    return bounds(from_trace(trace, align))


def bounds(buffers: Buffers) -> tuple[int, int, int, bool] | None:
    """(live peak, top of greedy by size, lowest top found, whether no plan is lower), in bytes.

    None for more than MOST_TENSORS buffers, which take a planner seconds to minutes.
    """
    if len(buffers) > MOST_TENSORS:
        return None
    found = plan(buffers, nodes=4_000, work=0)
    return found.peak_live, found.greedy, found.top, found.proven


def _layers(buffers: Buffers) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Parts that can be planned on their own: (their buffers, the offset at which the part begins).

    A buffer that lives in all sections of its part may as well lie at the bottom; what is left may fall into parts that
    share no section.  A part of one buffer is one of these.
    """
    waiting = [(np.arange(len(buffers)), 0)]
    while waiting:
        which, base = waiting.pop()
        first, end = buffers.first[which], buffers.end[which]
        across = (first == first.min()) & (end == end.max())
        for i in which[across]:
            yield np.array([i]), base
            base += int(buffers.size[i])
        which, first, end = which[~across], first[~across], end[~across]
        order = np.argsort(first, kind="stable")
        reach = np.maximum.accumulate(end[order])
        parts = np.split(order, np.flatnonzero(first[order][1:] >= reach[:-1]) + 1)
        if len(parts) == 1 and not across.any():
            yield which, base
        else:
            waiting += [(which[part], base) for part in parts if len(part)]


def _plan(
    part: Buffers, goal: int, nodes: int, work: int, late: Callable[[], bool]
) -> tuple[Packing, int, int]:
    """(packing, bytes that none is below, nodes visited) of one part; a top of `goal` is as good as a lower one."""
    low, used = part.peak_live, 0
    goal = max(goal, low)
    if not portfolio.searchable(part):
        return climb(part, goal, work), low, used
    best = greedy(part)
    unit = gcd(*part.size.tolist())
    target = stuck = goal  # the search gave up below `stuck`
    while best.top > goal and stuck < best.top and nodes - used >= len(part) and not late():
        answer, offset, visited = portfolio.decide(part, target, (nodes - used + 1) // 2, late)
        used += visited
        if answer == portfolio.FOUND:
            best = Packing(offset, int((offset + part.size).max()))
        else:
            stuck = (target // unit + 1) * unit
        if answer == portfolio.NONE:
            low = goal = stuck
        target = goal if stuck <= goal else (stuck + best.top) // 2
    return best, low, used
