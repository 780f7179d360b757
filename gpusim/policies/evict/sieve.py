"""SIEVE: a hand walks from the oldest unit to the newest, spares those accessed since its last visit, evicts the first other.

Unlike CLOCK, a spared unit keeps its place in the queue, so that new units are looked at soon.

Source: Y. Zhang et al., "SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for web caches", NSDI 2024.
As libCacheSim's Sieve: after evicting the newest unit the hand starts again at the oldest.  The hand passes locked units.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies import pages, queue
from gpusim.policies.compiled import F64, I64, U8, helper, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM
from gpusim.policies.place.parts import marks

Q, HAND = 0, queue.LIVE  # the queue; its word LIVE is the slot of the hand
COUNT, M = queue.WORDS, queue.WORDS + 1  # resident units; first word of the access bits
W = queue.WORDS + 2  # place_of, then the access bits, then the log


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


@helper
def _settle(S: I64) -> None:
    """Let the hand point at a resident unit: the next newer one, or the oldest when there is none."""
    hand = S[Q + HAND]
    end = S[Q + queue.TAIL]
    while hand < end and S[W + S[hand]] != hand:
        hand += 1
    S[Q + HAND] = hand
    if hand == end:
        queue.squeeze(S, Q, W)  # at most once a round, so that the rounds stay as short as the queue
        S[Q + HAND] = S[Q + queue.START]


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    # The first round clears every bit, so the second finds any unit that is not locked.
    for _ in range(2 * S[COUNT]):
        _settle(S)
        unit = S[S[Q + HAND]]
        S[Q + HAND] += 1
        if locked[np.uint64(unit)] == 0:
            if marks.read(S, S[M], unit) == 0:
                _settle(S)  # now: a unit that arrives after this eviction is not ahead of the hand
                return unit
            marks.write(S, S[M], unit, 0)
    return -1


def replay(requests: pages.Requests, n_units: int, capacity: int, params: F64, seed: int) -> int:
    """The queue is log[:kept], which the hand has passed in this round, and then log[hand:tail]: no slot of it is stale."""
    kind = np.zeros(n_units, np.uint8)
    log = np.zeros(2 * capacity, np.uint32)
    misses = kept = hand = tail = 0
    for i in range(requests.shape[0]):
        pages.fetch_ahead(kind, requests, i)
        unit = np.uint64(requests[i])
        if kind[unit] != pages.ABSENT:
            kind[unit] = pages.ACCESSED
            continue
        if misses >= capacity:
            while kind[log[hand]] == pages.ACCESSED:
                kind[log[hand]] = pages.RESIDENT
                log[kept] = log[hand]
                kept += 1
                hand += 1
                if hand == tail:
                    kept, hand, tail = 0, 0, kept
            kind[log[hand]] = pages.ABSENT
            hand += 1
            if hand == tail:
                kept, hand, tail = 0, 0, kept
            if tail == log.shape[0]:  # close the gap
                for slot in range(hand, tail):
                    log[kept + slot - hand] = log[slot]
                hand, tail = kept, kept + tail - hand
        misses += 1
        log[tail] = unit
        tail += 1
        kind[unit] = pages.RESIDENT
    return misses
