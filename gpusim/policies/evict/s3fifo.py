"""S3-FIFO: new units pass through a small queue, and only those accessed there, or soon after, reach the main queue.

small    the fraction of the capacity for the small queue       ghost  how much of the recent past is remembered, as a
promote  accesses that take a unit from the small queue to the main one                           fraction of the capacity

A unit that comes back while it is remembered joins the main queue at once.  The main queue is a CLOCK with a counter up to
three.

Source: J. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.  As libCacheSim's S3FIFO: until the
first eviction, units that find the small queue full join the main queue.  One difference: libCacheSim refuses units that
are not smaller than the small queue; here everything must become resident, and they join the main queue.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies import queue
from gpusim.policies.compiled import F64, I64, U8, helper, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM
from gpusim.policies.place.parts import marks, sizes

PARAMS = {"small": 0.1, "ghost": 0.9, "promote": 2}

# Evicted units of the small queue stay in its log as ghosts: both are left in the order of arrival.
SMALL, MAIN = 0, queue.WORDS
SMALL_CAP, MAIN_CAP, GHOST_CAP, PROMOTE, EVICTED, RETURNS, MAIN_COUNT, M, SIZES = range(MAIN + queue.WORDS, MAIN + 17)
W = SIZES + sizes.WORDS  # place_of, then sizes, counters, the log of the small queue, the log of the main queue


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    length = queue.slots(n_units)
    log = W + 2 * n_units + marks.words(n_units)
    S = np.zeros(log + 2 * length, np.int64)
    queue.open_queue(S, SMALL, log, length)
    queue.open_queue(S, MAIN, log + length, length)
    small, ghost, promote = params
    S[SMALL_CAP] = int(capacity * small)
    S[MAIN_CAP] = capacity - S[SMALL_CAP]
    S[GHOST_CAP] = int(capacity * ghost)
    S[PROMOTE] = min(int(promote), 3)
    S[RETURNS] = -1  # the unit about to be inserted, when it was a ghost
    sizes.open_sizes(S, SIZES, W + n_units, n_units)
    S[M] = W + 2 * n_units
    return S, np.zeros(1)


@helper
def _forget(S: I64, ghost: int) -> None:
    queue.put(S, W + ghost, 0)
    S[SMALL + queue.GHOST_BYTES] -= sizes.size_of(S, SIZES, ghost)


@helper
def _join(S: I64, q: int, unit: int, size: int) -> None:
    queue.join(S, q, W, unit)
    S[q + queue.BYTES] += size
    if q == MAIN:
        S[MAIN_COUNT] += 1


@helper
def _leave(S: I64, q: int, unit: int, size: int) -> None:
    queue.put(S, W + unit, 0)
    S[q + queue.BYTES] -= size
    if q == MAIN:
        S[MAIN_COUNT] -= 1


@helper
def _queue_of(S: I64, unit: int) -> int:
    return SMALL if queue.get(S, W + unit) < S[MAIN + queue.START] else MAIN


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    returns = S[RETURNS] == unit
    if queue.get(S, W + unit) < 0:
        _forget(S, unit)
        returns = True
    S[RETURNS] = -1
    sizes.note(S, SIZES, unit, size)
    marks.write(S, S[M], unit, 0)
    warming = S[EVICTED] == 0 and S[SMALL + queue.BYTES] >= S[SMALL_CAP]
    _join(S, MAIN if returns or warming or size >= S[SMALL_CAP] else SMALL, unit, size)
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    count = marks.read(S, S[M], unit)
    if count < 3:
        marks.write(S, S[M], unit, count + 1)
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    slot = queue.get(S, W + unit)
    if slot < 0:
        _forget(S, unit)
    if slot <= 0:
        return 0
    q = _queue_of(S, unit)
    _leave(S, q, unit, size)
    if q == SMALL and key != 0.0 and size <= S[GHOST_CAP]:
        while S[SMALL + queue.GHOST_BYTES] + size > S[GHOST_CAP]:
            _forget(S, queue.oldest_ghost(S, SMALL, W))
        queue.put(S, W + unit, -slot)
        S[SMALL + queue.GHOST_BYTES] += size
    return 0


@helper
def _victim_of_small(S: I64, locked: U8) -> int:
    while True:
        unit = queue.oldest(S, SMALL, W, locked)
        if unit < 0 or marks.read(S, S[M], unit) < S[PROMOTE]:
            return unit
        size = sizes.size_of(S, SIZES, unit)
        _leave(S, SMALL, unit, size)
        marks.write(S, S[M], unit, 0)
        _join(S, MAIN, unit, size)


@helper
def _victim_of_main(S: I64, locked: U8) -> int:
    # Three rounds bring every counter to zero; locked units go round unchanged.
    for _ in range(4 * S[MAIN_COUNT]):
        unit = queue.front(S, MAIN, W)
        if locked[np.uint64(unit)] == 0:
            count = marks.read(S, S[M], unit)
            if count == 0:
                return unit
            marks.write(S, S[M], unit, count - 1)
        queue.join(S, MAIN, W, unit)
    return -1


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    S[EVICTED] = 1
    if queue.get(S, W + incoming) < 0:
        _forget(S, incoming)
        S[RETURNS] = incoming
    q = SMALL if S[MAIN + queue.BYTES] <= S[MAIN_CAP] else MAIN
    for _ in range(2):
        unit = _victim_of_small(S, locked) if q == SMALL else _victim_of_main(S, locked)
        if unit >= 0:
            return unit
        q = SMALL + MAIN - q
    return -1
