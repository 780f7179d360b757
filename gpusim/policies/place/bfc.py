"""TensorFlow's and JAX's best fit with coalescing: chunks of 256 bytes cut from a few regions that double in size.

The smallest free chunk that is large enough is taken, the lowest address among equal ones.  It is split only when it is
at least twice the request, or at least 128 MiB larger; otherwise the request gets all of it, up to half of it wasted.
A freed chunk merges with its free neighbours in the region.  Without a chunk the allocator grows by a region: of
2 MiB at first and twice the last one after each, never more than the limit leaves; when the device refuses, by nine
tenths of it, and again.  Without room for a region, regions without a live chunk are given back to make one of them.

The defaults are TensorFlow's with memory growth.  TensorFlow's own: bfc(allow_growth=0).  JAX:
bfc(fraction=0.75, allow_growth=0, garbage_collection=0), and bfc(fraction=0.75, garbage_collection=0) with its
preallocation turned off.

fraction                share of the device's memory that may be held, rounded up to 2 MiB when it is not all
allow_growth            1: regions double from 2 MiB; 0: one region of the whole limit, at the first request
garbage_collection      1: wholly free regions are given back when nothing else helps
coalesce_regions        1: a region that begins where another ends becomes a part of it
fragmentation_fraction  a chunk is also split when this share of the limit would be wasted; 0: 128 MiB

Source: xla/tsl/framework/bfc_allocator.cc and xla/pjrt/gpu/gpu_helpers.cc, OpenXLA; checked against the library of
TensorFlow 2.21.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies import arena, bins, fits
from gpusim.policies.arena import MIB2
from gpusim.policies.bins import ADDR, KEY, LEFT, LIVE, NEXT, ORDER, PREV
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

PARAMS = {
    "fraction": 1.0, "allow_growth": 1, "garbage_collection": 1, "coalesce_regions": 0, "fragmentation_fraction": 0.0,
}  # fmt: skip

UNIT = 256
MAX_WASTE = 128 << 20
MAX_REGIONS = 1024       # they double, so a device has a few dozen
ENDLESS = 1 << 61
PART = 10**9             # shares are kept in billionths, so that sizes follow from them without rounding

# The arena's blocks are the device's ranges.  One in use is a region; its last chunk is the same node for all its life,
# because the front of a split is a new node and of two chunks that merge the later one stays.
BYTES, LAST_CHUNK = 6, 7

FRACTION, GROWTH, COLLECT, JOIN, WASTE, REGION, FREE_REGIONS, REGIONS = range(arena.EXTRA, arena.EXTRA + 8)
FREE_CHUNKS = arena.INDEX + fits.WORDS
LIST = FREE_CHUNKS + bins.WORDS


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    index = LIST - arena.INDEX + 2 * (MAX_REGIONS + 1)
    S = arena.new(capacity, n_units, 2 * max_live + 4 * MAX_REGIONS, index, MIB2, MIB2)
    S[CALL_LIST], S[MAX_CALLS] = LIST, MAX_REGIONS + 1
    S[FRACTION], S[WASTE] = round(params[0] * PART), round(params[4] * PART)
    S[GROWTH], S[COLLECT], S[JOIN] = params[1], params[2], params[3]
    S[REGION] = first_region(S)
    return S


@helper
def rounded(size: int) -> int:
    return (size + UNIT - 1) // UNIT * UNIT


@helper
def share(part: int, whole: int) -> int:
    """part / PART of the whole, rounded down."""
    return whole // PART * part + whole % PART * part // PART


@helper
def limit(S: I64) -> int:
    """Bytes that may be held."""
    capacity = S[CAPACITY]
    if S[FRACTION] == PART:
        return capacity
    return min(capacity, (share(S[FRACTION], capacity) + MIB2 - 1) // MIB2 * MIB2)


@helper
def first_region(S: I64) -> int:
    most = limit(S)
    return max(UNIT, rounded(min(most, MIB2) if S[GROWTH] != 0 else most))


# --- regions ----------------------------------------------------------------------------------------------------------


@helper
def called(S: I64, addr: int, size: int) -> None:
    """A device call, for the list; `size` is negative when memory is given back."""
    at = LIST + 2 * S[CALLS]
    S[at] = addr
    S[at + 1] = size
    S[CALLS] += 1
    S[HELD] += size


@helper
def device_range(S: I64, size: int) -> int:
    """The lowest range of the device with room for `size` bytes, taken; 0 when there is none."""
    need = arena.rounded(S, size)
    r = fits.lowest(S, need)
    if r != 0:
        return arena.cut(S, r, need, fits.drop, fits.moved) if arena.within(S, r, need) else 0
    return arena.cut_tail(S, need) if arena.room(S) >= need else 0


@helper
def less(size: int) -> int:
    """What is asked for next when the device refuses `size`: 0.9 of it in single precision, rounded up."""
    return min(rounded(int(np.float32(size) * np.float32(0.9))), size - UNIT)


@helper
def extend(S: I64, need: int) -> bool:
    """Take a region with room for `need` bytes."""
    room = (limit(S) - S[HELD]) // UNIT * UNIT
    if need > room or S[REGIONS] == MAX_REGIONS:
        return False
    enough = S[REGION] >= need
    while S[REGION] < need:
        S[REGION] *= 2
    size = min(S[REGION], room)
    r = device_range(S, size)
    while r == 0:
        size = less(size)
        if size < need:
            return False
        r = device_range(S, size)
    if enough:
        S[REGION] = min(2 * S[REGION], ENDLESS)
    called(S, S[r + ADDR], size)
    p = arena.take_node(S)
    S[p + ADDR] = S[r + ADDR]
    S[p + KEY] = size
    S[p + PREV] = S[p + NEXT] = 0
    before = S[r + PREV]
    if S[JOIN] != 0 and before != 0 and S[before + LEFT] == LIVE and S[before + ADDR] + S[before + BYTES] == S[r + ADDR]:
        join(S, before, r, p)
    else:
        S[r + BYTES] = size
        S[r + LAST_CHUNK] = p
        S[REGIONS] += 1
    insert(S, p)
    return True


@helper
def join(S: I64, before: int, r: int, p: int) -> None:
    """Range r, of which p is the only chunk, becomes a part of the region before it."""
    last = S[before + LAST_CHUNK]
    if S[last + LEFT] != LIVE and S[last + PREV] == 0:
        S[FREE_REGIONS] -= S[before + BYTES]
    S[before + arena.SIZE] += S[r + arena.SIZE]
    S[before + BYTES] += S[p + KEY]
    S[before + LAST_CHUNK] = p
    S[p + PREV] = last
    S[last + NEXT] = p
    arena.unlink(S, r)


@helper
def give_free_regions(S: I64) -> None:
    """Give the regions without a live chunk back to the device, by address."""
    r = S[arena.LAST]
    while r != 0 and S[r + PREV] != 0:
        r = S[r + PREV]
    while r != 0 and S[FREE_REGIONS] > 0:
        after = S[r + NEXT]
        if arena.is_free(S, after):
            after = S[after + NEXT]  # a free range may go when its neighbour is freed, a region stays
        last = S[r + LAST_CHUNK]
        if S[r + LEFT] == LIVE and S[last + LEFT] != LIVE and S[last + PREV] == 0:
            bins.drop(S, FREE_CHUNKS, last, S[last + KEY])
            arena.give_node(S, last)
            called(S, S[r + ADDR], -S[r + BYTES])
            S[FREE_REGIONS] -= S[r + BYTES]
            S[REGIONS] -= 1
            arena.give_back(S, r, fits.add, fits.drop, fits.moved)
        r = after


# --- chunks -----------------------------------------------------------------------------------------------------------


@helper
def put(S: I64, p: int) -> None:
    S[p + ORDER] = S[p + ADDR]
    bins.add(S, FREE_CHUNKS, p, S[p + KEY])


@helper
def insert(S: I64, p: int) -> None:
    """Chunk p, in no bin, becomes free and one with its free neighbours."""
    after, prev = S[p + NEXT], S[p + PREV]
    if after != 0 and S[after + LEFT] != LIVE:
        bins.drop(S, FREE_CHUNKS, after, S[after + KEY])
        absorb(S, after, p)
        p = after
    if prev != 0 and S[prev + LEFT] != LIVE:
        bins.drop(S, FREE_CHUNKS, prev, S[prev + KEY])
        absorb(S, p, prev)
    if S[p + PREV] == 0 and S[p + NEXT] == 0:
        S[FREE_REGIONS] += S[p + KEY]
    put(S, p)


@helper
def absorb(S: I64, p: int, q: int) -> None:
    """Chunk q becomes the front of p, which follows it."""
    prev = S[q + PREV]
    S[p + ADDR] = S[q + ADDR]
    S[p + KEY] += S[q + KEY]
    S[p + PREV] = prev
    if prev != 0:
        S[prev + NEXT] = p
    arena.give_node(S, q)


@helper
def split(S: I64, p: int, need: int) -> int:
    """The front of free chunk p, which is in no bin, as a chunk of its own; the rest of p is free."""
    prev = S[p + PREV]
    q = arena.take_node(S)
    S[q + ADDR] = S[p + ADDR]
    S[q + KEY] = need
    S[q + PREV] = prev
    S[q + NEXT] = p
    if prev != 0:
        S[prev + NEXT] = q
    S[p + PREV] = q
    S[p + ADDR] += need
    S[p + KEY] -= need
    put(S, p)
    return q


# --- verbs ------------------------------------------------------------------------------------------------------------


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > S[CAPACITY]:
        return -1
    need = rounded(size)
    p = bins.smallest(S, FREE_CHUNKS, need)
    for attempt in range(2):
        if p != 0:
            break
        if attempt == 1:
            free_bytes = S[FREE_REGIONS]
            if S[COLLECT] == 0 or free_bytes == 0 or need > limit(S) - S[HELD] + free_bytes:
                break
            give_free_regions(S)
        if extend(S, need):
            p = bins.smallest(S, FREE_CHUNKS, need)
    if p == 0:
        return -1
    block = S[p + KEY]
    bins.drop(S, FREE_CHUNKS, p, block)
    if S[p + PREV] == 0 and S[p + NEXT] == 0:
        S[FREE_REGIONS] -= block
    waste = MAX_WASTE if S[WASTE] == 0 else share(S[WASTE], limit(S))
    if block >= 2 * need or block - need >= waste:
        p = split(S, p, need)
        block = need
    S[p + LEFT] = LIVE
    S[S[arena.UNITS] + unit] = p
    S[ROUNDED] += block
    S[BLOCK] = block
    return S[p + ADDR]


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p != 0:
        insert(S, p)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    """Wholly free regions go back; once nothing is held, growth begins anew."""
    S[CALLS] = 0
    held = S[HELD]
    give_free_regions(S)
    if S[HELD] == 0:
        S[REGION] = first_region(S)
    return held - S[HELD]


@verb(LARGEST)
def largest(S: I64) -> int:
    p = bins.largest(S, FREE_CHUNKS)
    return S[p + KEY] if p != 0 else 0
