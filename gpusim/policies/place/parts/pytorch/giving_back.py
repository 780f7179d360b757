"""Memory goes back to the device: the whole cache, just enough oversize blocks, or what has not been used for long."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import HELD
from gpusim.policies.far import far
from gpusim.policies.place.parts.bins import OWNER
from gpusim.policies.place.parts.pytorch import expandable as ranges
from gpusim.policies.place.parts.pytorch import pools, segments, streams
from gpusim.policies.place.parts.pytorch.layout import (
    AGE,
    FIRST_PRIVATE,
    FREEABLE,
    GROWN,
    LARGE,
    LIMIT,
    MAX_PRIVATE,
    MAX_SPLIT,
    OWNED,
    PRIVATE_LARGE,
    PRIVATE_SMALL,
    PRIVATE_WORDS,
    RANGES,
    SCALE,
    SEARCHES,
    SIZE_MASK,
    SMALL,
    STATE,
    THRESHOLD,
    UNMAPPED_ROOT,
    UNUSED,
    capturing,
    expandable,
    is_split,
    size_of,
)


@outlined
def release_pool(S: I64, pool: int) -> None:
    """Release each segment that is one free block, in the pool's order; then unmap what is free in ranges."""
    p = pools.first_from(S, pool, 0)
    while p != 0:
        q = pools.next_in_order(S, pool, p)
        if not is_split(S, p) and not expandable(S, p):
            segments.release(S, pool, p)
        p = q
    p = pools.first_from(S, pool, 0) if S[RANGES] != 0 else 0
    while p != 0:  # what unmapping leaves at the ends is smaller than p, so it comes before p
        q = pools.next_in_order(S, pool, p)
        if expandable(S, p):
            ranges.unmap(S, pool, p)
        p = q


@outlined
def release_private(S: I64, private: int) -> None:
    """The same of a private pool that is not in use; it is forgotten when nothing is left in it but reserved addresses."""
    release_pool(S, private + PRIVATE_SMALL)
    release_pool(S, private + PRIVATE_LARGE)
    if S[private + GROWN] == 0 and S[private + OWNED] == 0:
        S[private + STATE] = UNUSED
        S[private + PRIVATE_SMALL + UNMAPPED_ROOT] = S[private + PRIVATE_LARGE + UNMAPPED_ROOT] = 0


@far
def release_all(S: I64) -> int:
    """torch.cuda.empty_cache()."""
    if not capturing(S):
        streams.wait_for_all(S, 0)
        release_pool(S, LARGE)
        release_pool(S, SMALL)
    for k in range(MAX_PRIVATE):
        private = FIRST_PRIVATE + k * PRIVATE_WORDS
        if S[private + STATE] == FREEABLE:
            release_private(S, private)
    return 0


@far
def release_oversize(S: I64, pool: int, stream: int, need: int) -> int:
    """Release the one oversize block that is large enough, or the largest ones until they sum up: 1 when it was enough."""
    wanted = max(need, S[MAX_SPLIT])
    p = pools.at_least(S, pool, stream, wanted) if wanted <= SIZE_MASK else 0
    if p != 0 and not expandable(S, p):
        return int(release_one(S, pool, p))
    released = 0
    p = pools.largest_below(S, pool, stream, min(wanted, SIZE_MASK))
    while p != 0 and released < wanted and size_of(S, p) >= S[MAX_SPLIT]:
        q = pools.previous(S, pool, p)
        if not expandable(S, p):
            size = size_of(S, p)
            if release_one(S, pool, p):
                released += size
        p = q
    return int(released >= wanted)


@helper
def release_one(S: I64, pool: int, p: int) -> bool:
    """A piece of a segment, cut off before max_split_size was lowered, stays: PyTorch's cudaFree of it is an error."""
    if is_split(S, p):
        return False
    segments.release(S, pool, p)
    return True


@helper
def age(S: I64, p: int) -> int:
    """Searches of the pool since the unsplit block p came into it."""
    return S[LARGE + SEARCHES] - S[S[p + OWNER] + AGE]


@far
def collect(S: I64) -> int:
    """Garbage collection: above the threshold, release unsplit blocks of at least the average age, round by round."""
    limit = int(S[THRESHOLD] / SCALE * S[LIMIT])
    if S[HELD] <= limit:
        return 0
    target, freed, ages, count = S[HELD] - limit, 0, 0, 0
    p = pools.first_from(S, LARGE, 0)
    while p != 0:
        if not is_split(S, p):
            ages += age(S, p)
            count += 1
        p = pools.next_in_order(S, LARGE, p)
    progress = True
    while freed < target and progress and count > 0:
        progress = False
        average = ages / count
        p = pools.first_from(S, LARGE, 0)
        while p != 0:
            q = pools.next_in_order(S, LARGE, p)
            if not is_split(S, p) and not expandable(S, p) and age(S, p) >= average:
                progress = True
                freed += size_of(S, p)
                ages -= age(S, p)
                count -= 1
                segments.release(S, LARGE, p)
            p = q
    return freed
