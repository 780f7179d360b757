"""RMM's resource of blocks of one size: free lists in which the block freed first serves first, filled a chunk at a time.

    [ block size, blocks of a chunk | the stream-ordered layer | first and last block of each event's list ]

Several of these may be in one table (binning), each beginning at its word r.  A block is (address, next in its list, r).

Source: rmm/mr/fixed_size_memory_resource.hpp and detail/fixed_size_free_list.hpp, RMM 26.04.
"""

from __future__ import annotations

from typing import Any

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.rmm import streams
from gpusim.policies.place.parts.rmm.table import STREAMS

SIZE, BLOCKS, LAYER = range(3)          # words of a resource
ADDR, LINK, OF, BLOCK_WORDS = range(4)  # words of a block


def words(n_streams: int) -> int:
    """Of one resource in a table."""
    return LAYER + streams.words(n_streams) + 2 * n_streams


@helper
def new_list(S: I64, r: int, link: int) -> int:
    """The list of an event has its words all the time: they are empty while the layer names none."""
    first = r + 1 + S[STREAMS]
    return first + S[STREAMS] + 2 * (link - first)


@helper
def room(S: I64, at: int, need: int) -> int:
    return S[at]


@helper
def append(S: I64, at: int, first: int, last: int) -> None:
    """Put a chain of blocks at the end of a list."""
    if S[at] == 0:
        S[at] = first
    else:
        S[S[at + 1] + LINK] = first
    S[at + 1] = last


@helper
def merge(S: I64, a: int, b: int) -> int:
    """List b at the end of list a."""
    if S[b] != 0:
        append(S, a, S[b], S[b + 1])
        S[b] = 0
    return a


@helper
def fill(S: I64, r: int, at: int, stream: int, fresh: int, end: int, upstream: Any) -> bool:
    """A chunk from upstream(S, stream, bytes), its blocks in the order of their addresses; False when it is refused.

    fresh: the word that names the first block never used; end: where these end.
    """
    size, count, p = S[r + SIZE], S[r + BLOCKS], S[fresh]
    if p + BLOCK_WORDS * count > end:
        return False
    addr = upstream(S, stream, size * count)
    if addr < 0:
        return False
    last = p + BLOCK_WORDS * (count - 1)
    for q in range(p, last + 1, BLOCK_WORDS):
        S[q + ADDR], S[q + LINK], S[q + OF] = addr, q + BLOCK_WORDS, r
        addr += size
    S[fresh] = last + BLOCK_WORDS
    append(S, at, p, last)
    return True


@helper
def take(S: I64, r: int, stream: int, need: int, records: int, fresh: int, end: int, upstream: Any) -> int:
    """A block for the stream; 0: out of memory."""
    if need > S[r + SIZE]:
        streams.link_of(S, r + LAYER, stream)
        return 0
    at, p = streams.find(S, r + LAYER, stream, need, records, new_list, room, merge)
    if p == 0:
        if not fill(S, r, at, stream, fresh, end, upstream):
            return 0
        p = S[at]
    S[at] = 0 if p == S[at + 1] else S[p + LINK]
    return p


@helper
def give(S: I64, stream: int, p: int) -> None:
    append(S, streams.own_list(S, S[p + OF] + LAYER, stream, new_list), p, p)


@helper
def clear(S: I64, r: int) -> None:
    """There are no blocks."""
    for i in range(r + LAYER, r + LAYER + 1 + 4 * S[STREAMS]):
        S[i] = 0


@helper
def has_free(S: I64, r: int) -> bool:
    first, found = r + LAYER + 1 + S[STREAMS], False
    for link in range(first, first + S[r + LAYER]):
        found = found or (S[link] != 0 and S[S[link]] != 0)
    return found
