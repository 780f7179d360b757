"""The stream-ordered layer: a free list for every stream, in which others look when they have to.

    [ events | event of each stream | free list of each event ]

A stream gets an event when it is first seen, and events are numbered in that order.  A request looks for a block

1. in its own stream's list,
2. in each other list, by number: taking one makes its stream wait for the other's event,
3. in its own list again, after each other list was merged into it, by number, with a wait each.

The kind of free list is the resource's: it passes new(S, r, link) -> list, room(S, list, need) -> block or 0, and
merge(S, list, other) -> list.  A list is the index of its words; `link`, the word that names it, is 0 while there is none.

Source: rmm/mr/detail/stream_ordered_memory_resource.hpp, RMM 26.04 to 26.10.
"""

from __future__ import annotations

from typing import Any

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.rmm.table import LEGACY, RECORDS, STREAMS, WAITS


def words(streams: int) -> int:
    """Of the layer in a table, for so many streams."""
    return 1 + 2 * streams


@helper
def link_of(S: I64, r: int, stream: int) -> int:
    """The word that names the stream's list; the stream gets its event.  r: where these words begin."""
    stream = min(0 if stream == S[LEGACY] else stream, S[STREAMS] - 1)
    event = S[r + 1 + stream]
    if event == 0:
        event = S[r] + 1
        S[r + 1 + stream] = S[r] = event
    return r + S[STREAMS] + event


@helper
def own_list(S: I64, r: int, stream: int, new: Any) -> int:
    """The stream's list, made when it is missing."""
    link = link_of(S, r, stream)
    if S[link] == 0:
        S[link] = new(S, r, link)
    return S[link]


@helper
def find(S: I64, r: int, stream: int, need: int, records: int, new: Any, room: Any, merge: Any) -> tuple[int, int]:
    """(list, block in it) for a request; block 0 when there is none, and all lists are one then.

    records: events recorded at each merge.
    """
    own = link_of(S, r, stream)
    if S[own] != 0:
        p = room(S, S[own], need)
        if p != 0:
            return S[own], p
    else:
        S[own] = new(S, r, own)
    first = r + S[STREAMS] + 1
    for merging in range(2):
        for link in range(first, first + S[r]):
            other = S[link]
            if other == 0 or link == own:
                continue
            if merging:
                other = S[own] = merge(S, S[own], other)
                S[link] = 0
                S[WAITS] += 1
                S[RECORDS] += records
            p = room(S, other, need)
            if p != 0:
                S[WAITS] += 1 - merging
                return other, p
    return S[own], 0


@helper
def clear(S: I64, r: int) -> None:
    """No stream has been seen."""
    for i in range(r, r + 1 + 2 * S[STREAMS]):
        S[i] = 0
