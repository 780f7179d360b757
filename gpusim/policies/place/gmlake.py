"""GMLake: PyTorch's caching allocator, with large free chunks stitched to one range of addresses when none is large enough.

Requests round up to 512 bytes, above 1 MiB to 2 MiB.  Segments are PyTorch's: of 2 MiB for requests up to 1 MiB, of 20 MiB
below 10 MiB, then of the request's size.  A request gets the first that there is of: the smallest free chunk of its stream
that is large enough (split when 2 MiB remain, in the small pool 512 bytes); the smallest idle stitch that is large enough, of
which the pieces that are not needed stay free; a new stitch of free chunks, from the largest down; a new segment; and again
once all wholly free segments have been given back.

The address of a stitched block is a range of its own, above all segments; memory that is held counts once.  The books have
memory at the address where it is in use, so a stitch that is used or freed makes device calls; only the mapping of a new one
is paid for.  Using and freeing a stitch takes time in proportion to its parts.

frag_limit    bytes from which requests may be stitched; GMLake's example uses 256 MiB
reuse_limit   a stitch is used again for requests down to 1/reuse_limit of its size
defrag_level  0: stitch before the device is asked; 1: once it has refused; 2: and all wholly free segments were given back
auto_gc       GiB of stitches ever made beyond which all idle ones are dropped

Source: C. Guo et al., "GMLake: efficient and transparent GPU memory defragmentation for large-scale DNN training with virtual
memory stitching", ASPLOS 2024; GMLake/src/CUDACachingAllocator.cpp of github.com/intelligent-machine-learning/glake.
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, BLOCK, CALLS, FREE, HELD, LARGEST, MOVES, RELEASE, ROUNDED
from gpusim.policies.place.parts import arena, bins, chunks
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR
from gpusim.policies.place.parts.chunks import LAST_CHUNK, size_of
from gpusim.policies.place.parts.gmlake import stitches
from gpusim.policies.place.parts.gmlake.stitches import (
    AUTO_GC,
    FRAG_LIMIT,
    FREE_LARGE,
    LARGE,
    LEVEL,
    MAX_SEGMENTS,
    PARTS,
    REUSE_LIMIT,
    SEGMENTS,
    SMALL,
    SPARE_PARTS,
    STITCHES,
    STREAM,
    mark,
)

PARAMS = {"frag_limit": 536870912, "reuse_limit": 10.0, "defrag_level": 0, "auto_gc": 1000}

UNIT, PIECE, SMALL_SIZE = 512, 2 << 20, 1 << 20
SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT = 2 << 20, 20 << 20, 10 << 20
MAX_PARTS = 1 << 16  # beyond this many parts at once, idle stitches are dropped as if auto_gc had been reached
SEVERAL = -2         # of STREAM, which is the only stream so far, or -1


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    # More segments than this are a device out of handles; it takes an endless capacity to get there.
    segments = min(capacity // PIECE, 4 * n_units + 65536) + 1
    nodes = 2 * max_live + 4 * segments + 6 * MAX_PARTS
    S = device.new(capacity, n_units, nodes, stitches.WORDS, device.LOWEST, segments + MAX_PARTS + 2)
    S[FRAG_LIMIT], S[REUSE_LIMIT], S[LEVEL] = params[0], round(1000 * params[1]), params[2]
    S[AUTO_GC], S[SPARE_PARTS], S[MAX_SEGMENTS], S[STREAM] = int(params[3]) << 30, MAX_PARTS, segments, -1
    return S


@helper
def rounded(size: int) -> int:
    unit = UNIT if size <= SMALL_SIZE else PIECE
    return (size + unit - 1) // unit * unit


@helper
def segment_size(need: int) -> int:
    if need <= SMALL_SIZE:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if need < OWN_SEGMENT else need


@helper
def new_segment(S: I64, stream: int, need: int) -> int:
    """The live chunk that is a new segment, or 0 when the device refuses."""
    if S[SEGMENTS] == S[MAX_SEGMENTS]:
        return 0
    size = segment_size(need)
    r = device.take(S, size)
    if r == 0:
        return 0
    p = chunks.whole(S, r, size, stream)
    S[r + PARTS] = 0
    S[SEGMENTS] += 1
    if need > SMALL_SIZE:
        S[FREE_LARGE] += size
    return p


@helper
def pool_of(S: I64, segment: int) -> int:
    return SMALL if S[segment + device.SIZE] == SMALL_SEGMENT else LARGE


@helper
def give_free_segments(S: I64) -> None:
    """Give the segments that are one free chunk back to the device, by address."""
    r = chunks.first_segment(S)
    while r != 0:
        after = chunks.following(S, r)
        p = S[r + LAST_CHUNK]
        if chunks.is_free(S, p) and chunks.alone(S, p):
            pool, size = pool_of(S, r), size_of(S, p)
            stitches.forget_segment(S, r)
            chunks.drop(S, pool, p)
            arena.give_node(S, p)
            if pool == LARGE:
                S[FREE_LARGE] -= size
            S[SEGMENTS] -= 1
            device.give(S, r, size)
        r = after


@helper
def give_stitch(S: I64, unit: int, stitch: int) -> int:
    used = S[S[stitch + bins.OWNER] + stitches.USED]
    S[S[arena.UNITS] + unit] = -stitch
    S[ROUNDED] += used
    S[BLOCK] = used
    return S[stitch + ADDR]


# --- verbs ------------------------------------------------------------------------------------------------------------


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = S[MOVES] = 0
    if size == 0:
        return arena.nothing(S)
    if size > chunks.SIZE_MASK >> 1:
        return -1
    if S[STREAM] != stream:
        S[STREAM] = stream if S[STREAM] == -1 else SEVERAL
    need = rounded(size)
    pool = SMALL if need <= SMALL_SIZE else LARGE
    level = S[LEVEL] if pool == LARGE else 9
    p, stitch = chunks.smallest(S, pool, stream, need), 0
    if p != 0:
        chunks.drop(S, pool, p)
    elif pool == LARGE:
        stitch = stitches.reuse(S, stream, need)
    for time in range(3):
        if p != 0 or stitch != 0:
            break
        if time == 2:
            give_free_segments(S)
        if time > 0:
            p = new_segment(S, stream, need)
        if p == 0 and time >= level:
            stitch = stitches.stitch(S, stream, need)
    if stitch != 0:
        return give_stitch(S, unit, stitch)
    if p == 0:
        return -1
    rest = size_of(S, p) - need
    if rest >= UNIT if pool == SMALL else rest >= PIECE:
        q = chunks.split(S, p, need)
        chunks.put(S, pool, p)
        p = q
    if pool == LARGE:
        mark(S, S[p + bins.OWNER], S[p + ADDR], -size_of(S, p))
    return chunks.hand(S, unit, p)


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = S[MOVES] = 0
    at = S[arena.UNITS] + unit
    if S[at] < 0:
        stitch = -S[at]
        S[at] = 0
        S[ROUNDED] -= S[S[stitch + bins.OWNER] + stitches.USED]
        stitches.give(S, stitch)
        return 0
    p = chunks.taken(S, unit)
    if p != 0:
        segment, addr, size = S[p + bins.OWNER], S[p + ADDR], size_of(S, p)
        pool = pool_of(S, segment)
        chunks.insert(S, pool, p)
        if pool == LARGE:
            mark(S, segment, addr, size)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    """What empty_cache does: wholly free segments go back, and all idle stitches are dropped."""
    S[CALLS] = S[MOVES] = 0
    held = S[HELD]
    give_free_segments(S)
    stitches.drop_idle(S)
    return held - S[HELD]


@verb(LARGEST)
def largest(S: I64) -> int:
    """Of a program with one stream also what could be stitched."""
    found = max(chunks.largest(S, LARGE), chunks.largest(S, STITCHES))
    if S[STREAM] != SEVERAL and S[LEVEL] == 0 and S[FREE_LARGE] >= S[FRAG_LIMIT]:
        found = S[FREE_LARGE]
    return found if found > 0 else min(chunks.largest(S, SMALL), SMALL_SIZE)
