"""RMM's pool: the smallest free block that is large enough, cut at the request, from ranges by which the pool grows.

A block has the words of `bins`; its address is its ORDER.  Blocks tile their range in address order, linked with their
neighbours, and keep their node while the front is cut off or the next one joins, so that a range is known by its first
block.  Free neighbours are one block only when they are in the same list.

A list of a thousand blocks finds one as fast as a list of three (`bins`), and two lists merge by moving the shorter one's
blocks: a block that moves is then in a list twice as long, so that it moves rarely.

Source: rmm/mr/pool_memory_resource.hpp and detail/coalescing_free_list.hpp, RMM 26.04; reclaiming: RMM 26.10.
"""

from __future__ import annotations

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, helper
from gpusim.policies.contract import HELD
from gpusim.policies.place.parts import bins, neighbours
from gpusim.policies.place.parts.bins import KEY, LEFT, LIVE, NEXT, OWNER, PREV, ROOTS
from gpusim.policies.place.parts.rmm import streams, table
from gpusim.policies.place.parts.rmm import upstream as device
from gpusim.policies.place.parts.rmm.table import ALIGN, ENDLESS, MADE, OWN, RANGE_LIST, RANGES, STREAMS

AT, SIZE = bins.ORDER, KEY
BLOCK_WORDS = 8
MAX_RANGES = 1024  # each is at least half of what was left to take, so a pool has a few dozen

# The pool's words; MAXIMUM is ENDLESS without one.  Its streams follow, then the words of lists.
INITIAL, MAXIMUM, RECLAIMS, FRESH_LIST, SPARE_LIST, EXTRA = range(OWN, OWN + 6)  # EXTRA: what stands on a pool
AT_STREAMS = OWN + 16

# Words of a list after those of its bins: blocks in it; of one not in use, the next such list.
COUNT, CHAIN, LIST_WORDS = bins.WORDS, bins.WORDS + 1, bins.WORDS + 7


def words(n_streams: int) -> int:
    """Of the pool's own in a table."""
    return AT_STREAMS - OWN + streams.words(n_streams) + n_streams * LIST_WORDS


def state(capacity: int, n_units: int, params: F64, policy: str, extra: int = 0) -> I64:
    """The table of a policy on a pool, with `extra` words; params: initial, maximum, reclaim, reuse, legacy."""
    initial, maximum = (table.size_of(params[i], capacity, policy, name) for i, name in enumerate(("initial", "maximum")))
    if 0 < maximum < initial:
        raise PolicyError(
            f"policy '{policy}' has an initial size of {initial} bytes, above its maximum of {maximum}", hint="give both"
        )
    # Beside live blocks there are free ones: neighbours that different streams freed do not merge until they are needed.
    blocks = min(capacity // ALIGN, 4 * n_units + (1 << 16)) + MAX_RANGES
    S = table.new(
        capacity, n_units, ranges=MAX_RANGES, own=words(table.streams(n_units)) + extra, blocks=blocks,
        block_words=BLOCK_WORDS, reuse=params[3] != 0,
    )  # fmt: skip
    S[INITIAL], S[MAXIMUM] = initial, maximum or ENDLESS
    S[RECLAIMS], S[table.LEGACY] = params[2] != 0, params[4]
    return S


# --- lists ------------------------------------------------------------------------------------------------------------


@helper
def first_list(S: I64) -> int:
    return AT_STREAMS + 1 + 2 * S[STREAMS]


@helper
def new_list(S: I64, r: int, link: int) -> int:
    at = S[SPARE_LIST]
    if at != 0:
        S[SPARE_LIST] = S[at + CHAIN]
        return at
    at = S[FRESH_LIST]
    S[FRESH_LIST] = at + LIST_WORDS
    return at


@helper
def put(S: I64, at: int, p: int) -> None:
    S[p + OWNER] = at
    S[at + COUNT] += 1
    bins.add(S, at, p, S[p + SIZE])


@helper
def pull(S: I64, at: int, p: int) -> None:
    S[at + COUNT] -= 1
    bins.drop(S, at, p, S[p + SIZE])
    S[p + LEFT] = LIVE


@helper
def absorb_next(S: I64, p: int) -> None:
    """The block after p, in no list, becomes a part of p."""
    q = S[p + NEXT]
    S[p + SIZE] += S[q + SIZE]
    neighbours.unlink(S, q)
    table.give_block(S, q, NEXT)


@helper
def in_list(S: I64, p: int, at: int) -> bool:
    return p != 0 and S[p + LEFT] != LIVE and S[p + OWNER] == at


@helper
def insert(S: I64, at: int, p: int) -> None:
    """Block p, in no list, joins this one and its neighbours there."""
    next_, prev = S[p + NEXT], S[p + PREV]
    if in_list(S, next_, at):
        pull(S, at, next_)
        absorb_next(S, p)
    if in_list(S, prev, at):
        pull(S, at, prev)
        absorb_next(S, prev)
        p = prev
    put(S, at, p)


@helper
def room(S: I64, at: int, need: int) -> int:
    return bins.smallest(S, at, need)


@helper
def merge(S: I64, a: int, b: int) -> int:
    """One list of two."""
    if S[a + COUNT] < S[b + COUNT]:
        a, b = b, a
    while S[b + COUNT] > 0:
        p = S[b + ROOTS + bins.next_bin(S, b, 0)]
        pull(S, b, p)
        insert(S, a, p)
    S[b + CHAIN] = S[SPARE_LIST]
    S[SPARE_LIST] = b
    return a


@helper
def cut(S: I64, at: int, p: int, need: int) -> None:
    """Take block p out of its list; what is more than `need` stays there as a block of its own."""
    pull(S, at, p)
    rest = S[p + SIZE] - need
    if rest > 0:
        q = table.take_block(S, BLOCK_WORDS, NEXT)
        S[q + AT] = S[p + AT] + need
        S[q + SIZE] = rest
        neighbours.link(S, q, p, S[p + NEXT])
        S[p + SIZE] = need
        put(S, at, q)


# --- growing ----------------------------------------------------------------------------------------------------------


@helper
def attempt(S: I64, need: int) -> int:
    """Bytes to ask for; 0 when the maximum does not allow it.  Bytes held may exceed the maximum by less than 256."""
    if S[MAXIMUM] == ENDLESS:
        return max(need, S[HELD])
    left = max(0, S[MAXIMUM] - S[HELD] + ALIGN - 1) // ALIGN * ALIGN
    return max(need, left // 2) if need <= left else 0


@helper
def reclaim(S: I64, at: int, need: int) -> None:
    """Give back whole free ranges, lowest first, until the maximum leaves room for the request."""
    range_ = S[RANGE_LIST]
    while range_ < S[RANGE_LIST] + device.WORDS * S[RANGES] and 0 <= S[MAXIMUM] - S[HELD] < need:
        p = S[range_ + device.MARK]
        if S[p + NEXT] == 0 and S[p + LEFT] != LIVE:
            pull(S, at, p)
            table.give_block(S, p, NEXT)
            device.give(S, range_)
        else:
            range_ += device.WORDS


@helper
def expand(S: I64, need: int, size: int) -> int:
    """A block in no list that is a new range of at most `size`, at least `need` bytes; 0 when the device refuses."""
    if size == 0:
        return 0
    p = table.take_block(S, BLOCK_WORDS, NEXT)
    addr = device.take(S, size, p)
    while addr < 0 and size > need:
        size = max(need, size // 2)
        addr = device.take(S, size, p)
    if addr < 0:
        table.give_block(S, p, NEXT)
        return 0
    S[p + AT] = addr
    S[p + SIZE] = size
    S[p + PREV] = S[p + NEXT] = 0
    S[p + LEFT] = LIVE
    return p


# --- the resource -----------------------------------------------------------------------------------------------------


@helper
def construct(S: I64) -> None:
    S[MADE] = 1
    S[FRESH_LIST] = first_list(S)
    if S[INITIAL] > 0:
        p = expand(S, S[INITIAL], S[INITIAL])
        if p == 0:
            S[MADE] = -1
        else:
            put(S, streams.own_list(S, AT_STREAMS, 0, new_list), p)


@helper
def take(S: I64, stream: int, need: int) -> int:
    """A block of `need` bytes, a multiple of 256, for the stream; 0: out of memory."""
    at, p = streams.find(S, AT_STREAMS, stream, need, S[RECLAIMS], new_list, room, merge)
    if p == 0:
        size = attempt(S, need)
        if size == 0 and S[RECLAIMS] != 0 and need <= S[MAXIMUM]:
            reclaim(S, at, need)
            size = attempt(S, need)
        p = expand(S, need, size)
        if p == 0:
            return 0
        put(S, at, p)
    cut(S, at, p, need)
    return p


@helper
def give(S: I64, stream: int, p: int) -> None:
    insert(S, streams.own_list(S, AT_STREAMS, stream, new_list), p)


@helper
def destroy(S: I64) -> None:
    streams.clear(S, AT_STREAMS)
    for i in range(first_list(S), S[FRESH_LIST]):
        S[i] = 0
    S[FRESH_LIST] = first_list(S)
    S[SPARE_LIST] = 0


@helper
def largest(S: I64) -> int:
    """Size of the largest block in any list."""
    found = 0
    first = AT_STREAMS + 1 + S[STREAMS]
    for link in range(first, first + S[AT_STREAMS]):
        if S[link] != 0:
            p = bins.largest(S, S[link])
            if p != 0:
                found = max(found, S[p + SIZE])
    return found
