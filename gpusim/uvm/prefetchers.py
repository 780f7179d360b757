"""What moves beside the faulted pages of a block: the driver's tree, and alternatives to compare it with."""

from __future__ import annotations

from gpusim.uvm import density
from gpusim.uvm.bits import PAGES, clear, fill, next_set, none, subtract
from gpusim.uvm.compiled import outlined
from gpusim.uvm.tables import ATS, CPU, GUESS, LEAVES, MAPPED, NONE, RESIDENT, THRASHING, Memory, row, scratch, shared

TREE, NONE_AT_ALL, SEQUENTIAL, BLOCK = range(4)
PREFETCHERS = ("tree", "none", "sequential", "block")


@outlined
def propose(M: Memory, p: int, b: int, faulted: int, n_faulted: int) -> bool:
    """Row GUESS: the pages that come to processor p as well; False when there are none, or the block has faulted too seldom."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    out = scratch(M, GUESS)
    if not s.prefetch_enable or s.prefetcher == NONE_AT_ALL:
        return False
    if block.kind == ATS:
        clear(W, out)
        here, thrashing = row(M, p, RESIDENT, b), shared(M, THRASHING, b)
        density.ats(W, faulted, here, thrashing, out, scratch(M, LEAVES), 0, block.pages, s.threshold)
        return not none(W, out)
    if block.last_destination != p:
        block.last_destination, block.fault_migrations = p, 0
    preferred = density.ANYWHERE
    if block.preferred != NONE:
        preferred = density.HERE if block.preferred == p else density.ELSEWHERE
    thrashing = shared(M, THRASHING, b)
    if s.prefetcher == TREE:
        first = True
        for q in range(s.processors):
            first = first and none(W, row(M, q, RESIDENT, b))
        density.advise(
            W, faulted, row(M, p, RESIDENT, b), thrashing, row(M, CPU, MAPPED, b), out, scratch(M, LEAVES), block.offset,
            block.pages, s.big, s.threshold, preferred, first, p == CPU,
        )  # fmt: skip
    else:
        clear(W, out)
        if s.prefetcher == BLOCK:
            fill(W, out, 0, block.pages)
        else:  # the 64 KiB of each fault, and the next
            page = next_set(W, faulted, 0, PAGES)
            while page < PAGES:
                begin = page - (page + block.offset) % s.big
                fill(W, out, max(begin, 0), min(begin + 2 * s.big, block.pages))
                page = next_set(W, faulted, page + 1, PAGES)
        subtract(W, out, faulted)
        subtract(W, out, thrashing)
    block.fault_migrations = min(block.fault_migrations + n_faulted, 65535)
    return block.fault_migrations >= s.min_faults and not none(W, out)
