"""The first block with enough room from where the previous search ended, wrapping round at the end of the memory.

When the place where it ended has become the inside of a larger free block, the search begins at that block.

align     bytes that addresses and sizes are multiples of
min_rest  a block is split only when at least this many bytes remain

Source: D. E. Knuth, The Art of Computer Programming 1, 2.5, exercise 6 (the roving pointer).
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, COMPACT, FREE, LARGEST, RELEASE, REMAP
from gpusim.policies.place.parts import address_index as fits
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts import compaction as defragment
from gpusim.policies.place.parts.arena import ROVER, SIZE, TAIL
from gpusim.policies.place.parts.bins import ADDR, NEXT, PREV

PARAMS = {"align": 512, "min_rest": 512}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    return arena.fit(capacity, n_units, max_live, params, fits.WORDS)


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    need = arena.rounded(S, size)
    p = fits.lowest_from(S, S[ROVER], need)
    if p == 0:
        if arena.room(S) >= need:
            S[ROVER] = S[TAIL] + need
            return arena.give(S, unit, arena.cut_tail(S, need))
        p = fits.lowest(S, need)
    if p == 0 or not arena.within(S, p, need):
        return -1
    p = arena.cut(S, p, need, fits.drop, fits.moved)
    S[ROVER] = S[p + ADDR] + S[p + SIZE]
    return arena.give(S, unit, p)


@helper
def step_back(S: I64, p: int) -> None:
    """If the rover will be inside the free block that p becomes a part of: to its start."""
    start, prev, after = S[p + ADDR], S[p + PREV], S[p + NEXT]
    end = start + S[p + SIZE]
    if arena.is_free(S, prev):
        start = S[prev + ADDR]
    if arena.is_free(S, after):
        end += S[after + SIZE]
    if start < S[ROVER] and (after == 0 or S[ROVER] < end):
        S[ROVER] = start


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p != 0:
        step_back(S, p)
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
    S[ROVER] = 0
    return defragment.slide(S, moved, fits.drop)


@verb(REMAP)
def remap(S: I64) -> int:
    return defragment.unmap(S, fits.add, fits.drop)
