"""Nothing ever leaves: what does not fit is out of memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

FORM = "none"
TOUCHES = False


def state(
    n_units: int, capacity: int, params: npt.NDArray[np.float64], seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    return np.zeros(1, np.int64), np.zeros(1)


@verb(INSERT)
def insert(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    return 0


@verb(TOUCH)
def touch(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    return 0


@verb(REMOVE)
def remove(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    return 0


@verb(VICTIM)
def victim(S, X, incoming, size, locked):  # type: ignore[no-untyped-def]
    return -1
