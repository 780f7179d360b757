"""A queue over a log: what FIFO, LRU, CLOCK, SIEVE, S3-FIFO and ARC keep their units in.

    log     | stale | ghost | ghost | stale | unit | stale | unit | unit |  ......  |
            START   HEAD                    LIVE                          TAIL      END

A unit joins by being written at TAIL; it leaves, or moves to the newest end, by forgetting its old slot, which is then
*stale*.  So every change is one sequential and one random write, without the neighbours that a linked list touches.  When
TAIL reaches END the stale slots are squeezed out; that is O(1) per join because a log has half as many slots more than
there are units.  Evicted units may stay as *ghosts*: being the oldest of their queue they stand before LIVE.

`place_of[unit]` is the index of the unit's slot in S, negative while it is a ghost, 0 when it is in no queue.  The table
starts at word `w`, the six words of a queue at word `q`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import helper

START, HEAD, LIVE, TAIL, END, BYTES = range(6)
WORDS = 8  # words of one queue


def slots(n_units: int) -> int:
    """Length of a log over n_units."""
    return n_units + n_units // 2 + 16


def open_queue(S: npt.NDArray[np.int64], q: int, start: int, length: int) -> None:
    """An empty queue whose log is S[start:start + length]; start > 0."""
    S[q + START] = S[q + HEAD] = S[q + LIVE] = S[q + TAIL] = start
    S[q + END] = start + length
    S[q + BYTES] = 0


@helper
def join(S, q, w, unit):  # type: ignore[no-untyped-def]
    """The unit becomes the newest of queue q, whatever slot it had before."""
    if S[q + TAIL] == S[q + END]:
        squeeze(S, q, w)
    slot = S[q + TAIL]
    S[slot] = unit
    S[w + unit] = slot
    S[q + TAIL] = slot + 1


@helper
def squeeze(S, q, w):  # type: ignore[no-untyped-def]
    """Move the valid slots to the start of the log; HEAD and LIVE stay at the units where they are."""
    into = S[q + START]
    live = S[q + LIVE]
    first_live = -1
    for slot in range(S[q + HEAD], S[q + TAIL]):
        if slot >= live and first_live < 0:
            first_live = into
        unit = S[slot]
        place = S[w + unit]
        if place == slot:
            S[into] = unit
            S[w + unit] = into
            into += 1
        elif place == -slot:
            S[into] = unit
            S[w + unit] = -into
            into += 1
    S[q + HEAD] = S[q + START]
    S[q + LIVE] = first_live if first_live >= 0 else into
    S[q + TAIL] = into


@helper
def oldest(S, q, w, locked):  # type: ignore[no-untyped-def]
    """The oldest live unit that is not locked, or -1."""
    slot = S[q + LIVE]
    end = S[q + TAIL]
    while slot < end and S[w + S[slot]] != slot:
        slot += 1
    S[q + LIVE] = slot  # what is skipped here is stale or a ghost for good
    while slot < end:
        unit = S[slot]
        if S[w + unit] == slot and locked[unit] == 0:
            return unit
        slot += 1
    return -1


@helper
def oldest_ghost(S, q, w):  # type: ignore[no-untyped-def]
    """The ghost that left first, or -1."""
    slot = S[q + HEAD]
    end = S[q + TAIL]
    while slot < end:
        unit = S[slot]
        place = S[w + unit]
        if place == -slot:
            S[q + HEAD] = slot
            return unit
        if place == slot:
            break
        slot += 1
    S[q + HEAD] = slot
    # A locked unit may stand before ghosts that left after it.
    while slot < end:
        if S[w + S[slot]] == -slot:
            return S[slot]
        slot += 1
    return -1
