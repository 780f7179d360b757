"""The verbs of every score policy: a binary heap of the resident units, lowest (key, time of getting it) on top.

    S   [COUNT, CLOCK, N, -, | place_of[n] | stamp[n] | heap[n]]     X   key[n]

place_of[unit] is 1 + the unit's index in the heap, 0 when absent.  Equal keys leave in the order in which they were set,
so that a run is the same run every time.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, U8, helper, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

COUNT, CLOCK, N = range(3)
PLACE = 4  # first word of place_of


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    """Empty tables for n_units; capacity (bytes), params and seed do not matter."""
    S = np.zeros(PLACE + 3 * n_units, np.int64)
    S[N] = n_units
    return S, np.zeros(n_units)


@helper
def _before(S: I64, X: F64, a: int, b: int) -> bool:
    if X[a] != X[b]:
        return X[a] < X[b]
    stamps = PLACE + S[N]
    return S[stamps + a] < S[stamps + b]


@helper
def _put(S: I64, i: int, unit: int) -> None:
    S[PLACE + 2 * S[N] + i] = unit
    S[PLACE + unit] = i + 1


@helper
def _up(S: I64, X: F64, i: int, unit: int) -> None:
    """Let `unit` rise from index i, which is free, to where it belongs."""
    heap = PLACE + 2 * S[N]
    while i > 0:
        parent = (i - 1) >> 1
        other = S[heap + parent]
        if not _before(S, X, unit, other):
            break
        _put(S, i, other)
        i = parent
    _put(S, i, unit)


@helper
def _down(S: I64, X: F64, i: int, unit: int) -> None:
    """Let `unit` sink from index i, which is free, to where it belongs."""
    heap = PLACE + 2 * S[N]
    count = S[COUNT]
    while 2 * i + 1 < count:
        child = 2 * i + 1
        if child + 1 < count and _before(S, X, S[heap + child + 1], S[heap + child]):
            child += 1
        other = S[heap + child]
        if not _before(S, X, other, unit):
            break
        _put(S, i, other)
        i = child
    _put(S, i, unit)


@helper
def set_key(S: I64, X: F64, unit: int, key: float) -> None:
    """The unit joins with this key, or changes to it."""
    i = S[PLACE + unit] - 1
    if i >= 0 and X[unit] == key:
        return
    rises = i < 0 or key < X[unit]
    if i < 0:
        i = S[COUNT]
        S[COUNT] = i + 1
    X[unit] = key
    S[CLOCK] += 1
    S[PLACE + S[N] + unit] = S[CLOCK]
    if rises:
        _up(S, X, i, unit)
    else:
        _down(S, X, i, unit)


@helper
def take_out(S: I64, X: F64, unit: int) -> None:
    """The unit leaves the heap; nothing happens when it is not there."""
    i = S[PLACE + unit] - 1
    if i < 0:
        return
    S[PLACE + unit] = 0
    S[COUNT] -= 1
    last = S[PLACE + 2 * S[N] + S[COUNT]]
    if last == unit:
        return
    if _before(S, X, last, unit):
        _up(S, X, i, last)
    else:
        _down(S, X, i, last)


@helper
def lowest(S: I64, X: F64, locked: U8) -> int:
    """The unit with the lowest key that is not locked, or -1."""
    heap = PLACE + 2 * S[N]
    count = S[COUNT]
    found = -1
    # Locked units on the way are parked behind the shrinking heap and then put back.
    while S[COUNT] > 0:
        top = S[heap]
        if locked[top] == 0:
            found = top
            break
        S[COUNT] -= 1
        last = S[heap + S[COUNT]]
        S[heap + S[COUNT]] = top
        if S[COUNT] > 0:
            _down(S, X, 0, last)
    while S[COUNT] < count:
        i = S[COUNT]
        S[COUNT] = i + 1
        _up(S, X, i, S[heap + i])
    return found


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    set_key(S, X, unit, key)
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    set_key(S, X, unit, key)
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    take_out(S, X, unit)
    return 0


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    return lowest(S, X, locked)
