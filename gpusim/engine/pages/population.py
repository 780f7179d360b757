"""Physical memory of a GPU for the pages of a block that come to it."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages import system
from gpusim.engine.pages.bits import PAGES, clear, copy, fill, next_set, subtract, total
from gpusim.engine.pages.chunks import append, frame_of, has_room, hold
from gpusim.engine.pages.copies import zero
from gpusim.engine.pages.driver_tables import (
    ATS,
    FRESH,
    GOING,
    MANAGED,
    NONE,
    RESIDENT,
    REST,
    SPLIT,
    USED,
    DriverState,
    row,
    scratch,
)
from gpusim.engine.pages.eviction import root_chunk
from gpusim.engine.pages.pieces import hold_for


@outlined
def populate_partial(M: DriverState, g: int, b: int, mask: int) -> float:
    """Frames for the pages of row `mask`: by big pages where the block has them whole, else one by one."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    ns = 0.0
    page = next_set(W, mask, 0, PAGES)
    while page < PAGES:
        if M.frames[g - 1, block.partial, page] == NONE:
            first, n = page, 1
            begin = page - (page + block.offset) % s.big
            if block.kind == MANAGED and begin >= 0 and begin + s.big <= block.pages:
                first, n = begin, s.big
                for i in range(begin, begin + s.big):
                    if M.frames[g - 1, block.partial, i] != NONE:
                        first, n = page, 1
            f = frame_of(M, g, n)
            if f == NONE:
                r, took = root_chunk(M, g)
                ns += took
                if r == NONE:
                    return float(ns)
                M.roots[r].owner = SPLIT
                has_room(M, g, r)
                f = r * s.per_block
            append(M, g, f // s.per_block, USED)
            M.roots[f // s.per_block].locked = 1
            for i in range(n):
                hold(M, g, b, first + i, f + i)
        page = next_set(W, mask, page + 1, PAGES)
    page = next_set(W, mask, 0, PAGES)
    while page < PAGES:
        M.roots[M.frames[g - 1, block.partial, page] // s.per_block].locked = 0
        page = next_set(W, mask, page + 1, PAGES)
    return ns


@outlined
def populate(M: DriverState, g: int, b: int, mask: int) -> float:
    """Physical memory of GPU g for the pages of row `mask` of block b; ns."""
    W, s, block, gpu = M.bits, M.state[0], M.blocks[b], M.gpus[g]
    if block.kind == ATS:
        system.populate(M, g, b, mask)
        return 0.0
    ns, s.incoming = 0.0, b
    if not block.seen & (1 << g):
        block.seen |= 1 << g
        M.counts[g].first_touches += 1
        ns += gpu.first_touch
        gpu.setting_up = max(gpu.setting_up, gpu.setup)
    if s.pieces:
        zeroed = scratch(M, FRESH)
        ns += hold_for(M, g, b, mask, zeroed)
    elif block.partial != NONE:
        ns += populate_partial(M, g, b, mask)
        zeroed = mask
    else:
        if M.chunk[g, b] != NONE:
            return ns
        r, took = root_chunk(M, g)
        ns += took
        if r == NONE:
            return float(ns)
        M.roots[r].owner = b
        M.chunk[g, b] = r
        zeroed = scratch(M, REST)
        clear(W, zeroed)
        fill(W, zeroed, 0, block.pages)
    nowhere = scratch(M, GOING)
    copy(W, nowhere, zeroed)
    for p in range(s.processors):
        subtract(W, nowhere, row(M, p, RESIDENT, b))
    n = total(W, nowhere)
    M.counts[g].zeroed += n
    M.ranges[block.range].zeroed += n
    zero(gpu, n * s.page_bytes)
    return float(ns)
