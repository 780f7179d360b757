"""First in, first out: the unit that became resident first leaves first; accesses do not matter.

Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies import queue
from gpusim.policies.compiled import verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

TOUCHES = False
Q, W = 0, queue.WORDS  # the queue, oldest arrival first; place_of


def state(
    n_units: int, capacity: int, params: npt.NDArray[np.float64], seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    S = np.zeros(W + n_units + queue.slots(n_units), np.int64)
    queue.open_queue(S, Q, W + n_units, queue.slots(n_units))
    return S, np.zeros(1)


@verb(INSERT)
def insert(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    queue.join(S, Q, W, unit)
    return 0


@verb(TOUCH)
def touch(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    return 0


@verb(REMOVE)
def remove(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    S[W + unit] = 0
    return 0


@verb(VICTIM)
def victim(S, X, incoming, size, locked):  # type: ignore[no-untyped-def]
    return queue.oldest(S, Q, W, locked)
