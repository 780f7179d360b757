"""Thread blocks that touch a page each, side by side along their arrays: those that find all pages there run through at once.

The kernels of recorded tensor traces are such.  What the front end does access by access is done 64 pages at a time here;
thread blocks that miss a page go through the front end.  Only on which uTLB those begin is another than without this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.bits import trailing_zeros
from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import window
from gpusim.engine.pages.driver_tables import DIRTY, MAPPED, PREFETCHED, RESIDENT, WRITABLE, DriverState, row, shared
from gpusim.programs.managed.pattern import SECTOR
from gpusim.programs.managed.steps import Kernel

STRIDE = 4096  # thread blocks that are looked at together: a long look that a miss cuts short would be in vain


def sweeps(kernel: Kernel) -> bool:
    """Whether thread block k touches element start + k of each access, and nothing else."""
    still = all(
        (a.tx, a.ty, a.by, a.inner, a.outer, a.bx) == (0, 0, 0, 0, 0, 1) and a.start >= 0 and not a.wraps
        and a.index is None and a.random is None and a.bytes % SECTOR == 0 for a in kernel.accesses
    )  # fmt: skip
    return still and kernel.block == (1, 1) and kernel.steps == (1, 1) and kernel.grid[1] == 1


@kernel
def missing(M: DriverState, p: int, a: Any, k: int, end: int) -> int:
    """The first thread block of [k, end) that does not find its page at processor p; `end` if all do."""
    s, W = M.state[0], M.bits
    stop = min(end, a.elements - a.start)  # behind its elements an access does nothing
    if k >= stop:
        return end
    page = (a.base + (a.start + k) * a.bytes) >> s.page_shift
    last = (a.base + (a.start + stop) * a.bytes - 1) >> s.page_shift
    while page <= last:
        b = page >> s.block_shift
        i = (page & (s.per_block - 1)) - M.blocks[b].offset
        end_i = min(i + last - page + 1, M.blocks[b].pages)
        mapped, here = row(M, p, WRITABLE if a.write else MAPPED, b), row(M, p, RESIDENT, b)
        w = i >> 6
        while w << 6 < end_i:
            gone = ~(W[mapped, w] & W[here, w]) & window(w, i, end_i)
            if gone != np.uint64(0):
                q = page - i + (w << 6) + trailing_zeros(gone)
                return int(max(k, ((q << s.page_shift) - a.base) // a.bytes - a.start))
            w += 1
        page += end_i - i
    return end


@kernel
def passed(M: DriverState, p: int, a: Any, k: int, end: int) -> None:
    """The accesses of thread blocks [k, end) went through."""
    s, W, n = M.state[0], M.bits, M.counts[p]
    stop = min(end, a.elements - a.start)
    if k >= stop:
        return
    n.touches += stop - k
    n.touched_bytes += (stop - k) * a.bytes
    page = (a.base + (a.start + k) * a.bytes) >> s.page_shift
    last = (a.base + (a.start + stop) * a.bytes - 1) >> s.page_shift
    while page <= last:
        b = page >> s.block_shift
        i = (page & (s.per_block - 1)) - M.blocks[b].offset
        end_i = min(i + last - page + 1, M.blocks[b].pages)
        ahead, dirty = shared(M, PREFETCHED, b), shared(M, DIRTY, b)
        w = i >> 6
        while w << 6 < end_i:
            touched = window(w, i, end_i)
            W[ahead, w] &= ~touched
            if a.write:
                W[dirty, w] |= touched
            w += 1
        page += end_i - i


@outlined
def sweep(M: DriverState, F: Any, A: Any) -> None:
    """Thread blocks from the next one on run through, up to the first that misses a page."""
    f, s = F.state[0], M.state[0]
    p = f.processor
    while f.sweeps and f.next_cta < f.ctas and s.now + f.issued * f.ns < s.pause:
        k = f.next_cta
        for x in range(f.accesses):  # mostly one misses at once
            if missing(M, p, A[x], k, k + 1) == k:
                return
        end = min(k + STRIDE, f.ctas)
        for x in range(f.accesses):
            end = missing(M, p, A[x], k, end)
        for x in range(f.accesses):
            passed(M, p, A[x], k, end)
        f.issued += (end - k) * f.accesses
        f.next_cta = end
