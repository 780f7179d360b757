"""The used root chunks of a GPU in a heap: the one of the smallest (key, time of its last service) leaves first."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.driver_tables import NONE, DriverState


@kernel
def before(M: DriverState, r: int, q: int) -> bool:
    a, b = M.roots[r], M.roots[q]
    return bool(a.key < b.key or (a.key == b.key and a.since < b.since))


@kernel
def put(M: DriverState, g: int, i: int, r: int) -> None:
    M.heap[g, i] = r
    M.roots[r].place = i


@outlined
def renew(M: DriverState, g: int, r: int) -> None:
    """The key of a chunk has changed."""
    i, n = M.roots[r].place, M.gpus[g].ranked
    if i == NONE:
        return
    while i > 0 and before(M, r, M.heap[g, (i - 1) >> 1]):
        put(M, g, i, M.heap[g, (i - 1) >> 1])
        i = (i - 1) >> 1
    child = 2 * i + 1
    while child < n:
        if child + 1 < n and before(M, M.heap[g, child + 1], M.heap[g, child]):
            child += 1
        if not before(M, M.heap[g, child], r):
            break
        put(M, g, i, M.heap[g, child])
        i, child = child, 2 * child + 1
    put(M, g, i, r)


@outlined
def rank(M: DriverState, g: int, r: int) -> None:
    """A chunk comes into the heap."""
    s = M.state[0]
    s.clock += 1
    M.roots[r].since = s.clock
    put(M, g, M.gpus[g].ranked, r)
    M.gpus[g].ranked += 1
    renew(M, g, r)


@outlined
def strike(M: DriverState, g: int, r: int) -> None:
    """A chunk leaves the heap."""
    i = M.roots[r].place
    M.roots[r].place = NONE
    M.gpus[g].ranked -= 1
    last = M.heap[g, M.gpus[g].ranked]
    if last != r:
        put(M, g, i, last)
        renew(M, g, last)


@kernel
def in_flight(M: DriverState, g: int, r: int) -> bool:
    """May the chunk have been served since the last replay?  Warps have not used it yet, and would fault on it again.

    Of a chunk that small allocations share it is not known.
    """
    owner = M.roots[r].owner
    return bool(owner < 0 or M.blocks[owner].served > M.counts[g].replays)


@outlined
def foremost(M: DriverState, g: int) -> int:
    """The chunk that leaves first, NONE if all are locked or in flight.  Behind the first that may leave none is looked at."""
    for i in range(M.gpus[g].ranked):
        r = M.heap[g, i]
        if not M.roots[r].locked and not in_flight(M, g, r):
            return int(r)
    return NONE
