"""CLOCK, or second chance: first in, first out, but a unit accessed since it was last looked at goes round once more.

Source: F. J. Corbato, "A paging experiment with the Multics system", MIT Project MAC, 1968.  One reference bit, as in
libCacheSim's Clock.  A locked unit goes round with its bit unchanged.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies import pages, queue
from gpusim.policies.compiled import F64, I64, U8, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM
from gpusim.policies.place.parts import marks

Q = 0  # the queue
COUNT, M = queue.WORDS, queue.WORDS + 1  # resident units; first word of the reference bits
W = queue.WORDS + 2  # place_of, then the reference bits, then the log


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    log = W + n_units + marks.words(n_units)
    S = np.zeros(log + queue.slots(n_units), np.int64)
    queue.open_queue(S, Q, log, queue.slots(n_units))
    S[M] = W + n_units
    return S, np.zeros(1)


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    queue.join(S, Q, W, unit)
    S[COUNT] += 1
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    marks.mark(S, S[M], unit)
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    if queue.get(S, W + unit) != 0:
        queue.put(S, W + unit, 0)
        S[COUNT] -= 1
        if marks.read(S, S[M], unit) != 0:
            marks.write(S, S[M], unit, 0)
    return 0


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    # The first round clears every bit, so the second finds any unit that is not locked.
    for _ in range(2 * S[COUNT]):
        unit = queue.front(S, Q, W)
        if locked[np.uint64(unit)] == 0:
            if marks.read(S, S[M], unit) == 0:
                return unit
            marks.write(S, S[M], unit, 0)
        S[Q + queue.LIVE] += 1
        queue.join(S, Q, W, unit)
    return -1


def replay(requests: pages.Requests, n_units: int, capacity: int, params: F64, seed: int) -> int:
    """Pages stand on a ring: one with a second chance keeps its slot while the hand goes on, a new one takes the victim's."""
    kind = np.zeros(n_units, np.uint8)
    ring = np.zeros(capacity, np.uint32)
    misses = hand = 0
    for i in range(requests.shape[0]):
        pages.fetch_ahead(kind, requests, i)
        unit = np.uint64(requests[i])
        if kind[unit] != pages.ABSENT:
            kind[unit] = pages.ACCESSED
            continue
        if misses >= capacity:
            while kind[ring[hand]] == pages.ACCESSED:
                kind[ring[hand]] = pages.RESIDENT
                hand = hand + 1 if hand + 1 < capacity else 0
            kind[ring[hand]] = pages.ABSENT
        misses += 1
        ring[hand] = unit
        kind[unit] = pages.RESIDENT
        hand = hand + 1 if hand + 1 < capacity else 0
    return misses
