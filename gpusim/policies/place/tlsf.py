"""Two-level segregated fit: the first non-empty class of sizes that surely is large enough, its latest freed block.

A class holds 1/32 of a doubling.  The search rounds the request up to the next class, so that any block it finds will
do: everything is O(1), at the price that a block of the request's own class is not seen.  The end of the memory that was
never used belongs to the class of its size and comes last in it.

align     bytes that addresses and sizes are multiples of
min_rest  a block is split only when at least this many bytes remain

Source: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a new dynamic memory allocator for real-time systems", ECRTS
2004.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, COMPACT, FREE, LARGEST, RELEASE, REMAP
from gpusim.policies.place.parts import arena, bins
from gpusim.policies.place.parts import compaction as defragment
from gpusim.policies.place.parts import size_bins as classes
from gpusim.policies.place.parts.arena import ALIGN, INDEX, SIZE
from gpusim.policies.place.parts.bins import ROOTS

PARAMS = {"align": 512, "min_rest": 512}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    return arena.fit(capacity, n_units, max_live, params, bins.WORDS)


# --- the index: a list of free blocks for each class ------------------------------------------------------------------


@helper
def add(S: I64, p: int) -> None:
    classes.add(S, INDEX, p, S[p + SIZE])


@helper
def drop(S: I64, p: int) -> None:
    classes.drop(S, INDEX, p, S[p + SIZE])


@helper
def moved(S: I64, p: int, addr: int, size: int) -> None:
    drop(S, p)
    S[p + bins.ADDR], S[p + SIZE] = addr, size
    add(S, p)


@helper
def search_class(need: int) -> int:
    """The first class all of whose blocks have at least this size."""
    if need < 32:
        return need
    return bins.bin_of(need + (1 << (bits.highest(need) - 5)) - 1)


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    need, end = arena.rounded(S, size), arena.room(S)
    wanted = search_class(need)
    found = bins.next_bin(S, INDEX, wanted)
    at_end = bins.bin_of(end) if end >= need else -1
    if at_end >= wanted and (found < 0 or at_end < found):
        return arena.give(S, unit, arena.cut_tail(S, need))
    if found < 0:
        return -1
    p = S[INDEX + ROOTS + found]
    if not arena.within(S, p, need):
        return -1
    return arena.give(S, unit, arena.cut(S, p, need, drop, moved))


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p != 0:
        arena.give_back(S, p, add, drop, moved)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return arena.lower(S)


@verb(LARGEST)
def largest(S: I64) -> int:
    b = bins.last_bin(S, INDEX)
    found = bins.floor_of(b) if b >= 0 else 0
    end = arena.slack(S)
    if end > 0:
        found = max(found, min(end, bins.floor_of(bins.bin_of(arena.room(S)))))
    return found // S[ALIGN] * S[ALIGN]


@verb(COMPACT)
def compact(S: I64, moved: I64) -> int:
    return defragment.slide(S, moved, drop)


@verb(REMAP)
def remap(S: I64) -> int:
    return defragment.unmap(S, add, drop)
