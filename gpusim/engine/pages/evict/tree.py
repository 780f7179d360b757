"""The prefetcher's tree the other way round: with a big page goes what the tree would bring, were absence residency.

The tree-based neighbourhood pre-eviction of Ganguly et al. (ISCA 2019, UVMSmart): a node of which more than `threshold` percent
has left leaves whole.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages import density
from gpusim.engine.pages.bits import add, clear, fill, subtract
from gpusim.engine.pages.driver_tables import GOING, GUESS, HERE, LEAVES, RESIDENT, REST, DriverState, row, scratch

PIECES = True


@outlined
def leaving(M: DriverState, g: int, b: int) -> None:
    W, s, block = M.bits, M.state[0], M.blocks[b]
    absent, nothing, more = scratch(M, GUESS), scratch(M, GOING), scratch(M, REST)
    clear(W, absent)
    fill(W, absent, 0, block.pages)
    subtract(W, absent, row(M, g, RESIDENT, b))
    clear(W, nothing)
    density.managed(
        W, scratch(M, HERE), absent, nothing, more, scratch(M, LEAVES), block.offset, block.pages, s.big, s.threshold
    )
    add(W, scratch(M, HERE), more)
