"""What has to know of every use of a block by a kernel: eviction policies that refresh by it, and oracles."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages.chunk_policy import touched
from gpusim.engine.pages.driver_tables import NONE, DriverState
from gpusim.engine.pages.foresight import advance, observe


@outlined
def follow(M: DriverState, g: int, b: int, page: int) -> None:
    """A kernel on GPU g has used a page of block b."""
    s = M.state[0]
    if s.observes:
        observe(M, b, page)
    if s.foresees:
        advance(M, b)
    if s.follows:
        r = M.chunk[g, b]
        if M.blocks[b].partial != NONE:
            r = M.frames[g - 1, M.blocks[b].partial, page] // s.per_block
        if r != NONE:
            touched(M, g, r)
