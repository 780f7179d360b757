"""One range of addresses [0, capacity) cut into blocks: what every allocator over it shares.

    | live | free | live | live | free | live |  the untouched end ...
    0                                         TAIL      HELD ≤ CAPACITY

Blocks tile [0, TAIL) in address order, linked with their neighbours; no two free ones touch, and the last one is live,
so there are at most twice as many blocks as live ones.  What follows TAIL is one more free block, which is in no index:
its size follows from CAPACITY, which may change at any time.

The memory held ends at a break, like a heap's on a CPU: it grows in whole pages to cover the highest block ever in use, one
device call each time, and `release` takes it back to the end of the highest live block.

Defragmentation (defragment.py) moves the blocks, or releases the pages inside of holes to take as many at
the end: a block that stands for released pages has no owner, GONE counts their bytes, and addresses go on
beyond CAPACITY by as much.  HELD = break - GONE.

How free blocks are found is the policy's: it passes the functions of its index of free blocks.  add(S, p) and
drop(S, p) put a block in and take it out, while p's ADDR and SIZE are right; moved(S, p, addr, size) changes both of a
block that keeps its rank among the addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.policies.compiled import F64, I64, helper
from gpusim.policies.contract import BLOCK, CALL_LIST, CALLS, CAPACITY, HEADER, HELD, MAX_CALLS, ROUNDED
from gpusim.policies.place.parts import neighbours
from gpusim.policies.place.parts.bins import ADDR, KEY, LEFT, LIVE, NEXT, PREV

# Words of the arena, after the header.
ALIGN, MIN_REST, PAGE, TAIL, LAST, SPARE, FRESH, UNITS, ROVER, EXTRA = range(HEADER, HEADER + 10)
CALL = 24          # the list of device calls: one pair, an arena grows or shrinks at one end
GONE, N_UNITS, PIECES = 26, 27, 28   # PIECES: where the list of device calls of `remap` begins, 0 when it cannot be called
INDEX = 32         # the policy's index of free blocks
NODE = 8           # words of a block
SIZE = KEY         # of an arena's block
MIB2 = 2 << 20     # bytes: what devices map memory in


def new(capacity: int, n_units: int, blocks: int, index: int, align: int, min_rest: int, page: int = MIB2) -> I64:
    """An empty arena's table: room for this many blocks at once and `index` words of the policy's index."""
    units = INDEX + index
    fresh = -(-(units + n_units) // NODE) * NODE
    S = np.zeros(fresh + NODE * (blocks + 1), np.int64)  # pages of it that are never used cost no memory
    S[CAPACITY] = capacity
    S[CALL_LIST], S[MAX_CALLS] = CALL, 1
    S[ALIGN], S[MIN_REST], S[PAGE] = align, min_rest, page
    S[UNITS], S[FRESH], S[N_UNITS] = units, fresh, n_units
    return S


def fit(capacity: int, n_units: int, max_live: int, params: F64, index: int) -> I64:
    """The table of a policy whose parameters are (align, min_rest), which can be defragmented.

    Between two live blocks there are at most two free ones and the pages that are gone.
    """
    holes = max_live + 1
    S = new(capacity, n_units, max_live + 4 * holes, index + 4 * holes, max(1, int(params[0])), max(1, int(params[1])))
    S[PIECES], S[MAX_CALLS] = INDEX + index, 2 * holes
    return S


# --- blocks -----------------------------------------------------------------------------------------------------------


@helper
def take_node(S: I64) -> int:
    """A block's words: the latest given back, or fresh ones."""
    p = S[SPARE]
    if p != 0:
        S[SPARE] = S[p + NEXT]
        return p
    p = S[FRESH]
    S[FRESH] = p + NODE
    return p


@helper
def give_node(S: I64, p: int) -> None:
    S[p + NEXT] = S[SPARE]
    S[SPARE] = p


@helper
def is_free(S: I64, p: int) -> bool:
    return p != 0 and S[p + LEFT] != LIVE


@helper
def rounded(S: I64, size: int) -> int:
    """The size of a block for a request of `size` > 0."""
    if size > 1 << 60:
        return 1 << 62  # above any capacity; sums with it do not overflow
    align = S[ALIGN]
    return (size + align - 1) // align * align


@helper
def room(S: I64) -> int:
    """Size of the untouched end, which may be negative after CAPACITY was lowered."""
    return S[CAPACITY] + S[GONE] - S[TAIL]


@helper
def within(S: I64, p: int, need: int) -> bool:
    """The front of free block p is below CAPACITY; only a lowered one can make this false."""
    return S[p + ADDR] + need <= S[CAPACITY] + S[GONE]


@helper
def slack(S: I64) -> int:
    """Bytes between the untouched end's start and the break that a request can have."""
    return max(0, S[HELD] + S[GONE] - S[TAIL]) // S[ALIGN] * S[ALIGN]


@helper
def cut_tail(S: I64, need: int) -> int:
    """A live block from the start of the untouched end."""
    p = take_node(S)
    last = S[LAST]
    S[p + ADDR] = S[TAIL]
    S[p + SIZE] = need
    S[p + LEFT] = LIVE
    neighbours.link(S, p, last, 0)
    S[LAST] = p
    S[TAIL] += need
    return p


@helper
def cut(S: I64, p: int, need: int, drop: Any, moved: Any) -> int:
    """A live block from the front of free block p, all of it when what remained would be less than MIN_REST."""
    rest = S[p + SIZE] - need
    if rest < S[MIN_REST]:
        drop(S, p)
        S[p + LEFT] = LIVE
        return p
    q = take_node(S)
    S[q + ADDR] = S[p + ADDR]
    S[q + SIZE] = need
    S[q + LEFT] = LIVE
    neighbours.link(S, q, S[p + PREV], p)
    moved(S, p, S[p + ADDR] + need, rest)
    return q


@helper
def unlink(S: I64, p: int) -> None:
    neighbours.unlink(S, p)
    if S[p + NEXT] == 0:
        S[LAST] = S[p + PREV]
    give_node(S, p)


@helper
def give_back(S: I64, p: int, add: Any, drop: Any, moved: Any) -> None:
    """Live block p becomes free and one with its free neighbours."""
    addr, size = S[p + ADDR], S[p + SIZE]
    prev, next_ = S[p + PREV], S[p + NEXT]
    if next_ == 0:
        unlink(S, p)
        if is_free(S, prev):
            addr = S[prev + ADDR]
            drop(S, prev)
            unlink(S, prev)
        S[TAIL] = addr
    elif is_free(S, prev):
        if is_free(S, next_):
            size += S[next_ + SIZE]
            drop(S, next_)
            unlink(S, next_)
        unlink(S, p)
        moved(S, prev, S[prev + ADDR], S[prev + SIZE] + size)
    elif is_free(S, next_):
        unlink(S, p)
        moved(S, next_, addr, S[next_ + SIZE] + size)
    else:
        add(S, p)


# --- verbs ------------------------------------------------------------------------------------------------------------


@helper
def hand(S: I64, unit: int, p: int) -> int:
    """Live block p is the unit's from now on.  Returns its address."""
    size = S[p + SIZE]
    S[S[UNITS] + unit] = p
    S[ROUNDED] += size
    S[BLOCK] = size
    return S[p + ADDR]


@helper
def cover(S: I64, end: int) -> None:
    """The break covers the addresses below `end`."""
    brk, page = S[HELD] + S[GONE], S[PAGE]
    if end > brk:
        top = min((end + page - 1) // page * page, S[CAPACITY] + S[GONE])
        S[CALL] = brk
        S[CALL + 1] = top - brk
        S[CALL_LIST], S[CALLS] = CALL, 1
        S[HELD] += top - brk


@helper
def give(S: I64, unit: int, p: int) -> int:
    """Hand live block p, covered by the break, to the unit.  Returns its address."""
    cover(S, S[p + ADDR] + S[p + SIZE])
    return hand(S, unit, p)


@helper
def nothing(S: I64) -> int:
    """What a request of 0 bytes gets: an address without a block."""
    S[BLOCK] = 0
    return 0


@helper
def taken(S: I64, unit: int) -> int:
    """The unit's live block, or 0; the unit has none any more."""
    S[CALLS] = 0
    at = S[UNITS] + unit
    p = S[at]
    if p != 0:
        S[at] = 0
        S[ROUNDED] -= S[p + SIZE]
    return p


@helper
def lower(S: I64) -> int:
    """`release` of an arena: the break goes back to the page after the highest live block.  Returns the bytes."""
    S[CALLS] = 0
    page, brk = S[PAGE], S[HELD] + S[GONE]
    top = min((S[TAIL] + page - 1) // page * page, brk)
    back = brk - top
    if back > 0:
        S[CALL] = top
        S[CALL + 1] = -back
        S[CALL_LIST], S[CALLS] = CALL, 1
        S[HELD] -= back
    return back
