"""Expandable segments: a reserved range of addresses for each stream and pool, mapped page by page as it is needed."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.far import far
from gpusim.policies.place.parts import arena, bins
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, KEY, LEFT, LIVE, NEXT, OWNER, PREV
from gpusim.policies.place.parts.pytorch import blocks, events, pools
from gpusim.policies.place.parts.pytorch.counting import down, up
from gpusim.policies.place.parts.pytorch.layout import (
    DEVICE_ALLOCS,
    DEVICE_FREES,
    IDLE_RANGES,
    LARGE_SEGMENT,
    MIB,
    PAGES,
    RANGES,
    RANGES_FIT,
    RESERVE,
    RESERVED_BYTES,
    RULE,
    SMALL_SEGMENT,
    STATS,
    STREAM_BIT,
    UNMAPPED,
    UNMAPPED_ROOT,
    extent,
    size_of,
    stream_of,
)
from gpusim.policies.place.parts.pytorch.segments import belongs, number


@helper
def page_of(S: I64, p: int) -> int:
    """Bytes of a page of the range in which block p lies."""
    return -S[S[p + OWNER] + PAGES]


@helper
def unmapped_stream(S: I64, p: int) -> int:
    return (S[p + KEY] - UNMAPPED) >> STREAM_BIT


@helper
def set_unmapped(S: I64, pool: int, p: int, stream: int) -> None:
    """Block p has no memory behind it: it goes to the pool's unmapped blocks, by stream and address."""
    S[p + KEY] = UNMAPPED + (stream << STREAM_BIT | S[p + ADDR] // MIB)
    bins.insert(S, pool + UNMAPPED_ROOT, p)


# --- growing ----------------------------------------------------------------------------------------------------------


@helper
def has_room(S: I64, p: int, need: int) -> bool:
    """Block p and what follows it unused have `need` bytes."""
    room = 0
    while room < need and blocks.available(S, p):
        room += extent(S, p)
        p = S[p + NEXT]
    return room >= need


@helper
def new_range(S: I64, pool: int, stream: int, need: int) -> int:
    """The unmapped block that is a whole new range; 0 when a range would be too small.

    Up to 2.14 it is reserved all the same, and stays, though all of the device's memory would not fill it.
    """
    page = SMALL_SEGMENT if pools.is_small(S, pool) else S[LARGE_SEGMENT]
    size = (S[RESERVE] + page - 1) // page * page
    if size < need and (S[RULE] >= RANGES_FIT or S[RANGES] >= IDLE_RANGES):
        return 0
    r = device.reserve(S, size)
    number(S, r, pool)
    S[r + device.SIZE] = size
    S[r + PAGES] = -page
    S[RANGES] += 1
    p = blocks.new(S, r, S[r + ADDR], UNMAPPED, 0, 0)
    set_unmapped(S, pool, p, stream)
    return p


@helper
def candidate(S: I64, pool: int, stream: int, need: int) -> int:
    """Where `need` bytes can be had: a free block that unmapped ones follow, or an unmapped block; 0: nowhere."""
    root = pool + UNMAPPED_ROOT
    p = bins.at_least(S, root, UNMAPPED + (stream << STREAM_BIT), -1)
    while p != 0 and unmapped_stream(S, p) == stream:
        start = S[p + PREV] if blocks.available(S, S[p + PREV]) else p
        if has_room(S, start, need):
            return start
        p = bins.after(S, root, p)
    return new_range(S, pool, stream, need)


@helper
def map_front(S: I64, pool: int, p: int, need: int) -> bool:
    """Put memory behind the first `need` bytes of unmapped block p, in whole pages; it becomes free and merges."""
    stream, size, page = unmapped_stream(S, p), extent(S, p), page_of(S, p)
    pages = (need + page - 1) // page
    addr, bytes_ = S[p + ADDR], pages * page
    if not device.map_pages(S, addr, pages, page):
        return False
    bins.remove(S, pool + UNMAPPED_ROOT, p)
    if bytes_ < size:
        q = blocks.new(S, S[p + OWNER], addr + bytes_, UNMAPPED, p, S[p + NEXT])
        set_unmapped(S, pool, q, stream)
    S[p + KEY] = stream << STREAM_BIT | bytes_
    blocks.absorb(S, pool, p, S[p + PREV])
    blocks.absorb(S, pool, p, S[p + NEXT])
    pools.add(S, pool, p)
    belongs(S, pool, 0, bytes_)
    up(S, S[pool + STATS], RESERVED_BYTES, bytes_)
    S[DEVICE_ALLOCS] += 1
    events.note(S, events.SEGMENT_MAP, addr, bytes_, stream)
    return True


@far
def grow(S: I64, pool: int, stream: int, need: int) -> int:
    """A free block of at least `need` bytes, in no pool, with memory newly mapped; 0 when the device has not enough."""
    p = candidate(S, pool, stream, need)
    if p == 0:
        return 0
    have = 0 if S[p + KEY] < 0 else size_of(S, p)
    while have < need:
        q = p if have == 0 else S[p + NEXT]
        if q == 0:
            return 0  # the range ends here
        if not map_front(S, pool, q, min(need - have, extent(S, q))):
            return 0
        p = q
        have = size_of(S, p)
    pools.drop(S, pool, p)
    belongs(S, pool, 1, 0)
    return p


# --- searching --------------------------------------------------------------------------------------------------------


@helper
def reach(S: I64, p: int) -> int:
    """What the block could grow to."""
    after = S[p + NEXT]
    return size_of(S, p) + (extent(S, after) if after != 0 and S[after + KEY] < 0 else 0)


@helper
def in_range(S: I64, p: int) -> bool:
    return S[S[p + OWNER] + PAGES] != LIVE


@outlined
def least_reach(S: I64, pool: int, p: int) -> int:
    """Instead of p: a following block, while it could grow less far; what could grow is kept for later."""
    while in_range(S, p):
        q = pools.following(S, pool, p)
        if q == 0 or reach(S, q) >= reach(S, p):
            break
        p = q
    return p


@outlined
def outside(S: I64, pool: int, p: int) -> int:
    """With the option off again: the stream's first block after p that lies in no range, or 0."""
    while p != 0 and in_range(S, p):
        p = pools.following(S, pool, p)
    return p


# --- shrinking --------------------------------------------------------------------------------------------------------


@helper
def cut_end(S: I64, pool: int, p: int, addr: int, size: int, prev: int, after: int) -> None:
    """A free block of what is left at an end of p."""
    stream = stream_of(S, p)
    q = blocks.new(S, S[p + OWNER], addr, stream << STREAM_BIT | size, prev, after)
    pools.add(S, pool, q)


@outlined
def unmap(S: I64, pool: int, p: int) -> None:
    """Give back the whole pages of free block p, and its range when nothing else is in it."""
    stream, size, addr, r = stream_of(S, p), size_of(S, p), S[p + ADDR], S[p + OWNER]
    page = page_of(S, p)
    first = (addr - S[r + ADDR] + page - 1) // page
    pages = (addr + size - S[r + ADDR]) // page - first
    if pages <= 0:
        return
    start = S[r + ADDR] + first * page
    end = start + pages * page
    pools.drop(S, pool, p)
    S[p + LEFT] = LIVE
    if start > addr:
        cut_end(S, pool, p, addr, start - addr, S[p + PREV], p)
    if end < addr + size:
        cut_end(S, pool, p, end, addr + size - end, p, S[p + NEXT])
    S[p + ADDR] = start
    device.unmap_pages(S, start, pages, page)
    blocks.absorb_unmapped(S, pool, p, S[p + PREV])
    blocks.absorb_unmapped(S, pool, p, S[p + NEXT])
    set_unmapped(S, pool, p, stream)
    down(S, S[pool + STATS], RESERVED_BYTES, pages * page)
    belongs(S, pool, -1, -pages * page)
    S[DEVICE_FREES] += 1
    events.note(S, events.SEGMENT_UNMAP, start, pages * page, stream)
    if S[p + PREV] == 0 and S[p + NEXT] == 0:
        bins.remove(S, pool + UNMAPPED_ROOT, p)
        arena.give_node(S, p)
        device.unreserve(S, r)
        S[RANGES] -= 1
