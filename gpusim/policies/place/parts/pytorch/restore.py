"""A recorded heap, laid out again: segments and pages that are held, and each block where it lies in them.

    LAY_SEGMENT  bytes, stream and side    a segment of cudaMalloc, all of it free
    LAY_RANGE    bytes, stream and side    a reserved range of at least so many addresses, nothing of it mapped
    LAY_PAGES    offset, bytes             pages of that range, free, behind those laid before
    LAY_BLOCK    offset, bytes             the next request gets this part of the segment or range that was laid last

Offsets count from the start of the segment or range and rise.  Stream and side are 2 * stream + 1 for requests of at most
1 MiB, else 2 * stream.  A private pool is the one that requests are routed to.  Each answers 0, or -1 when it cannot be.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.far import far
from gpusim.policies.place.parts import bins
from gpusim.policies.place.parts.bins import ADDR, NEXT, OWNER, PREV
from gpusim.policies.place.parts.pytorch import blocks, pools, rules, segments
from gpusim.policies.place.parts.pytorch import expandable as ranges
from gpusim.policies.place.parts.pytorch.counting import change
from gpusim.policies.place.parts.pytorch.layout import (
    AIM,
    AIMED,
    INACTIVE_SPLIT,
    INACTIVE_SPLIT_BYTES,
    LAID,
    RESERVE,
    SMALL_SIZE,
    STATS,
    UNMAPPED,
    UNMAPPED_ROOT,
    expandable,
    extent,
    mapped,
    pool_of,
    size_of,
)


@helper
def side_of(S: I64, b: int) -> int:
    return pools.serving(S, SMALL_SIZE if b & 1 else SMALL_SIZE + 1)


@outlined
def segment(S: I64, size: int, b: int) -> int:
    pool = side_of(S, b)
    p = segments.take(S, pool, b >> 1, size)
    if p == 0:
        return -1
    pools.add(S, pool, p)
    S[LAID] = p
    return 0


@outlined
def range_(S: I64, size: int, b: int) -> int:
    usual = S[RESERVE]
    S[RESERVE] = max(usual, size)
    p = ranges.new_range(S, side_of(S, b), b >> 1, 0)
    S[RESERVE] = usual
    S[LAID] = p
    return 0 if p != 0 else -1


@outlined
def pages(S: I64, offset: int, size: int) -> int:
    """The last block of the range is unmapped: pages in front of it, behind a hole that stays unmapped."""
    p = S[LAID]
    while S[p + NEXT] != 0:
        p = S[p + NEXT]
    hole = S[S[p + OWNER] + ADDR] + offset - S[p + ADDR]
    if mapped(S, p) or hole < 0 or hole + size > extent(S, p):
        return -1
    pool, stream = pool_of(S, p), ranges.unmapped_stream(S, p)
    if hole > 0:
        bins.remove(S, pool + UNMAPPED_ROOT, p)
        front = blocks.new(S, S[p + OWNER], S[p + ADDR], UNMAPPED, S[p + PREV], p)
        S[p + ADDR] += hole
        ranges.set_unmapped(S, pool, front, stream)
        ranges.set_unmapped(S, pool, p, stream)
    if not ranges.map_front(S, pool, p, size):
        return -1
    segments.belongs(S, pool, 1, 0)
    S[LAID] = p
    return 0


@far
def lay(S: I64, code: int, a: int, b: int) -> int:
    if code == rules.LAY_SEGMENT:
        return segment(S, a, b)
    if code == rules.LAY_RANGE:
        return range_(S, a, b)
    if code == rules.LAY_PAGES:
        return pages(S, a, b)
    S[AIM], S[AIMED] = a, b
    return 0


@helper
def free_part(S: I64, pool: int, p: int, by: int) -> None:
    """A free block of a segment, split off, comes (1) or goes (-1): for the statistics."""
    if not expandable(S, p):
        change(S, S[pool + STATS], INACTIVE_SPLIT, by)
        change(S, S[pool + STATS], INACTIVE_SPLIT_BYTES, by * size_of(S, p))


@far
def carve(S: I64, size: int) -> int:
    """The block that was aimed at, for a request of `size` bytes; 0 when no free block holds it."""
    p, need = S[LAID], S[AIMED]
    S[AIMED] = 0
    while p != 0 and S[p + ADDR] + extent(S, p) <= S[S[p + OWNER] + ADDR] + S[AIM]:
        p = S[p + NEXT]
    if p == 0 or not blocks.free_to_merge(S, p):
        return 0
    pool = pool_of(S, p)
    front = S[S[p + OWNER] + ADDR] + S[AIM] - S[p + ADDR]
    if front < 0 or front + need > size_of(S, p):
        return 0
    pools.drop(S, pool, p)
    if front > 0:
        if S[p + PREV] != 0 or S[p + NEXT] != 0:
            free_part(S, pool, p, -1)
        q = blocks.cut(S, pool, p, front)
        pools.add(S, pool, q)
        free_part(S, pool, q, 1)
        free_part(S, pool, p, 1)
        pools.drop(S, pool, p)
    found = blocks.hand_out(S, pool, p, need, size, 1)
    S[LAID] = p
    return found
