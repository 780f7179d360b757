"""RMM's pool: best fit with coalescing, a free list for every stream, growing by doubling or half-way to a maximum.

A request rounds up to 256 bytes and takes the smallest free block that is large enough, the lowest address among equal
ones, from its own stream's list, else from another stream's, which costs a wait; else all lists are merged into its own;
else the pool grows.  It asks the device for as much as it has (without a maximum) or for half of what the maximum leaves,
and for half of that again and again while the device refuses.  A block goes back to the list of the stream that frees it.

initial  bytes, or a share of the memory when at most 1, that the pool takes at once; 0: none
maximum  the same: what the pool may hold; 0: no maximum
reclaim  1: a pool at its maximum first gives back ranges that are wholly free (since RMM 26.10); 0: it never does
reuse    1: the device gives addresses again that were given back; 0: never
legacy   number of the legacy default stream (0x1), which shares the list of stream 0; -1: none

`release` does what destroying the pool and making it anew does, when nothing is in use.

Source: rmm/mr/pool_memory_resource.hpp, RMM 26.04 to 26.10 (RAPIDS Memory Manager); checked against the library.
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import ALLOC, CALLS, FREE, LARGEST, RELEASE, ROUNDED
from gpusim.policies.place.parts.bins import NEXT
from gpusim.policies.place.parts.rmm import pool, table
from gpusim.policies.place.parts.rmm import upstream as device
from gpusim.policies.place.parts.rmm.table import statistics as statistics

PARAMS = {"initial": 0.5, "maximum": 0.0, "reclaim": 1, "reuse": 1, "legacy": -1}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    return pool.state(capacity, n_units, params, "rmm_pool")


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if S[table.MADE] == 0:
        pool.construct(S)
    if size == 0:
        return table.nothing(S)
    if S[table.MADE] < 0 or not table.has_blocks(S, NEXT):
        return -1
    p = pool.take(S, stream, table.rounded(size))
    if p == 0:
        return -1
    return table.hand(S, unit, p, S[p + pool.AT], S[p + pool.SIZE])


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = table.taken(S, unit)
    if p != 0:
        S[ROUNDED] -= S[p + pool.SIZE]
        S[table.RECORDS] += 1
        pool.give(S, stream, p)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return device.release(S, pool.destroy)


@verb(LARGEST)
def largest(S: I64) -> int:
    return pool.largest(S)
