"""The smallest free block that is large enough, the lowest address among equal ones; neighbours merge at once.

align     bytes that addresses and sizes are multiples of
min_rest  a block is split only when at least this many bytes remain

The end of the device's memory that was never used is a free block like any other.

Source: D. E. Knuth, The Art of Computer Programming 1, 2.5.
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import ALLOC, CALLS, COMPACT, FREE, LARGEST, RELEASE, REMAP
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts import compaction as defragment
from gpusim.policies.place.parts import size_index as sized

PARAMS = {"align": 512, "min_rest": 512}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    return arena.fit(capacity, n_units, max_live, params, sized.WORDS)


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    return sized.best_fit(S, unit, arena.rounded(S, size)) if size > 0 else arena.nothing(S)


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p != 0:
        arena.give_back(S, p, sized.add, sized.drop, sized.moved)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return arena.lower(S)


@verb(LARGEST)
def largest(S: I64) -> int:
    return max(sized.largest(S), arena.slack(S))


@verb(COMPACT)
def compact(S: I64, moved: I64) -> int:
    return defragment.slide(S, moved, sized.drop)


@verb(REMAP)
def remap(S: I64) -> int:
    return defragment.unmap(S, sized.add, sized.drop)
