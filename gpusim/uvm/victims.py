"""Who leaves when a GPU is full: the driver's order, and alternatives to compare it with under the same accesses.

The driver refreshes a chunk when it serves it, never when a kernel merely uses it.
"""

from __future__ import annotations

from gpusim.uvm.chunks import driver_victim, oldest
from gpusim.uvm.compiled import kernel, outlined
from gpusim.uvm.tables import NONE, UNUSED, USED, Memory

DRIVER, LRU, RANDOM, LFU, CLEAN_DROP = range(5)
EVICT = ("driver", "lru", "random", "lfu", "clean_drop")


@kernel
def draw(M: Memory, n: int) -> int:
    """A number below n, from a linear congruential generator (the constants of ISO C's example)."""
    s = M.state[0]
    s.seed = (s.seed * 1103515245 + 12345) & 0x7FFFFFFF
    return int((s.seed >> 8) % n)


@kernel
def worth(M: Memory, r: int) -> int:
    """The larger, the longer a used chunk stays."""
    owner = M.roots[r].owner
    if owner < 0:
        return 0
    return int(M.blocks[owner].last_use if M.state[0].evict == LRU else M.blocks[owner].uses)


@outlined
def victim(M: Memory, g: int) -> int:
    """A root chunk that may leave, NONE if none may."""
    evict = M.state[0].evict
    if evict in (DRIVER, CLEAN_DROP) or oldest(M, g, UNUSED) != NONE:
        return int(driver_victim(M, g))
    gpu = M.gpus[g]
    if evict == RANDOM:
        for _ in range(64):
            r = gpu.first_root + draw(M, gpu.roots)
            if M.roots[r].list == USED and not M.roots[r].locked:
                return int(r)
        return int(driver_victim(M, g))
    best = NONE
    r = gpu.oldest[USED]
    while r != NONE:
        if not M.roots[r].locked and (best == NONE or worth(M, r) < worth(M, best)):
            best = r
        r = M.roots[r].newer
    return best
