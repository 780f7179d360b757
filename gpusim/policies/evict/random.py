"""Any unit, all with the same chance: what every other policy has to beat.  The run's seed decides.

Source: the classical baseline; the generator is the "minimal standard" of S. K. Park and K. W. Miller, CACM 31(10), 1988.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, U8, helper, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

TOUCHES = False
COUNT, DICE, LIST = range(3)  # resident units; the generator's state; first word of their list
PRIME = 2**31 - 1
W = 3  # 1 + the unit's index in the list, 0 when absent; then the list


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    S = np.zeros(W + 2 * n_units, np.int64)
    S[DICE] = pow(48271, 3, PRIME) * (seed % (PRIME - 1) + 1) % PRIME  # neighbouring seeds shall not begin alike
    S[LIST] = W + n_units
    return S, np.zeros(1)


@helper
def _roll(S: I64, sides: int) -> int:
    S[DICE] = np.int64(S[DICE]) * 48271 % PRIME
    return S[DICE] % sides


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    S[S[LIST] + S[COUNT]] = unit
    S[COUNT] += 1
    S[W + unit] = S[COUNT]
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    i = S[W + unit]
    if i > 0:
        last = S[S[LIST] + S[COUNT] - 1]
        S[S[LIST] + i - 1] = last
        S[W + last] = i
        S[W + unit] = 0
        S[COUNT] -= 1
    return 0


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    count = S[COUNT]
    if count == 0:
        return -1
    start = _roll(S, count)
    for step in range(count):
        unit = S[S[LIST] + (start + step) % count]
        if locked[unit] == 0:
            return unit
    return -1
