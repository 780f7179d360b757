"""What prefetchers want beyond the block that faulted: blocks in a queue, which of their pages in plane WANTED."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import add, clear, has, none, put, subtract
from gpusim.engine.pages.driver_tables import EVICTED, NONE, RESIDENT, TAKEN, WANTED, DriverState, row, shared


@kernel
def enqueue(M: DriverState, b: int) -> None:
    s = M.state[0]
    if not M.blocks[b].queued:
        M.blocks[b].queued = 1
        M.queue[(s.queue_head + s.queue_length) % len(M.queue)] = b
        s.queue_length += 1


@outlined
def want(M: DriverState, g: int, b: int, page: int) -> None:
    """GPU g will need a page."""
    if not has(M.bits, row(M, g, RESIDENT, b), page):
        put(M.bits, shared(M, WANTED, b), page)
        enqueue(M, b)


@outlined
def want_back(M: DriverState, g: int, b: int) -> None:
    """GPU g will need the pages of block b that it had before."""
    W, wanted = M.bits, shared(M, WANTED, b)
    add(W, wanted, shared(M, EVICTED, b))
    add(W, wanted, shared(M, TAKEN, b))
    subtract(W, wanted, row(M, g, RESIDENT, b))
    if not none(W, wanted):
        enqueue(M, b)


@outlined
def next_wanted(M: DriverState) -> int:
    """The first block of the queue, out of it; NONE if it is empty."""
    s = M.state[0]
    if s.queue_length == 0:
        return NONE
    b = M.queue[s.queue_head]
    s.queue_head = (s.queue_head + 1) % len(M.queue)
    s.queue_length -= 1
    M.blocks[b].queued = 0
    return int(b)


@outlined
def forget_all(M: DriverState) -> None:
    b = next_wanted(M)
    while b != NONE:
        clear(M.bits, shared(M, WANTED, b))
        b = next_wanted(M)
