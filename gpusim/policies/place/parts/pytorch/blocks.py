"""Blocks: made, split, merged, handed out, given back to their pool."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import arena, bins, neighbours
from gpusim.policies.place.parts.bins import ADDR, KEY, LEFT, LIVE, NEXT, ORDER, OWNER, PREV, RIGHT
from gpusim.policies.place.parts.pytorch import events, pools
from gpusim.policies.place.parts.pytorch.counting import change, down, oversize, up
from gpusim.policies.place.parts.pytorch.layout import (
    ACTIVE,
    ACTIVE_BYTES,
    ALLOCATED_BYTES,
    ALLOCATION,
    INACTIVE_SPLIT,
    INACTIVE_SPLIT_BYTES,
    MAX_SPLIT,
    NO_SPLIT,
    OBJECT_NUMBERS,
    OBJECTS,
    OVERSIZE_ALLOCATIONS,
    REQUESTED_BYTES,
    RULE,
    SMALL_SIZE,
    STATS,
    STREAM_BIT,
    UNMAPPED_ROOT,
    USED,
    K,
    expandable,
    is_split,
    mapped,
    pool_of,
    size_of,
    stream_of,
)


@helper
def new(S: I64, segment: int, addr: int, key: int, prev: int, after: int) -> int:
    """A block between these neighbours, marked as in use."""
    p = arena.take_node(S)
    S[p + ADDR] = addr
    S[p + KEY] = key
    S[p + LEFT] = USED
    S[p + ORDER] = pools.order_in(S, segment)
    S[p + OWNER] = segment
    neighbours.link(S, p, prev, after)
    return p


@helper
def available(S: I64, p: int) -> bool:
    """There is such a block, and nothing uses it: it is free or unmapped."""
    return p != 0 and S[p + LEFT] > LIVE


@helper
def free_to_merge(S: I64, p: int) -> bool:
    return available(S, p) and mapped(S, p)


# --- splitting --------------------------------------------------------------------------------------------------------


@helper
def splits(S: I64, pool: int, need: int, rest: int, exactly: int) -> bool:
    """The rest is a block of its own.  exactly: expandable segments are active for this request."""
    if S[pool + NO_SPLIT] != 0:
        return False
    if pools.is_small(S, pool) or exactly != 0:
        return rest >= K
    return need < S[MAX_SPLIT] and rest > SMALL_SIZE


@helper
def cut(S: I64, pool: int, p: int, need: int) -> int:
    """The front of block p, which is in no pool, as a block of its own; p becomes the free rest."""
    stream, rest = stream_of(S, p), size_of(S, p) - need
    q = arena.take_node(S)
    S[q + ADDR] = S[p + ADDR]
    S[q + KEY] = stream << STREAM_BIT | need
    S[q + ORDER] = S[p + ORDER]
    S[q + OWNER] = S[p + OWNER]
    if S[RULE] == OBJECT_NUMBERS:
        S[OBJECTS] += 1
        S[q + ORDER] = S[OBJECTS]
    neighbours.link(S, q, S[p + PREV], p)
    S[p + ADDR] += need
    S[p + KEY] = stream << STREAM_BIT | rest
    pools.add(S, pool, p)
    return q


@helper
def hand_out(S: I64, pool: int, p: int, need: int, size: int, exactly: int) -> int:
    """Block p, which is in no pool, for a request of `size` bytes, rounded to `need`: all of it or its front."""
    side = S[pool + STATS]
    was_split, rest = is_split(S, p), size_of(S, p) - need
    counted = not expandable(S, p)
    if splits(S, pool, need, rest, exactly):
        p = cut(S, pool, p, need)
        if counted:
            if was_split:
                down(S, side, INACTIVE_SPLIT_BYTES, need)
            else:
                up(S, side, INACTIVE_SPLIT_BYTES, rest)
                up(S, side, INACTIVE_SPLIT, 1)
    elif was_split and counted:
        down(S, side, INACTIVE_SPLIT_BYTES, size_of(S, p))
        down(S, side, INACTIVE_SPLIT, 1)
    block = size_of(S, p)
    S[p + LEFT] = USED
    S[p + RIGHT] = size
    events.note(S, events.ALLOC, S[p + ADDR], size, stream_of(S, p))
    up(S, side, ALLOCATION, 1)
    up(S, side, ALLOCATED_BYTES, block)
    up(S, side, ACTIVE, 1)
    up(S, side, ACTIVE_BYTES, block)
    up(S, side, REQUESTED_BYTES, size)
    if block >= S[MAX_SPLIT]:
        oversize(S, OVERSIZE_ALLOCATIONS, 1)
    return p


# --- merging ----------------------------------------------------------------------------------------------------------


@helper
def link_out(S: I64, p: int, q: int) -> None:
    """Block q, a neighbour of p and in no order any more, becomes a part of p."""
    if S[p + NEXT] == q:
        after = S[q + NEXT]
        S[p + NEXT] = after
        if after != 0:
            S[after + PREV] = p
    else:
        prev = S[q + PREV]
        S[p + ADDR] = S[q + ADDR]
        S[p + PREV] = prev
        if prev != 0:
            S[prev + NEXT] = p
    arena.give_node(S, q)


@helper
def absorb(S: I64, pool: int, p: int, q: int) -> int:
    """The mapped neighbour q of p becomes a part of p when it is free.  Returns its size, else 0."""
    if not free_to_merge(S, q):
        return 0
    pools.drop(S, pool, q)
    size = size_of(S, q)
    S[p + KEY] += size
    link_out(S, p, q)
    return size


@helper
def absorb_unmapped(S: I64, pool: int, p: int, q: int) -> None:
    """The same of an unmapped neighbour."""
    if q != 0 and not mapped(S, q):
        bins.remove(S, pool + UNMAPPED_ROOT, q)
        link_out(S, p, q)


# --- freeing ----------------------------------------------------------------------------------------------------------


@helper
def complete(S: I64, p: int) -> None:
    """The free of block p: nothing uses it any more, it merges and goes back to its pool."""
    pool = pool_of(S, p)
    side, size, requested = S[pool + STATS], size_of(S, p), S[p + RIGHT]
    events.note(S, events.FREE_COMPLETED, S[p + ADDR], requested, stream_of(S, p))
    blocks, bytes_ = 0, 0
    for q in (S[p + PREV], S[p + NEXT]):
        merged = absorb(S, pool, p, q)
        if merged > 0:
            blocks -= 1
            bytes_ -= merged
    pools.add(S, pool, p)
    if not expandable(S, p):
        if is_split(S, p):
            blocks += 1
            bytes_ += size_of(S, p)
        change(S, side, INACTIVE_SPLIT, blocks)
        change(S, side, INACTIVE_SPLIT_BYTES, bytes_)
    down(S, side, ACTIVE, 1)
    down(S, side, ACTIVE_BYTES, size)
    down(S, side, REQUESTED_BYTES, requested)


@outlined
def complete_later(S: I64, p: int) -> None:
    """`complete`, from where frees are rare."""
    complete(S, p)


@helper
def request_free(S: I64, p: int) -> None:
    """What happens at once when a block is freed, even if other streams still use it."""
    side, size = S[pool_of(S, p) + STATS], size_of(S, p)
    down(S, side, ALLOCATION, 1)
    down(S, side, ALLOCATED_BYTES, size)
    events.note(S, events.FREE_REQUESTED, S[p + ADDR], S[p + RIGHT], stream_of(S, p))
    if size >= S[MAX_SPLIT]:
        oversize(S, OVERSIZE_ALLOCATIONS, -1)
