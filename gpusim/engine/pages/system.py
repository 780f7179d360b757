"""System memory, from malloc, on a GPU whose page tables are the host's (ATS): pages of the GPU's own node.

The host's kernel gives them out, page by page, from root chunks that it takes from what is free; the driver does not evict
them.  Where there is no room a page stays with the CPU, which the GPU reaches as well.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import copy, subtract, total
from gpusim.engine.pages.chunks import append
from gpusim.engine.pages.copies import zero
from gpusim.engine.pages.driver_tables import FREE, GOING, HELD, RESIDENT, DriverState, row, scratch


@kernel
def fits(M: DriverState, g: int, b: int, mask: int) -> bool:
    """Has GPU g room for those pages of row `mask` that it does not hold yet?"""
    gpu, new = M.gpus[g], scratch(M, GOING)
    copy(M.bits, new, mask)
    subtract(M.bits, new, row(M, g, RESIDENT, b))
    s, chunks = M.state[0], gpu.length[HELD] + gpu.length[FREE]
    if s.pieces:
        chunks = gpu.roots - -(-gpu.pieces // (s.per_block // s.big))
    return bool(total(M.bits, new) <= chunks * s.per_block - gpu.system_pages)


@outlined
def populate(M: DriverState, g: int, b: int, mask: int) -> None:
    """Memory of GPU g, which has room, for the pages of row `mask`."""
    W, s, gpu, new = M.bits, M.state[0], M.gpus[g], scratch(M, GOING)
    copy(W, new, mask)
    subtract(W, new, row(M, g, RESIDENT, b))
    gpu.system_pages += total(W, new)
    while gpu.length[HELD] * s.per_block < gpu.system_pages:
        append(M, g, gpu.oldest[FREE], HELD)
    for p in range(s.processors):
        subtract(W, new, row(M, p, RESIDENT, b))
    n = total(W, new)
    M.counts[g].zeroed += n
    M.ranges[M.blocks[b].range].zeroed += n
    zero(gpu, n * s.page_bytes)


@outlined
def give_back(M: DriverState, g: int, pages: int) -> None:
    """GPU g holds so many pages of system memory less."""
    gpu = M.gpus[g]
    gpu.system_pages -= pages
    while (gpu.length[HELD] - 1) * M.state[0].per_block >= gpu.system_pages and gpu.length[HELD] > 0:
        append(M, g, gpu.newest[HELD], FREE)
