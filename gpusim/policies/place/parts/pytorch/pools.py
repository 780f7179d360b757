"""Free blocks of a pool in PyTorch's order: by stream, size, age of the segment, address.

ORDER is what stands for the age: nothing up to 2.11, the number of the block object in 2.12, that of the segment from 2.13
on.  Bins are by size alone, so other streams' blocks are skipped bin by bin.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import bins
from gpusim.policies.place.parts.bins import OWNER, ROOTS
from gpusim.policies.place.parts.pytorch.layout import (
    AGE,
    FIRST_PRIVATE,
    LARGE,
    NUMBER,
    OBJECT_NUMBERS,
    OBJECTS,
    OLD,
    PRIVATE_LARGE,
    PRIVATE_SMALL,
    PRIVATE_WORDS,
    ROUTED,
    ROUTES,
    RULE,
    SEARCHES,
    SMALL,
    SMALL_SIZE,
    SMALL_STATS,
    STATS,
    STREAM_BIT,
    K,
    is_split,
    size_of,
    stream_of,
)


@helper
def is_small(S: I64, pool: int) -> bool:
    return S[pool + STATS] == SMALL_STATS


@outlined
def routed(S: I64, size: int) -> int:
    """The side of the private pool that was begun last."""
    record = FIRST_PRIVATE + S[ROUTES + S[ROUTED] - 1] * PRIVATE_WORDS
    return record + (PRIVATE_SMALL if size <= SMALL_SIZE else PRIVATE_LARGE)


@helper
def serving(S: I64, size: int) -> int:
    """The pool that serves requests of this rounded size."""
    if S[ROUTED] != 0:
        return routed(S, size)
    return SMALL if size <= SMALL_SIZE else LARGE


@helper
def order_in(S: I64, segment: int) -> int:
    """ORDER of a new block of this segment."""
    if S[RULE] == OLD:
        return 0
    if S[RULE] == OBJECT_NUMBERS:
        S[OBJECTS] += 1
        return S[OBJECTS]
    return S[segment + NUMBER]


@helper
def add(S: I64, pool: int, p: int) -> None:
    bins.add(S, pool, p, size_of(S, p) // K)
    if not is_split(S, p):
        S[S[p + OWNER] + AGE] = S[pool + SEARCHES]


@helper
def drop(S: I64, pool: int, p: int) -> None:
    bins.drop(S, pool, p, size_of(S, p) // K)


@helper
def next_bin_of(S: I64, pool: int, stream: int, b: int) -> int:
    """The stream's first block in the bins from b on, or 0."""
    while True:
        b = bins.next_bin(S, pool, b)
        if b < 0:
            return 0
        p = bins.at_least(S, pool + ROOTS + b, stream << STREAM_BIT, -1)
        if p != 0 and stream_of(S, p) == stream:
            return p
        b += 1


@helper
def at_least(S: I64, pool: int, stream: int, size: int) -> int:
    """The stream's first block of this size or a larger one, or 0."""
    b = bins.bin_of(size // K)
    p = bins.at_least(S, pool + ROOTS + b, stream << STREAM_BIT | size, -1)
    if p != 0 and stream_of(S, p) == stream:
        return p
    return next_bin_of(S, pool, stream, b + 1)


@helper
def following(S: I64, pool: int, p: int) -> int:
    """The next block of the same stream after p, or 0."""
    b = bins.bin_of(size_of(S, p) // K)
    q = bins.after(S, pool + ROOTS + b, p)
    if q != 0 and stream_of(S, q) == stream_of(S, p):
        return q
    return next_bin_of(S, pool, stream_of(S, p), b + 1)


@outlined
def first_from(S: I64, pool: int, stream: int) -> int:
    """The first block of this stream, or of the next one that has a block; 0 when there is none."""
    found = 0
    b = bins.next_bin(S, pool, 0)
    while b >= 0:
        p = bins.at_least(S, pool + ROOTS + b, stream << STREAM_BIT, -1)
        if p != 0 and (found == 0 or stream_of(S, p) < stream_of(S, found)):
            found = p
        b = bins.next_bin(S, pool, b + 1)
    return found


@outlined
def next_in_order(S: I64, pool: int, p: int) -> int:
    """The block after p in the whole order, or 0."""
    q = following(S, pool, p)
    return q if q != 0 else first_from(S, pool, stream_of(S, p) + 1)


@outlined
def previous_bin(S: I64, pool: int, b: int) -> int:
    """The last bin up to b that is not empty, or -1."""
    while b >= 0 and S[pool + ROOTS + b] == 0:
        b -= 1
    return b


@outlined
def largest_below(S: I64, pool: int, stream: int, size: int) -> int:
    """The stream's last block that is smaller than `size`, or 0."""
    b = previous_bin(S, pool, bins.bin_of(size // K))
    while b >= 0:
        p = bins.below(S, pool + ROOTS + b, stream << STREAM_BIT | size)
        if p != 0 and stream_of(S, p) == stream:
            return p
        b = previous_bin(S, pool, b - 1)
    return 0


@outlined
def previous(S: I64, pool: int, p: int) -> int:
    """The block of the same stream before p, or 0."""
    b = bins.bin_of(size_of(S, p) // K)
    q = bins.preceding(S, pool + ROOTS + b, p)
    while q == 0 or stream_of(S, q) != stream_of(S, p):
        b = previous_bin(S, pool, b - 1)
        if b < 0:
            return 0
        q = bins.below(S, pool + ROOTS + b, (stream_of(S, p) + 1) << STREAM_BIT)
    return q


@outlined
def largest(S: I64, pool: int) -> int:
    """Size of the largest free block, whatever its stream; 0 when there is none."""
    b = bins.last_bin(S, pool)
    if b < 0:
        return 0
    found, p = 0, bins.last(S, pool + ROOTS + b)
    while p != 0:  # the largest of each stream
        found = max(found, size_of(S, p))
        p = bins.below(S, pool + ROOTS + b, stream_of(S, p) << STREAM_BIT)
    return found
