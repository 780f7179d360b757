"""The 64 KiB of each fault, and the next."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages.bits import PAGES, fill, next_set
from gpusim.engine.pages.driver_tables import GUESS, DriverState, scratch


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    W, s, block = M.bits, M.state[0], M.blocks[b]
    page = next_set(W, faulted, 0, PAGES)
    while page < PAGES:
        begin = page - (page + block.offset) % s.big
        fill(W, scratch(M, GUESS), max(begin, 0), min(begin + 2 * s.big, block.pages))
        page = next_set(W, faulted, page + 1, PAGES)
