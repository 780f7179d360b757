"""Stitches: second addresses of free memory, and what is free of each.

    stitch (index STITCHES while it is idle and all free) ─▶ its record ─▶ part ─▶ part ─▶ ...
    segment ─▶ the parts that lie in it, of whatever stitch

`mark` is told of every range of a large segment that becomes used or free, and keeps the free bytes of the stitches over it.
"""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import CALLS, MOVES
from gpusim.policies.place.parts import arena, bins, chunks, neighbours
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, KEY, LEFT, LIVE, NEXT, OWNER, PREV
from gpusim.policies.place.parts.chunks import LAST_CHUNK, size_of

PARTS = device.OWN + 1  # word of a large segment: the first of the parts in it

# Words of the table.
(FRAG_LIMIT, REUSE_LIMIT, LEVEL, AUTO_GC, STITCHED, SPARE_PARTS, FIRST_STITCH, FREE_LARGE, SEGMENTS, MAX_SEGMENTS,
 STREAM, SMALL) = range(device.END, device.END + 12)  # fmt: skip
LARGE = SMALL + bins.WORDS
STITCHES = LARGE + bins.WORDS
WORDS = STITCHES + bins.WORDS - device.END

# A stitch is a node as a chunk is, PREV and NEXT list them all, its OWNER is its record:
FREE, USED, FIRST, COUNT, RANGE, BROKEN = range(6)
# free bytes; bytes in use, 0 while idle; first part; parts; the reserved range; whether a part's segment is gone.
# A part, from ADDR on SIZE bytes of a segment; CHUNK is the live chunk in it while it is used.
SIZE, BEFORE, AFTER, STITCH, NEXT_PART, SEGMENT, CHUNK = range(1, 8)


@helper
def mark(S: I64, segment: int, start: int, size: int) -> None:
    """`size` bytes from `start` on became free, or used when it is negative."""
    S[FREE_LARGE] += size
    end, part = start + abs(size), S[segment + PARTS]
    while part != 0:
        common = min(end, S[part + ADDR] + S[part + SIZE]) - max(start, S[part + ADDR])
        if common > 0:
            stitch = S[part + STITCH]
            record = S[stitch + OWNER]
            if S[stitch + LEFT] != LIVE:
                chunks.drop(S, STITCHES, stitch)
            S[record + FREE] += common if size > 0 else -common
            if S[record + USED] == 0 and S[record + FREE] == size_of(S, stitch):
                chunks.put(S, STITCHES, stitch)
        part = S[part + AFTER]


# --- making and dropping ----------------------------------------------------------------------------------------------


@helper
def new(S: I64, stream: int, size: int) -> int:
    """A used stitch of `size` bytes without parts."""
    stitch, record = arena.take_node(S), arena.take_node(S)
    r = device.reserve(S, size)
    first = S[FIRST_STITCH]
    S[stitch + ADDR] = S[r + ADDR]
    S[stitch + KEY] = stream << chunks.STREAM_BIT | size
    S[stitch + PREV] = 0
    S[stitch + NEXT] = first
    S[stitch + LEFT] = LIVE
    S[stitch + OWNER] = record
    if first != 0:
        S[first + PREV] = stitch
    S[FIRST_STITCH] = stitch
    S[record + FREE], S[record + USED], S[record + FIRST], S[record + COUNT] = 0, size, 0, 0
    S[record + RANGE], S[record + BROKEN] = r, 0
    return stitch


@helper
def add_part(S: I64, stitch: int, last: int, p: int) -> int:
    """Live chunk p becomes the part after `last` (0: the first).  Returns the part."""
    segment, part, record = S[p + OWNER], arena.take_node(S), S[stitch + OWNER]
    head = S[segment + PARTS]
    S[part + ADDR], S[part + SIZE], S[part + SEGMENT], S[part + CHUNK] = S[p + ADDR], size_of(S, p), segment, p
    S[part + BEFORE], S[part + AFTER], S[part + STITCH], S[part + NEXT_PART] = 0, head, stitch, 0
    if head != 0:
        S[head + BEFORE] = part
    S[segment + PARTS] = part
    if last != 0:
        S[last + NEXT_PART] = part
    else:
        S[record + FIRST] = part
    S[record + COUNT] += 1
    S[SPARE_PARTS] -= 1
    return part


@helper
def leave_segment(S: I64, part: int) -> None:
    before, after = S[part + BEFORE], S[part + AFTER]
    if before != 0:
        S[before + AFTER] = after
    else:
        S[S[part + SEGMENT] + PARTS] = after
    if after != 0:
        S[after + BEFORE] = before
    S[part + SEGMENT] = 0


@helper
def drop(S: I64, stitch: int) -> None:
    """An idle stitch is no more; the memory stays where it is."""
    if S[stitch + LEFT] != LIVE:
        chunks.drop(S, STITCHES, stitch)
    record = S[stitch + OWNER]
    part = S[record + FIRST]
    while part != 0:
        following = S[part + NEXT_PART]
        if S[part + SEGMENT] != 0:
            leave_segment(S, part)
        arena.give_node(S, part)
        part = following
    S[SPARE_PARTS] += S[record + COUNT]
    device.unreserve(S, S[record + RANGE])
    neighbours.unlink(S, stitch)
    if S[stitch + PREV] == 0:
        S[FIRST_STITCH] = S[stitch + NEXT]
    arena.give_node(S, record)
    arena.give_node(S, stitch)


@helper
def drop_idle(S: I64) -> None:
    stitch = S[FIRST_STITCH]
    while stitch != 0:
        following = S[stitch + NEXT]
        if S[S[stitch + OWNER] + USED] == 0:
            S[STITCHED] -= size_of(S, stitch)
            drop(S, stitch)
        stitch = following


@helper
def forget_segment(S: I64, segment: int) -> None:
    """The segment is given back: idle stitches over it go with it, used ones when they are freed."""
    while S[segment + PARTS] != 0:
        part = S[segment + PARTS]
        stitch = S[part + STITCH]
        record = S[stitch + OWNER]
        if S[record + USED] == 0:
            drop(S, stitch)
        else:
            S[record + BROKEN] = 1
            S[record + FREE] -= S[part + SIZE]
            leave_segment(S, part)


# --- using ------------------------------------------------------------------------------------------------------------


@helper
def book(S: I64, stitch: int, used: int, moves: int) -> None:
    """The books have memory where it is in use: `used` bytes of parts at the stitch's address, or back when negative."""
    fresh = S[CALLS] == 0
    if used < 0:
        device.called(S, S[stitch + ADDR], used)
    part, left = S[S[stitch + OWNER] + FIRST], abs(used)
    while left > 0:
        size = min(left, S[part + SIZE])
        device.called(S, S[part + ADDR], -size if used > 0 else size)
        left -= size
        part = S[part + NEXT_PART]
    if used > 0:
        device.called(S, S[stitch + ADDR], used)
    if fresh:
        S[MOVES] = S[CALLS] - 1 + moves  # all of them, or all but the one that pays for mapping a new stitch


@helper
def cover(S: I64, part: int, size: int) -> int:
    """The first `size` bytes of an all free part as a live chunk of its own."""
    addr, p = S[part + ADDR], S[S[part + SEGMENT] + LAST_CHUNK]
    while S[p + ADDR] > addr:
        p = S[p + PREV]
    chunks.drop(S, LARGE, p)
    if S[p + ADDR] < addr:
        chunks.put(S, LARGE, chunks.split(S, p, addr - S[p + ADDR]))
    if size_of(S, p) == size:
        return p
    q = chunks.split(S, p, size)
    chunks.put(S, LARGE, p)
    return q


@helper
def reuse(S: I64, stream: int, need: int) -> int:
    """The smallest idle stitch that is large enough and not too large, used for `need` bytes; or 0."""
    stitch = chunks.smallest(S, STITCHES, stream, need)
    if stitch == 0 or size_of(S, stitch) * 1000 > need * S[REUSE_LIMIT]:
        return 0
    chunks.drop(S, STITCHES, stitch)
    S[S[stitch + OWNER] + USED] = need
    part, left = S[S[stitch + OWNER] + FIRST], need
    while left > 0:
        size = min(left, S[part + SIZE])
        S[part + CHUNK] = cover(S, part, size)
        mark(S, S[part + SEGMENT], S[part + ADDR], -size)
        left -= size
        part = S[part + NEXT_PART]
    book(S, stitch, need, 1)
    return stitch


@helper
def give(S: I64, stitch: int) -> None:
    """A used stitch is idle again, and its memory free."""
    record = S[stitch + OWNER]
    used = S[record + USED]
    book(S, stitch, -used, 1)
    S[record + USED] = 0
    part, left = S[record + FIRST], used
    while left > 0:
        size = min(left, S[part + SIZE])
        chunks.insert(S, LARGE, S[part + CHUNK])
        mark(S, S[part + SEGMENT], S[part + ADDR], size)
        left -= size
        part = S[part + NEXT_PART]
    if S[record + BROKEN] != 0:
        drop(S, stitch)


@helper
def stitch(S: I64, stream: int, need: int) -> int:
    """A new stitch of the stream's free chunks, from the largest down, used for `need` bytes; or 0."""
    if need < S[FRAG_LIMIT]:
        return 0
    first, last, found, count = 0, 0, 0, 0
    while found < need:
        p = chunks.largest_of(S, LARGE, stream)
        if p == 0:
            break
        chunks.drop(S, LARGE, p)
        S[p + bins.RIGHT] = 0
        if last != 0:
            S[last + bins.RIGHT] = p
        else:
            first = p
        last = p
        found += size_of(S, p)
        count += 1
    if found >= need and count > S[SPARE_PARTS]:
        drop_idle(S)
    if found < need or count > S[SPARE_PARTS]:
        while first != 0:
            p = first
            first = S[p + bins.RIGHT]
            chunks.put(S, LARGE, p)
        return 0
    made, part = new(S, stream, need), 0
    while first != 0:
        p = first
        first = S[p + bins.RIGHT]
        if first == 0 and found > need:
            q = chunks.split(S, p, size_of(S, p) - (found - need))
            chunks.put(S, LARGE, p)
            p = q
        mark(S, S[p + OWNER], S[p + ADDR], -size_of(S, p))
        part = add_part(S, made, part, p)
    book(S, made, need, 0)
    S[STITCHED] += need
    if S[STITCHED] > S[AUTO_GC]:
        drop_idle(S)
    return made
