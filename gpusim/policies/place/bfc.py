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
contiguous              1: a region needs one free range below the capacity, as on a device without virtual memory

Source: xla/tsl/framework/bfc_allocator.cc and xla/pjrt/gpu/gpu_helpers.cc, OpenXLA; checked against the library of
TensorFlow 2.21.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, CAPACITY, FREE, HELD, LARGEST, RELEASE
from gpusim.policies.place.parts import arena, bins, chunks
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, LEFT, LIVE, NEXT, PREV
from gpusim.policies.place.parts.chunks import LAST_CHUNK, size_of
from gpusim.policies.place.parts.driver_memory import CONTIGUOUS, LOWEST, OWN, PAGE

PARAMS = {
    "fraction": 1.0, "allow_growth": 1, "garbage_collection": 1, "coalesce_regions": 0, "fragmentation_fraction": 0.0,
    "contiguous": 0,
}  # fmt: skip

UNIT = 256
MAX_WASTE = 128 << 20
MAX_REGIONS = 1024       # they double, so a device has a few dozen
ENDLESS = 1 << 61
PART = 10**9             # shares are kept in billionths, so that sizes follow from them without rounding

BYTES = OWN + 1          # word of a region
FRACTION, GROWTH, COLLECT, JOIN, WASTE, REGION, FREE_REGIONS, REGIONS, CHUNKS = range(device.END, device.END + 9)
WORDS = 8 + bins.WORDS


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    choice = CONTIGUOUS if params[5] else LOWEST
    S = device.new(capacity, n_units, 2 * max_live + 4 * MAX_REGIONS, WORDS, choice, MAX_REGIONS + 1)
    S[FRACTION], S[WASTE] = round(params[0] * PART), round(params[4] * PART)
    S[GROWTH], S[COLLECT], S[JOIN] = params[1], params[2], params[3]
    return S


@helper
def rounded(size: int) -> int:
    return (size + UNIT - 1) // UNIT * UNIT


@helper
def share(part: int, of: int) -> int:
    """part / PART of it, rounded down."""
    return of // PART * part + of % PART * part // PART


@helper
def limit(S: I64) -> int:
    """Bytes that may be held."""
    capacity = S[CAPACITY]
    return capacity if S[FRACTION] == PART else min(capacity, device.paged(share(S[FRACTION], capacity)))


@helper
def first_region(S: I64) -> int:
    """Bytes that growth begins with."""
    most = limit(S)
    return max(UNIT, rounded(min(most, PAGE) if S[GROWTH] != 0 else most))


# --- regions ----------------------------------------------------------------------------------------------------------


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
    if S[REGION] == 0:
        S[REGION] = first_region(S)
    enough = S[REGION] >= need
    while S[REGION] < need:
        S[REGION] *= 2
    size = min(S[REGION], room)
    r = device.take(S, size)
    while r == 0:
        size = less(size)
        if size < need:
            return False
        r = device.take(S, size)
    if enough:
        S[REGION] = min(2 * S[REGION], ENDLESS)
    p = chunks.whole(S, r, size, 0)
    before = S[r + PREV]
    if S[JOIN] != 0 and before != 0 and S[before + LEFT] == LIVE and S[before + ADDR] + S[before + BYTES] == S[r + ADDR]:
        join(S, before, r, p)
    else:
        S[r + BYTES] = size
        S[REGIONS] += 1
    give(S, p)
    return True


@helper
def join(S: I64, before: int, r: int, p: int) -> None:
    """Region r, of which p is the only chunk, becomes a part of the one before it."""
    last = S[before + LAST_CHUNK]
    if chunks.is_free(S, last) and S[last + PREV] == 0:
        S[FREE_REGIONS] -= S[before + BYTES]
    S[before + device.SIZE] += S[r + device.SIZE]
    S[before + BYTES] += size_of(S, p)
    S[before + LAST_CHUNK] = p
    S[p + PREV] = last
    S[last + NEXT] = p
    arena.unlink(S, r)


@helper
def give_free_regions(S: I64) -> None:
    """Give the regions without a live chunk back to the device, by address."""
    r = chunks.first_segment(S)
    while r != 0 and S[FREE_REGIONS] > 0:
        after = chunks.following(S, r)
        last = S[r + LAST_CHUNK]
        if chunks.is_free(S, last) and S[last + PREV] == 0:
            chunks.drop(S, CHUNKS, last)
            arena.give_node(S, last)
            S[FREE_REGIONS] -= S[r + BYTES]
            S[REGIONS] -= 1
            device.give(S, r, S[r + BYTES])
        r = after


@helper
def give(S: I64, p: int) -> None:
    """Live chunk p becomes free."""
    p = chunks.insert(S, CHUNKS, p)
    if chunks.alone(S, p):
        S[FREE_REGIONS] += size_of(S, p)


# --- verbs ------------------------------------------------------------------------------------------------------------


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > S[CAPACITY]:
        return -1
    need = rounded(size)
    p = bins.smallest(S, CHUNKS, need)
    for attempt in range(2):
        if p != 0:
            break
        if attempt == 1:
            free_bytes = S[FREE_REGIONS]
            if S[COLLECT] == 0 or free_bytes == 0 or need > limit(S) - S[HELD] + free_bytes:
                break
            give_free_regions(S)
        if extend(S, need):
            p = bins.smallest(S, CHUNKS, need)
    if p == 0:
        return -1
    chunks.drop(S, CHUNKS, p)
    block = size_of(S, p)
    if chunks.alone(S, p):
        S[FREE_REGIONS] -= block
    waste = MAX_WASTE if S[WASTE] == 0 else share(S[WASTE], limit(S))
    if block >= 2 * need or block - need >= waste:
        q = chunks.split(S, p, need)
        chunks.put(S, CHUNKS, p)
        p = q
    return chunks.hand(S, unit, p)


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = 0
    p = chunks.taken(S, unit)
    if p != 0:
        give(S, p)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    """Wholly free regions go back; once nothing is held, growth begins anew."""
    S[CALLS] = 0
    held = S[HELD]
    give_free_regions(S)
    if S[HELD] == 0:
        S[REGION] = 0
    return held - S[HELD]


@verb(LARGEST)
def largest(S: I64) -> int:
    return chunks.largest(S, CHUNKS)
