"""The driver's stream-ordered pool (cudaMallocAsync), as far as it is known: segments of whole pages, reuse by stream.

How the driver places blocks is not published; this is a model with parameters to calibrate.  A request takes the smallest
free chunk that is large enough among those freed on its own stream and those whose work has completed, else among those
freed on other streams (the driver inserts a dependency), else a new segment of whole pages.  When the device refuses, the
driver waits for all work, gives unused memory back and asks again: estimated.

An allocator hears of no completed work by itself: command SYNC tells of a synchronisation.  Only then memory freed on other
streams counts as completed, and what is held above the threshold is given back.  Events between streams are not told, so the
driver's third way of reuse across streams, to follow a dependency that an event has made, is counted as an inserted one.

page           bytes that segments are multiples of: estimated (32 MiB is what people see; the driver maps 2 MiB or more)
threshold      bytes kept at a synchronisation (cudaMemPoolAttrReleaseThreshold): published, 0 by default
remap          1: single pages of 2 MiB that are unused can be given back and mapped elsewhere; 0: only wholly unused
               segments: estimated, after reports of refusals with a third of the pool idle
opportunistic  1: other streams use what has completed (cudaMemPoolReuseAllowOpportunistic): published, 1 by default
dependencies   1: other streams use the rest too, and wait (cudaMemPoolReuseAllowInternalDependencies): published, 1 by
               default
align          bytes that addresses and sizes are multiples of: estimated

Source: CUDA C++ Programming Guide, "Stream Ordered Memory Allocator"; CUDA Runtime API, memory pools; the reports are
rapidsai/rmm #1245 and pytorch/pytorch #110194.
"""

from __future__ import annotations

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, COMMAND, FREE, HELD, LARGEST, RELEASE
from gpusim.policies.place.parts import arena, bins, chunks
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, KEY, PREV
from gpusim.policies.place.parts.chunks import LAST_CHUNK, STREAM_BIT, size_of, stream_of
from gpusim.policies.place.parts.driver_memory import PAGE

PARAMS = {"page": 33554432, "threshold": 0, "remap": 0, "opportunistic": 1, "dependencies": 1, "align": 512}
LIMITS = {"remap": 1, "opportunistic": 1, "dependencies": 1}

# Commands: (SYNC, stream or -1 for all), (TRIM, bytes to keep), (THRESHOLD, bytes).
SYNC, TRIM, THRESHOLD = range(3)

# A chunk's stream is that of its latest use, plus one; 0 when that has completed.
COMPLETED = 0
ALL, NONE = -1, -2  # of the streams that were just synchronised
MAX_STREAMS = 256  # streams beyond them wait for a synchronisation before others use their memory
SEGMENT, KEEP, REMAP, SHARES, WAITS, FULL, STREAMS = range(device.END, device.END + 7)
SEEN = STREAMS + 1
CHUNKS = SEEN + MAX_STREAMS     # free chunks
DONE = CHUNKS + bins.WORDS      # those that are completed
WORDS = DONE + bins.WORDS - device.END


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    for name, value in zip(("page", "align"), (params[0], params[5]), strict=True):
        if value < 1:
            raise PolicyError(f"parameter '{name}' of policy 'cuda_async' is {value:g} bytes", hint="at least 1")
    segments = min(capacity // PAGE, 4 * n_units + 65536) + 1
    nodes = 8 * max_live + 8 * segments + 64
    S = device.new(capacity, n_units, nodes, WORDS, device.LOWEST, 4 * max_live + 2 * segments)
    S[FULL] = len(S) - arena.NODE * (4 * segments + 64)  # the rest is for remapping, which cuts segments
    S[SEGMENT], S[KEEP], S[REMAP] = max(1, -(-int(params[0]) // PAGE)) * PAGE, params[1], params[2]
    S[SHARES], S[WAITS], S[arena.ALIGN] = params[3], params[4], max(1, int(params[5]))
    return S


@helper
def index_of(stream: int) -> int:
    return DONE if stream == COMPLETED else CHUNKS


# --- giving back ------------------------------------------------------------------------------------------------------


@helper
def complete(S: I64, stream: int) -> None:
    """What was freed on the stream (plus one) has completed."""
    while True:
        p = chunks.largest_of(S, CHUNKS, stream)
        if p == 0:
            return
        chunks.drop(S, CHUNKS, p)
        S[p + KEY] = COMPLETED << STREAM_BIT | size_of(S, p)
        chunks.insert(S, DONE, p)


@helper
def complete_all(S: I64) -> None:
    for i in range(S[STREAMS]):
        complete(S, S[SEEN + i])


@helper
def is_full(S: I64) -> bool:
    """So many chunks of different streams lie side by side that the table has no room for more."""
    return S[arena.SPARE] == 0 and S[arena.FRESH] > S[FULL]


@helper
def unused(S: I64, p: int, done: int) -> bool:
    """Chunk p is free, and the work on it is done: of stream `done` (plus one) all is."""
    return chunks.is_free(S, p) and (done == ALL or stream_of(S, p) == COMPLETED or stream_of(S, p) == done)


@helper
def unused_from(S: I64, p: int, done: int) -> bool:
    """Chunk p and all before it in its segment are unused."""
    while p != 0 and unused(S, p, done):
        p = S[p + PREV]
    return p == 0


@helper
def trim(S: I64, keep: int, done: int) -> None:
    """Give back unused memory, by address, until no more than `keep` bytes are held."""
    r = chunks.first_segment(S)
    while r != 0 and S[HELD] > keep:
        after = chunks.following(S, r)
        p = S[r + LAST_CHUNK]
        if S[REMAP] != 0:
            while p != 0 and r != 0 and S[HELD] > keep:
                before = S[p + PREV]
                if unused(S, p, done):
                    r = chunks.unmap(S, index_of(stream_of(S, p)), r, p)
                p = before
        elif unused_from(S, p, done):
            while p != 0:
                before = S[p + PREV]
                chunks.drop(S, index_of(stream_of(S, p)), p)
                arena.give_node(S, p)
                p = before
            device.give(S, r, S[r + device.SIZE])
        r = after


@helper
def sync(S: I64, done: int, keep: int) -> None:
    if S[SHARES] != 0:
        if done == ALL:
            complete_all(S)
        else:
            complete(S, done)
    trim(S, keep, done)


# --- finding ----------------------------------------------------------------------------------------------------------


@helper
def seen(S: I64, stream: int) -> None:
    for i in range(S[STREAMS]):
        if S[SEEN + i] == stream:
            return
    if S[STREAMS] < MAX_STREAMS:
        S[SEEN + S[STREAMS]] = stream
        S[STREAMS] += 1


@helper
def better(S: I64, p: int, q: int) -> int:
    """The smaller of two chunks, the lower address among equal ones; 0 is none."""
    if p == 0 or q == 0:
        return p + q
    if size_of(S, p) != size_of(S, q):
        return p if size_of(S, p) < size_of(S, q) else q
    return p if S[p + ADDR] < S[q + ADDR] else q


@helper
def find(S: I64, stream: int, need: int) -> int:
    p = better(S, chunks.smallest(S, CHUNKS, stream, need), bins.smallest(S, DONE, need))
    if p == 0 and S[WAITS] != 0:
        for i in range(S[STREAMS]):
            if S[SEEN + i] != stream:
                p = better(S, p, chunks.smallest(S, CHUNKS, S[SEEN + i], need))
    if p != 0:
        chunks.drop(S, index_of(stream_of(S, p)), p)
    return p


@helper
def grow(S: I64, stream: int, need: int) -> int:
    """The live chunk that is a new segment, or 0."""
    size = (need + S[SEGMENT] - 1) // S[SEGMENT] * S[SEGMENT]
    r = device.take(S, size)
    if r == 0:
        sync(S, ALL, max(0, S[HELD] - size + device.idle(S)))
        r = device.take(S, size)
    if r == 0:
        return 0
    return chunks.whole(S, r, size, stream)


# --- verbs ------------------------------------------------------------------------------------------------------------


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > chunks.SIZE_MASK >> 1:
        return -1
    if is_full(S):
        complete_all(S)
    need, mine = arena.rounded(S, size), stream + 1
    seen(S, mine)
    p = find(S, mine, need)
    if p == 0:
        p = grow(S, mine, need)
        if p == 0:
            return -1
    if size_of(S, p) > need:
        q = chunks.split(S, p, need)
        chunks.put(S, index_of(stream_of(S, p)), p)
        p = q
    S[p + KEY] = mine << STREAM_BIT | need
    return chunks.hand(S, unit, p)


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = 0
    p = chunks.taken(S, unit)
    if p != 0:
        seen(S, stream + 1)
        S[p + KEY] = (stream + 1) << STREAM_BIT | size_of(S, p)
        chunks.insert(S, CHUNKS, p)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    """A synchronisation of the device, and then all unused memory is given back."""
    S[CALLS] = 0
    held = S[HELD]
    sync(S, ALL, 0)
    return held - S[HELD]


@verb(COMMAND)
def command(S: I64, code: int, a: int, b: int) -> int:
    S[CALLS] = 0
    if code == SYNC:
        sync(S, ALL if a < 0 else a + 1, S[KEEP])
    elif code == TRIM:
        trim(S, a, NONE)
    elif code == THRESHOLD:
        S[KEEP] = a
    return 0


@verb(LARGEST)
def largest(S: I64) -> int:
    return max(chunks.largest(S, CHUNKS), chunks.largest(S, DONE))
