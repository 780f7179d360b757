"""The table of the allocator: which word is what.

    header | arena | device | settings | counters | streams | pools ... | device calls | units | nodes ...

All records are nodes of 8 words, made and given back by the arena.

A block: ADDR, KEY = stream << 44 | size, its neighbours PREV and NEXT in the segment, ORDER (pools.py), OWNER = segment.
    free       LEFT, RIGHT  its place in the pool's order
    in use     LEFT         USED - streams that it was used on (a bit each); once freed: USED - events it waits for
               RIGHT        bytes requested
    unmapped   KEY          UNMAPPED + (stream << 44 | address in MiB): negative; LEFT, RIGHT as a free one's

A segment is a device's (device.py), with words of its own: when it was last put into a pool, its pool, its number.  In LEFT
a reserved range has the size of its pages, negative.
"""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import bins
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, KEY, LEFT, LIVE, NEXT, OWNER, PREV

K, MIB = 512, 1 << 20
SMALL_SIZE, SMALL_SEGMENT, OWN_SEGMENT, OWN_ROUNDING = MIB, 2 * MIB, 10 * MIB, 2 * MIB
NEVER = 1 << 62    # a size that nothing reaches

STREAM_BIT, SIZE_MASK = 44, (1 << 44) - 1
UNMAPPED = -(1 << 62)
USED = LIVE        # LEFT of a block that is in use, used on no other stream, waiting for nothing
AGE, POOL, NUMBER = device.OWN, device.OWN + 1, device.OWN + 2   # of a segment
PAGES = LEFT                                                     # LIVE, or the negative size of a range's pages

# Settings (rules.py); THRESHOLD is in 1/10^15.  LIMIT: bytes that may be held, NEVER: no limit.
(
    RULE, TOTAL, MAX_SPLIT, MAX_ROUNDING, LARGE_SEGMENT, THRESHOLD, LIMIT, EXPANDABLE, THROW, RESERVE, DIVIDED,
) = range(device.END, device.END + 11)  # fmt: skip
DIVISIONS = DIVIDED + 1   # 16 words
SCALE = 10**15

# What is counted, and how many there are: segments so far, block objects so far (2.12), ranges, pools being routed to,
# blocks whose free is put off or whose events are waited for, room for such, lists of them, pools that serve when memory is
# out, the listener (events.py), the block from which a recorded heap goes on, where the next request goes and the size of its
# block (restore.py).
(
    NUMBERS, OBJECTS, RANGES, ROUTED, WAITING, MAX_WAITING, DEFERRED, CAPTURED, SPARES, LISTENING, HEARD, MAX_HEARD,
    LAID, AIM, AIMED,
) = range(DIVISIONS + 16, DIVISIONS + 31)  # fmt: skip

# Statistics of the small side, of the large side, of both: (current, peak, increases, current at the latest reset) each.
KINDS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
(
    ALLOCATION, SEGMENT, ACTIVE, INACTIVE_SPLIT, ALLOCATED_BYTES, RESERVED_BYTES, ACTIVE_BYTES, INACTIVE_SPLIT_BYTES,
    REQUESTED_BYTES,
) = range(0, 36, 4)  # fmt: skip
CURRENT, PEAK, RAISED, BASE = range(4)
ALL_STATS = AIMED + 1
SMALL_STATS, LARGE_STATS, OVERSIZE_ALLOCATIONS = ALL_STATS + 36, ALL_STATS + 72, ALL_STATS + 108
OVERSIZE_SEGMENTS = OVERSIZE_ALLOCATIONS + 4
COUNTERS = (
    "num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "num_oom_rejections",
)  # fmt: skip
RETRIES, OOMS, SYNCS, DEVICE_ALLOCS, DEVICE_FREES, REJECTIONS = range(OVERSIZE_SEGMENTS + 4, OVERSIZE_SEGMENTS + 10)

# Streams that blocks of other streams were used on: how many, then a record each.  More than that share the last.
STREAMS = REJECTIONS + 1
FIRST_STREAM, MAX_STREAMS, STREAM_WORDS = STREAMS + 1, 60, 6
HANDLE, ISSUED, DONE, HELD_BACK, HEAD, TAIL = range(STREAM_WORDS)

# A pool: an index of its free blocks by size / 512 (bins.py), its unmapped ranges, searches so far, its statistics, the
# private pool it belongs to (0: none), whether its blocks are never split.
UNMAPPED_ROOT = bins.ROOTS + 32 * 32
SEARCHES, STATS, PRIVATE, NO_SPLIT = range(UNMAPPED_ROOT + 1, UNMAPPED_ROOT + 5)
POOL_WORDS = NO_SPLIT + 1
SMALL = FIRST_STREAM + MAX_STREAMS * STREAM_WORDS
LARGE = SMALL + POOL_WORDS

# Private pools: a stack of those that requests are routed to, then a record and two pools each.
MAX_PRIVATE = 32
ROUTES = LARGE + POOL_WORDS
FIRST_PRIVATE = ROUTES + MAX_PRIVATE
STATE, ID, HOLDERS, GROWN, OWNED, ON_OOM = range(6)
PRIVATE_SMALL = ON_OOM + 1
PRIVATE_LARGE = PRIVATE_SMALL + POOL_WORDS
PRIVATE_WORDS = PRIVATE_LARGE + POOL_WORDS
UNUSED, IN_USE, FREEABLE = range(3)

WORDS = FIRST_PRIVATE + MAX_PRIVATE * PRIVATE_WORDS - device.END

OLD, OBJECT_NUMBERS, SEGMENT_NUMBERS, SPLIT_AGAIN, RANGES_FIT = range(5)   # RULE: up to 2.11, 2.12, 2.13, 2.14, from 2.15 on
IDLE_RANGES = 256  # ranges that are reserved for requests too large for them, at most


@helper
def stream_of(S: I64, p: int) -> int:
    """Of a mapped block."""
    return S[p + KEY] >> STREAM_BIT


@helper
def size_of(S: I64, p: int) -> int:
    """Of a mapped block."""
    return S[p + KEY] & SIZE_MASK


@helper
def mapped(S: I64, p: int) -> bool:
    return S[p + KEY] >= 0


@helper
def extent(S: I64, p: int) -> int:
    """Size of any block; an unmapped one's is not stored."""
    if S[p + KEY] >= 0:
        return S[p + KEY] & SIZE_MASK
    after = S[p + NEXT]
    end = S[after + ADDR] if after != 0 else S[S[p + OWNER] + ADDR] + S[S[p + OWNER] + device.SIZE]
    return end - S[p + ADDR]


@helper
def pool_of(S: I64, p: int) -> int:
    return S[S[p + OWNER] + POOL]


@helper
def expandable(S: I64, p: int) -> bool:
    """The block lies in a reserved range."""
    return S[RANGES] != 0 and S[S[p + OWNER] + PAGES] != LIVE


@helper
def is_split(S: I64, p: int) -> bool:
    return S[p + PREV] != 0 or S[p + NEXT] != 0


@helper
def capturing(S: I64) -> bool:
    """Up to 2.12 any routing counts as the capture of a graph; since then only a real capture does, which is not modelled."""
    return S[ROUTED] != 0 and S[RULE] < SEGMENT_NUMBERS



def lay_out(S: I64) -> None:
    """The words of an empty table that are not 0."""
    S[SMALL + STATS], S[LARGE + STATS] = SMALL_STATS, LARGE_STATS
    for private in range(FIRST_PRIVATE, FIRST_PRIVATE + MAX_PRIVATE * PRIVATE_WORDS, PRIVATE_WORDS):
        for pool, stats in ((private + PRIVATE_SMALL, SMALL_STATS), (private + PRIVATE_LARGE, LARGE_STATS)):
            S[pool + STATS], S[pool + PRIVATE] = stats, private
