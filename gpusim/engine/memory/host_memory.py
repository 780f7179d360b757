"""The memory of a tier that copies lie in: had beforehand, in a pool that grows, or allocated for each copy.

A pool keeps its blocks by powers of two, as PyTorch's pinned allocator does (torch.cuda.memory.host_memory_stats): a size of
which it has no free block costs an allocation of the rounded size, what it has is used again for nothing.  A block is free when
the tier gives up the copy in it.  The host makes these calls itself: what it submits in the same step comes after them.
Not modelled: a tier's memory is given back without a wait for the device.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.state import GROW, HELD, USED, Island


@kernel
def take(isl: Island, m: int, size: int) -> None:
    """Memory for a copy of `size` bytes in tier m."""
    if isl.memories[m].pool:
        _take(isl, m, size)


@kernel
def give_back(isl: Island, m: int, size: int) -> None:
    """The copy of `size` bytes in tier m is given up."""
    if isl.memories[m].pool:
        _give_back(isl, m, size)


@outlined
def _take(isl: Island, m: int, size: int) -> None:
    tier, wanted = isl.memories[m], size
    if tier.pool == GROW:
        k = _power(size)
        wanted = 0 if isl.pools[m, k, USED] < isl.pools[m, k, HELD] else 1 << k
        isl.pools[m, k, HELD] += wanted > 0
        isl.pools[m, k, USED] += 1
    if wanted:
        _pay(isl, int(tier.take_ns + tier.take_per_byte * wanted))


@outlined
def _give_back(isl: Island, m: int, size: int) -> None:
    tier = isl.memories[m]
    if tier.pool == GROW:
        isl.pools[m, _power(size), USED] -= 1
    else:
        _pay(isl, int(tier.give_per_byte * size))


@kernel
def _power(size: int) -> int:
    """The least power of two that is not below the size."""
    k = 0
    while 1 << k < size:
        k += 1
    return k


@kernel
def _pay(isl: Island, spent: int) -> None:
    h = isl.hosts[0]
    h.time += spent
    h.alloc_ns += spent
    h.had += spent
