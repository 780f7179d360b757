"""Segments of the device cut into chunks: what allocators over `device.py` share.

    segment   | live | free | live | free ...|        segment   | free            |

The chunks of a segment tile it, linked in address order; no two free ones of one stream touch.  A free chunk is in an index
of bins (its own, or that of its pool) in order of (stream, size, address).  The last chunk of a segment is the same node
all its life: the front of a split is a new node, and of two chunks that merge the later one stays.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import BLOCK, ROUNDED
from gpusim.policies.place.parts import arena, bins, neighbours
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, KEY, LEFT, LIVE, NEXT, ORDER, OWNER, PREV, ROOTS, ROWS

# A chunk has KEY = stream << STREAM_BIT | size and OWNER = its segment (after `unmap` only of the last chunk for sure).
STREAM_BIT = 48
SIZE_MASK = (1 << STREAM_BIT) - 1

LAST_CHUNK = device.OWN  # word of a segment; the others are its allocator's


@helper
def size_of(S: I64, p: int) -> int:
    return S[p + KEY] & SIZE_MASK


@helper
def stream_of(S: I64, p: int) -> int:
    return S[p + KEY] >> STREAM_BIT


@helper
def is_free(S: I64, p: int) -> bool:
    return p != 0 and S[p + LEFT] != LIVE


@helper
def alone(S: I64, p: int) -> bool:
    """Chunk p is the whole of its segment."""
    return S[p + PREV] == 0 and S[p + NEXT] == 0


@helper
def whole(S: I64, segment: int, size: int, stream: int) -> int:
    """The chunk that is all of a segment of `size` bytes, live and not yet owned."""
    p = arena.take_node(S)
    S[p + ADDR] = S[segment + ADDR]
    S[p + KEY] = stream << STREAM_BIT | size
    S[p + PREV] = 0
    S[p + NEXT] = 0
    S[p + LEFT] = LIVE
    S[p + OWNER] = segment
    S[segment + LAST_CHUNK] = p
    return p


@helper
def put(S: I64, index: int, p: int) -> None:
    S[p + ORDER] = S[p + ADDR]
    bins.add(S, index, p, size_of(S, p))


@helper
def drop(S: I64, index: int, p: int) -> None:
    """Chunk p leaves the index: it is live from now on."""
    bins.drop(S, index, p, size_of(S, p))
    S[p + LEFT] = LIVE


@helper
def smallest(S: I64, index: int, stream: int, size: int) -> int:
    """The smallest free chunk of the stream that has `size` bytes, the lowest address among equals; or 0."""
    b = bins.bin_of(size)
    start = stream << STREAM_BIT
    p = bins.at_least(S, index + ROOTS + b, start | size, -1)
    while p == 0 or stream_of(S, p) != stream:
        b = bins.next_bin(S, index, b + 1)
        if b < 0:
            return 0
        p = bins.at_least(S, index + ROOTS + b, start, -1)
    return p


@helper
def bin_below(S: I64, index: int, b: int) -> int:
    """The last bin before b that is not empty, or -1."""
    row = b >> 5
    word = S[index + ROWS + row] & ((1 << (b & 31)) - 1)
    if word == 0:
        rows = S[index] & ((1 << row) - 1)
        if rows == 0:
            return -1
        row = bits.highest(rows)
        word = S[index + ROWS + row]
    return (row << 5) + bits.highest(word)


@helper
def largest_of(S: I64, index: int, stream: int) -> int:
    """The stream's largest free chunk, the highest address among equals; or 0."""
    b = bins.last_bin(S, index)
    while b >= 0:
        p = bins.below(S, index + ROOTS + b, (stream + 1) << STREAM_BIT)
        if p != 0 and stream_of(S, p) == stream:
            return p
        b = bin_below(S, index, b)
    return 0


@helper
def split(S: I64, p: int, need: int) -> int:
    """The front of live chunk p as a live chunk of its own; p is the rest."""
    q = arena.take_node(S)
    S[q + ADDR] = S[p + ADDR]
    S[q + KEY] = S[p + KEY] & ~SIZE_MASK | need
    S[q + LEFT] = LIVE
    S[q + OWNER] = S[p + OWNER]
    neighbours.link(S, q, S[p + PREV], p)
    S[p + ADDR] += need
    S[p + KEY] -= need
    return q


@helper
def absorb(S: I64, p: int, q: int) -> None:
    """Chunk q, which is in no index, becomes the front of p, which follows it."""
    prev = S[q + PREV]
    S[p + ADDR] = S[q + ADDR]
    S[p + KEY] += size_of(S, q)
    S[p + PREV] = prev
    if prev != 0:
        S[prev + NEXT] = p
    arena.give_node(S, q)


@helper
def insert(S: I64, index: int, p: int) -> int:
    """Live chunk p becomes free and one with its free neighbours of the same stream.  Returns that one."""
    after, prev = S[p + NEXT], S[p + PREV]
    if is_free(S, after) and stream_of(S, after) == stream_of(S, p):
        drop(S, index, after)
        absorb(S, after, p)
        p = after
    if is_free(S, prev) and stream_of(S, prev) == stream_of(S, p):
        drop(S, index, prev)
        absorb(S, p, prev)
    put(S, index, p)
    return p


@helper
def unmap(S: I64, index: int, r: int, p: int) -> int:
    """Give back the whole pages inside free chunk p of segment r.  Returns the segment that is left before them, or 0."""
    start = device.paged(S[p + ADDR])
    size = (S[p + ADDR] + size_of(S, p)) // device.PAGE * device.PAGE - start
    if size <= 0:
        return r
    drop(S, index, p)
    if S[p + ADDR] < start:
        put(S, index, split(S, p, start - S[p + ADDR]))
    before, after, rest, front, hole = S[p + PREV], S[p + NEXT], size_of(S, p) - size, 0, r
    if before != 0:  # the part of the segment before the pages
        S[before + NEXT] = 0
        front = split(S, r, start - S[r + ADDR])
        S[front + LAST_CHUNK] = before
        S[before + OWNER] = front
    if rest > 0 or after != 0:  # the part behind them
        hole = split(S, r, size)
    if rest > 0:
        S[p + ADDR] += size
        S[p + KEY] -= size
        S[p + PREV] = 0
        put(S, index, p)
    else:
        if after != 0:
            S[after + PREV] = 0
        arena.give_node(S, p)
    device.give(S, hole, size)
    return front


# --- segments by address ----------------------------------------------------------------------------------------------


@helper
def first_segment(S: I64) -> int:
    """The segment with the lowest address, or 0.  There are few, and only releasing goes through them."""
    r = S[arena.LAST]
    while r != 0 and S[r + PREV] != 0:
        r = S[r + PREV]
    return following(S, r) if arena.is_free(S, r) else r


@helper
def following(S: I64, r: int) -> int:
    """The segment after r, or 0; it stays when r is given back."""
    r = S[r + NEXT]
    return S[r + NEXT] if arena.is_free(S, r) else r


# --- units ------------------------------------------------------------------------------------------------------------


@helper
def hand(S: I64, unit: int, p: int) -> int:
    """Live chunk p is the unit's from now on.  Returns its address."""
    size = size_of(S, p)
    S[S[arena.UNITS] + unit] = p
    S[ROUNDED] += size
    S[BLOCK] = size
    return S[p + ADDR]


@helper
def taken(S: I64, unit: int) -> int:
    """The unit's live chunk, or 0; the unit has none any more."""
    at = S[arena.UNITS] + unit
    p = S[at]
    if p != 0:
        S[at] = 0
        S[ROUNDED] -= size_of(S, p)
    return p


@helper
def largest(S: I64, index: int) -> int:
    """Size of the largest free chunk, whatever its stream; 0 when there is none."""
    b = bins.last_bin(S, index)
    if b < 0:
        return 0
    found, p = 0, bins.last(S, index + ROOTS + b)
    while p != 0:  # the largest of each stream
        found = max(found, size_of(S, p))
        p = bins.below(S, index + ROOTS + b, stream_of(S, p) << STREAM_BIT)
    return found
