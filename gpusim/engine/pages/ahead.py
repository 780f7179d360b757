"""What prefetchers want beyond the block that faulted: blocks in a queue, which of their pages in plane WANTED."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import add, clear, has, none, put, subtract
from gpusim.engine.pages.driver_tables import EVICTED, NONE, RESIDENT, TAKEN, WANTED, DriverState, row, shared


@kernel
def enqueue(M: DriverState, g: int, b: int) -> None:
    """Block b is to come to GPU g."""
    s = M.state[0]
    if not M.blocks[b].queued:
        M.blocks[b].queued = g
        M.queue[(s.queue_head + s.queue_length) % len(M.queue)] = b
        s.queue_length += 1


@outlined
def want(M: DriverState, g: int, b: int, page: int) -> None:
    """GPU g will need a page."""
    if not has(M.bits, row(M, g, RESIDENT, b), page):
        put(M.bits, shared(M, WANTED, b), page)
        enqueue(M, g, b)


@outlined
def want_back(M: DriverState, g: int, b: int) -> None:
    """GPU g will need the pages of block b that it had before."""
    W, wanted = M.bits, shared(M, WANTED, b)
    add(W, wanted, shared(M, EVICTED, b))
    add(W, wanted, shared(M, TAKEN, b))
    subtract(W, wanted, row(M, g, RESIDENT, b))
    if not none(W, wanted):
        enqueue(M, g, b)


@kernel
def first(M: DriverState) -> int:
    """The first block of the queue, out of it."""
    s = M.state[0]
    b = M.queue[s.queue_head]
    s.queue_head = (s.queue_head + 1) % len(M.queue)
    s.queue_length -= 1
    return int(b)


@outlined
def next_wanted(M: DriverState, g: int) -> int:
    """The first block of the queue that is to come to GPU g, out of it; NONE if there is none."""
    for _ in range(M.state[0].queue_length):
        b = first(M)
        to = M.blocks[b].queued
        M.blocks[b].queued = 0
        if to == g:
            return b
        enqueue(M, to, b)
    return NONE


@outlined
def forget_all(M: DriverState) -> None:
    while M.state[0].queue_length > 0:
        b = first(M)
        M.blocks[b].queued = 0
        clear(M.bits, shared(M, WANTED, b))
