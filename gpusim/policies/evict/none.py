"""Nothing ever leaves: what does not fit is out of memory."""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, U8, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

FORM = "none"
TOUCHES = False


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    return np.zeros(1, np.int64), np.zeros(1)


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    return 0


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    return -1
