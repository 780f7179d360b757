"""Strides: where the last faults of an allocation came at equal distances, the next pages at that distance come as well.

Per allocation the last faulted page and the distance from the one before; a batch is sorted, so that its faults are looked at
by address.  Pages of the block come with the fault, those beyond it while the link is idle.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages.ahead import want
from gpusim.engine.pages.bits import PAGES, next_set, put
from gpusim.engine.pages.driver_tables import GUESS, DriverState, scratch

LEARNS = True
DEGREE = 64  # pages ahead
SURE = 2     # distances in a row


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    W, s, block = M.bits, M.state[0], M.blocks[b]
    x = M.streams[block.range]
    base = b * s.per_block + block.offset
    page = next_set(W, faulted, 0, PAGES)
    while page < PAGES:
        distance = base + page - x.last
        # What was brought for the stride faults no more: the next fault comes some strides later.
        if x.stride and distance % x.stride == 0 and 0 < distance // x.stride <= DEGREE + 1:
            x.sure += 1
        else:
            x.stride, x.sure = distance, 0
        x.last = base + page
        page = next_set(W, faulted, page + 1, PAGES)
    if x.sure < SURE:
        return
    for k in range(1, DEGREE + 1):
        at = x.last + k * x.stride
        c = at >> s.block_shift
        if at < 0 or c >= s.blocks or M.blocks[c].range != block.range:
            break
        i = (at & (s.per_block - 1)) - M.blocks[c].offset
        if 0 <= i < M.blocks[c].pages:
            if c == b:
                put(W, scratch(M, GUESS), i)
            else:
                want(M, p, c, i)
