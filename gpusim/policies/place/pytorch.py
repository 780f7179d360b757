"""PyTorch's caching allocator: blocks of 512 bytes cut from cached segments, best fit per stream, small and large pool.

Requests round up to 512 bytes; those of at most 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of
20 MiB, larger ones from segments of their own, rounded up to 2 MiB.  The free blocks of a pool are ordered by (stream,
size, number of the segment, address) and the first that is large enough is taken; the rest is split off when it has 512
bytes (small pool) or more than 1 MiB (large pool).  Freed blocks merge with free neighbours of their segment.  When the
device has no room, all segments without a block in use are given back, then it is asked once more.

Segments get the lowest free addresses of the device, in units of 2 MiB.
paged  1: a segment fails only for lack of bytes, as on a device with virtual memory, and may lie above the capacity;
       0: it needs one free range below the capacity

Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13 to 2.15 with default settings.
"""

from __future__ import annotations

from gpusim.policies import arena, bins, fits
from gpusim.policies.bins import ADDR, KEY, LEFT, LIVE, NEXT, ORDER, OWNER, PREV, ROOTS
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import (
    ALLOC,
    BLOCK,
    CALL_LIST,
    CALLS,
    CAPACITY,
    FREE,
    HELD,
    LARGEST,
    MAX_CALLS,
    RELEASE,
    ROUNDED,
)

PARAMS = {"paged": 0}

UNIT, SMALL_SIZE = 512, 1 << 20
SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT, OWN_ROUNDING = 2 << 20, 20 << 20, 10 << 20, 2 << 20

# The arena's blocks are the device's ranges; a range in use is a segment and has further words.
STREAM, POOL, NUMBER = 5, 6, 7
# A block of a segment has KEY = stream << 44 | size and ORDER = number of the segment << 32 | offset in it / 512.
STREAM_BIT, SIZE_MASK, NUMBER_BIT = 44, (1 << 44) - 1, 32

PAGED, SEGMENTS, MAX_SEGMENTS, NUMBERS = range(arena.EXTRA, arena.EXTRA + 4)
SMALL = arena.INDEX + fits.WORDS   # the pools: indices of free blocks
LARGE = SMALL + bins.WORDS
LIST = LARGE + bins.WORDS          # device calls of the latest verb


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    # More segments than this are a device out of handles; it takes an endless capacity to get there.
    segments = min(capacity // SMALL_SEGMENT, 4 * n_units + 65536) + 1
    index = LIST - arena.INDEX + 2 * (segments + 1)
    S = arena.new(capacity, n_units, 2 * max_live + 3 * segments, index, SMALL_SEGMENT, SMALL_SEGMENT)
    S[CALL_LIST], S[MAX_CALLS], S[MAX_SEGMENTS], S[PAGED] = LIST, segments + 1, segments, int(params[0])
    return S


@helper
def size_of(S: I64, p: int) -> int:
    return S[p + KEY] & SIZE_MASK


@helper
def pool_of(size: int) -> int:
    return SMALL if size <= SMALL_SIZE else LARGE


@helper
def segment_size(size: int) -> int:
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return (size + OWN_ROUNDING - 1) // OWN_ROUNDING * OWN_ROUNDING


@helper
def following(S: I64, pool: int, stream: int, size: int, order: int) -> int:
    """The stream's first free block that is not before (size, order), or 0."""
    b = bins.bin_of(size)
    start = stream << STREAM_BIT
    p = bins.at_least(S, pool + ROOTS + b, start | size, order)
    while p == 0 or S[p + KEY] >> STREAM_BIT != stream:
        b = bins.next_bin(S, pool, b + 1)
        if b < 0:
            return 0
        p = bins.at_least(S, pool + ROOTS + b, start, -1)
    return p


@helper
def next_stream(S: I64, pool: int, stream: int) -> int:
    """The lowest stream from `stream` on that has a free block in the pool, or -1."""
    found = -1
    b = bins.next_bin(S, pool, 0)
    while b >= 0:
        p = bins.at_least(S, pool + ROOTS + b, stream << STREAM_BIT, -1)
        if p != 0 and (found < 0 or S[p + KEY] >> STREAM_BIT < found):
            found = S[p + KEY] >> STREAM_BIT
        b = bins.next_bin(S, pool, b + 1)
    return found


# --- segments ---------------------------------------------------------------------------------------------------------


@helper
def called(S: I64, addr: int, size: int) -> None:
    """A device call, for the list; `size` is negative when memory is given back."""
    at = LIST + 2 * S[CALLS]
    S[at] = addr
    S[at + 1] = size
    S[CALLS] += 1
    S[HELD] += size


@helper
def new_segment(S: I64, stream: int, pool: int, size: int) -> int:
    """The block, marked as in use, that is a whole new segment of this size; 0 when the device refuses."""
    if S[HELD] + size > S[CAPACITY] or S[SEGMENTS] == S[MAX_SEGMENTS]:
        return 0
    r = fits.lowest(S, size)
    if r == 0:
        if arena.room(S) < size and S[PAGED] == 0:
            return 0
        r = arena.cut_tail(S, size)
    elif arena.within(S, r, size) or S[PAGED] != 0:
        r = arena.cut(S, r, size, fits.drop, fits.moved)
    else:
        return 0
    S[r + STREAM], S[r + POOL], S[r + NUMBER] = stream, pool, S[NUMBERS]
    S[NUMBERS] += 1
    S[SEGMENTS] += 1
    called(S, S[r + ADDR], size)
    p = arena.take_node(S)
    S[p + ADDR] = S[r + ADDR]
    S[p + KEY] = stream << STREAM_BIT | size
    S[p + ORDER] = S[r + NUMBER] << NUMBER_BIT
    S[p + PREV] = 0
    S[p + NEXT] = 0
    S[p + LEFT] = LIVE
    S[p + OWNER] = r
    return p


@helper
def release_cache(S: I64) -> None:
    """Give back the segments that are one free block: of the large pool, then of the small one, in the pool's order."""
    pool, stream, size, order = LARGE, 0, 0, -1
    while True:
        p = following(S, pool, stream, size, order)
        if p != 0:
            size, order = size_of(S, p), S[p + ORDER] + 1
            if S[p + PREV] == 0 and S[p + NEXT] == 0:
                bins.drop(S, pool, p, size)
                called(S, S[p + ADDR], -size)
                S[SEGMENTS] -= 1
                arena.give_back(S, S[p + OWNER], fits.add, fits.drop, fits.moved)
                arena.give_node(S, p)
            continue
        stream, size, order = next_stream(S, pool, stream + 1), 0, -1
        if stream < 0:
            if pool == SMALL:
                return
            pool, stream = SMALL, 0


# --- blocks -----------------------------------------------------------------------------------------------------------


@helper
def split(S: I64, p: int, need: int) -> int:
    """The front of block p, which is in no pool, as a block of its own; p becomes the free rest."""
    stream = S[p + KEY] >> STREAM_BIT
    rest = size_of(S, p) - need
    prev = S[p + PREV]
    q = arena.take_node(S)
    S[q + ADDR] = S[p + ADDR]
    S[q + KEY] = stream << STREAM_BIT | need
    S[q + ORDER] = S[p + ORDER]
    S[q + PREV] = prev
    S[q + NEXT] = p
    S[q + LEFT] = LIVE
    S[q + OWNER] = S[p + OWNER]
    if prev != 0:
        S[prev + NEXT] = q
    S[p + PREV] = q
    S[p + ADDR] += need
    S[p + ORDER] += need // UNIT
    S[p + KEY] = stream << STREAM_BIT | rest
    bins.add(S, S[S[p + OWNER] + POOL], p, rest)
    return q


@helper
def absorb(S: I64, p: int, q: int, pool: int) -> None:
    """Free block q, the neighbour after or before p, becomes a part of p."""
    bins.drop(S, pool, q, size_of(S, q))
    S[p + KEY] += size_of(S, q)
    if S[p + NEXT] == q:
        after = S[q + NEXT]
        S[p + NEXT] = after
        if after != 0:
            S[after + PREV] = p
    else:
        prev = S[q + PREV]
        S[p + ADDR] = S[q + ADDR]
        S[p + ORDER] = S[q + ORDER]
        S[p + PREV] = prev
        if prev != 0:
            S[prev + NEXT] = p
    arena.give_node(S, q)


# --- verbs ------------------------------------------------------------------------------------------------------------


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > SIZE_MASK - LARGE_SEGMENT:
        return -1
    need = (size + UNIT - 1) // UNIT * UNIT
    pool = pool_of(need)
    p = following(S, pool, stream, need, -1)
    if p != 0:
        bins.drop(S, pool, p, size_of(S, p))
        S[p + LEFT] = LIVE
    else:
        for attempt in range(2):
            p = new_segment(S, stream, pool, segment_size(need))
            if p != 0:
                break
            if attempt == 0:
                release_cache(S)
        if p == 0:
            return -1
    rest = size_of(S, p) - need
    if rest >= UNIT if pool == SMALL else rest > SMALL_SIZE:
        p = split(S, p, need)
    block = size_of(S, p)
    S[S[arena.UNITS] + unit] = p
    S[ROUNDED] += block
    S[BLOCK] = block
    return S[p + ADDR]


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = 0
    at = S[arena.UNITS] + unit
    p = S[at]
    if p == 0:
        return 0
    S[at] = 0
    S[ROUNDED] -= size_of(S, p)
    pool = S[S[p + OWNER] + POOL]
    if arena.is_free(S, S[p + PREV]):
        absorb(S, p, S[p + PREV], pool)
    if arena.is_free(S, S[p + NEXT]):
        absorb(S, p, S[p + NEXT], pool)
    bins.add(S, pool, p, size_of(S, p))
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    S[CALLS] = 0
    held = S[HELD]
    release_cache(S)
    return held - S[HELD]


@helper
def largest_in(S: I64, pool: int) -> int:
    """Size of the pool's largest free block, whatever its stream; 0 when there is none."""
    b = bins.last_bin(S, pool)
    if b < 0:
        return 0
    found, p = 0, bins.last(S, pool + ROOTS + b)
    while p != 0:  # the largest of each stream
        found = max(found, size_of(S, p))
        p = bins.below(S, pool + ROOTS + b, S[p + KEY] >> STREAM_BIT << STREAM_BIT)
    return found


@verb(LARGEST)
def largest(S: I64) -> int:
    found = largest_in(S, LARGE)
    return found if found > 0 else min(largest_in(S, SMALL), SMALL_SIZE)
