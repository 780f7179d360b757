"""Finding a block for a request: in the pool, from the device, and then step by step by what can still be given up."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import HELD
from gpusim.policies.far import far
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import KEY, NEXT
from gpusim.policies.place.parts.pytorch import events, pools, segments
from gpusim.policies.place.parts.pytorch import expandable as ranges
from gpusim.policies.place.parts.pytorch import giving_back as cache
from gpusim.policies.place.parts.pytorch.layout import (
    EXPANDABLE,
    FIRST_PRIVATE,
    IN_USE,
    LIMIT,
    MAX_PRIVATE,
    MAX_ROUNDING,
    MAX_SPLIT,
    NEVER,
    ON_OOM,
    OOMS,
    PRIVATE_LARGE,
    PRIVATE_SMALL,
    PRIVATE_WORDS,
    RANGES,
    REJECTIONS,
    RETRIES,
    ROUTED,
    SEARCHES,
    SIZE_MASK,
    SMALL_SIZE,
    SPARES,
    STATE,
    THRESHOLD,
    THROW,
    TOTAL,
    capturing,
    size_of,
)
from gpusim.policies.place.parts.pytorch.rounding import segment_size

REJECTED = -1


@helper
def collects(S: I64) -> bool:
    """Garbage is collected, so pools count how often they are searched."""
    return S[THRESHOLD] != 0 and S[LIMIT] != NEVER


@helper
def search(S: I64, pool: int, stream: int, need: int, exactly: int) -> int:
    """The pool's block for a request, taken out of the pool; 0 when none is right.

    exactly: expandable segments are active for this request.
    """
    if collects(S):
        S[pool + SEARCHES] += 1
    p = pools.at_least(S, pool, stream, need) if need <= SIZE_MASK else 0
    if p == 0:
        return 0
    if S[RANGES] != 0:
        if exactly == 0:
            p = ranges.outside(S, pool, p)
            if p == 0:
                return 0
        elif S[p + NEXT] != 0 and S[S[p + NEXT] + KEY] < 0:
            p = ranges.least_reach(S, pool, p)
    size = size_of(S, p)
    if need < S[MAX_SPLIT]:
        if size >= S[MAX_SPLIT]:
            return 0
    elif size >= need + S[MAX_ROUNDING]:
        return 0
    pools.drop(S, pool, p)
    return p


@outlined
def new_block(S: I64, pool: int, stream: int, need: int) -> int:
    """From the device: a new segment, or a range that grows.  0: out of memory; REJECTED: not even asked."""
    size = segment_size(S, need)
    if S[LIMIT] != NEVER:
        if S[HELD] + size > S[LIMIT]:
            return 0
    elif S[THROW] != 0 and S[HELD] + size > S[TOTAL]:
        S[REJECTIONS] += 1
        return REJECTED
    if need > SIZE_MASK // 2:
        return 0  # more than any device has, and than a block can say
    if S[EXPANDABLE] != 0:
        return ranges.grow(S, pool, stream, need)
    return segments.take(S, pool, stream, size)


@far
def spare(S: I64, stream: int, need: int) -> int:
    """A block of a private pool that may serve others when memory is out, or 0."""
    for k in range(MAX_PRIVATE):
        private = FIRST_PRIVATE + k * PRIVATE_WORDS
        if S[private + STATE] == IN_USE and S[private + ON_OOM] != 0:
            p = search(S, private + (PRIVATE_SMALL if need <= SMALL_SIZE else PRIVATE_LARGE), stream, need, 0)
            if p != 0:
                return p
    return 0


@outlined
def grow(S: I64, pool: int, stream: int, need: int) -> int:
    """A block for a request that no free block serves; 0 when the request has to fail."""
    if collects(S):
        cache.collect(S)
    p = new_block(S, pool, stream, need)
    if p == 0 and S[SPARES] != 0 and S[ROUTED] == 0:
        p = spare(S, stream, need)
    if p == 0 and S[MAX_SPLIT] != NEVER and cache.release_oversize(S, pool, stream, need) != 0:
        p = new_block(S, pool, stream, need)
    if p == 0 and not capturing(S):
        cache.release_all(S)
        S[RETRIES] += 1
        p = new_block(S, pool, stream, need)
    if p == 0:
        events.note(S, events.OOM, device.idle(S), need, stream)
        S[OOMS] += 1
    return max(p, 0)
