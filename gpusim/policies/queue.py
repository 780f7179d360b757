"""A queue over a log: what FIFO, LRU, CLOCK, SIEVE, S3-FIFO and ARC keep their units in.

    log     | stale | ghost | ghost | stale | unit | stale | unit | unit |  ......  |
            START   HEAD                    LIVE                          TAIL      END

A unit joins by being written at TAIL; it leaves, or moves to the newest end, by forgetting its old slot, which is then
*stale*.  So every change is one sequential and one random write, without the neighbours that a linked list touches.
When TAIL reaches END the stale slots are squeezed out; that is O(1) per join because a log has half as many slots more
than there are units.  Evicted units may stay as *ghosts*: being the oldest of their queue they stand before LIVE.

`place_of[unit]` is the index of the unit's slot in S, negative while it is a ghost, 0 when it is in no queue.  The
table starts at word `w`, the words of a queue at word `q`.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import I64, U8, helper, prefetch

START, HEAD, LIVE, TAIL, END, BYTES, GHOST_BYTES = range(7)
WORDS = 8  # words of one queue
AHEAD = 12  # slots by which the place of a unit is fetched before it is looked at


def slots(n_units: int) -> int:
    """Length of a log over n_units."""
    return n_units + n_units // 2 + 16


def open_queue(S: I64, q: int, start: int, length: int) -> None:
    """An empty queue whose log is S[start:start + length]; start > 0."""
    S[[q + START, q + HEAD, q + LIVE, q + TAIL]] = start
    S[q + END] = start + length


@helper
def get(S: I64, i: int) -> int:
    """S[i] for i >= 0: an unsigned index spares numba the test for a negative one, a quarter of the time of a replay."""
    return S[np.uint64(i)]


@helper
def put(S: I64, i: int, value: int) -> None:
    S[np.uint64(i)] = value


@helper
def _fetch_ahead(S: I64, w: int, slot: int, end: int) -> None:
    """Tell the processor that the place of the unit AHEAD slots further is needed soon."""
    prefetch(S, w + get(S, min(slot + AHEAD, end - 1)))


@helper
def join(S: I64, q: int, w: int, unit: int) -> None:
    """The unit becomes the newest of queue q, whatever slot it had before."""
    if S[q + TAIL] == S[q + END]:
        squeeze(S, q, w)
    slot = S[q + TAIL]
    put(S, slot, unit)
    put(S, w + unit, slot)
    S[q + TAIL] = slot + 1


@helper
def squeeze(S: I64, q: int, w: int) -> None:
    """Move the valid slots to the start of the log; LIVE stays at the unit where it is, or moves to the next one."""
    into = S[q + START]
    live = max(S[q + LIVE], S[q + HEAD])
    end = S[q + TAIL]
    for slot in range(S[q + HEAD], end):
        _fetch_ahead(S, w, slot, end)
        if slot == live:
            S[q + LIVE] = into
        unit = get(S, slot)
        place = get(S, w + unit)
        if place == slot or place == -slot:
            put(S, into, unit)
            put(S, w + unit, into if place > 0 else -into)
            into += 1
    if live == end:
        S[q + LIVE] = into
    S[q + HEAD] = S[q + START]
    S[q + TAIL] = into


@helper
def front(S: I64, q: int, w: int) -> int:
    """The oldest live unit, or -1."""
    slot = S[q + LIVE]
    end = S[q + TAIL]
    while slot < end and get(S, w + get(S, slot)) != slot:
        slot += 1
        _fetch_ahead(S, w, slot, end)
    S[q + LIVE] = slot  # what is skipped here is stale, or a ghost
    _fetch_ahead(S, w, slot + 1, end)
    return get(S, slot) if slot < end else -1


@helper
def oldest(S: I64, q: int, w: int, locked: U8) -> int:
    """The oldest live unit that is not locked, or -1."""
    unit = front(S, q, w)
    if unit < 0 or locked[np.uint64(unit)] == 0:
        return unit
    for slot in range(S[q + LIVE] + 1, S[q + TAIL]):
        unit = get(S, slot)
        if get(S, w + unit) == slot and locked[np.uint64(unit)] == 0:
            return unit
    return -1


@helper
def oldest_ghost(S: I64, q: int, w: int) -> int:
    """The ghost that left first, or -1."""
    slot = S[q + HEAD]
    end = S[q + TAIL]
    while slot < end and get(S, w + get(S, slot)) != -slot:
        if get(S, w + get(S, slot)) == slot:  # a locked unit was passed over: ghosts may stand behind it, HEAD stays here
            S[q + HEAD] = slot
            while slot < end and get(S, w + get(S, slot)) != -slot:
                slot += 1
            return get(S, slot) if slot < end else -1
        slot += 1
        _fetch_ahead(S, w, slot, end)
    S[q + HEAD] = slot
    _fetch_ahead(S, w, slot + 1, end)
    return get(S, slot) if slot < end else -1
