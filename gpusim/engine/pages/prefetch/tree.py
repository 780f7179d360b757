"""The driver's own: the largest node of a tree over the block that is dense enough (`density`)."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages import density
from gpusim.engine.pages.bits import none
from gpusim.engine.pages.driver_tables import (
    CPU,
    GUESS,
    LEAVES,
    MAPPED,
    NONE,
    RESIDENT,
    THRASHING,
    DriverState,
    row,
    scratch,
    shared,
)


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    W, s, block = M.bits, M.state[0], M.blocks[b]
    preferred = density.ANYWHERE
    if block.preferred != NONE:
        preferred = density.HERE if block.preferred == p else density.ELSEWHERE
    first = True
    for q in range(s.processors):
        first = first and none(W, row(M, q, RESIDENT, b))
    density.advise(
        W, faulted, row(M, p, RESIDENT, b), shared(M, THRASHING, b), row(M, CPU, MAPPED, b), scratch(M, GUESS),
        scratch(M, LEAVES), block.offset, block.pages, s.big, s.threshold, preferred, first, p == CPU,
    )  # fmt: skip
