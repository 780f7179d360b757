"""The largest free block, the lowest address among equal ones; neighbours merge at once.

The end of the device's memory that was never used is a free block like any other, so it is used up first.

align     bytes that addresses and sizes are multiples of
min_rest  a block is split only when at least this many bytes remain

Source: D. E. Knuth, The Art of Computer Programming 1, 2.5.
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import ALLOC, CALLS, COMPACT, FREE, LARGEST, RELEASE, REMAP
from gpusim.policies.place.parts import address_index as fits
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts import compaction as defragment

PARAMS = {"align": 512, "min_rest": 512}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    return arena.fit(capacity, n_units, max_live, params, fits.WORDS)


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    need = arena.rounded(S, size)
    most, end = fits.largest(S), arena.room(S)
    if end > most:
        return arena.give(S, unit, arena.cut_tail(S, need)) if end >= need else -1
    if most < need:
        return -1
    p = fits.lowest(S, most)
    if not arena.within(S, p, need):
        return -1
    return arena.give(S, unit, arena.cut(S, p, need, fits.drop, fits.moved))


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p != 0:
        arena.give_back(S, p, fits.add, fits.drop, fits.moved)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return arena.lower(S)


@verb(LARGEST)
def largest(S: I64) -> int:
    return max(fits.largest(S), arena.slack(S))


@verb(COMPACT)
def compact(S: I64, moved: I64) -> int:
    return defragment.slide(S, moved, fits.drop)


@verb(REMAP)
def remap(S: I64) -> int:
    return defragment.unmap(S, fits.add, fits.drop)
