"""Least recently used: the unit whose latest access is the oldest leaves first.

Source: P. J. Denning, "The working set model for program behavior", CACM 11(5), 1968; LRU as in any textbook.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies import queue
from gpusim.policies.compiled import verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

Q, W = 0, queue.WORDS  # the queue, oldest access first; place_of


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
    queue.join(S, Q, W, unit)
    return 0


@verb(REMOVE)
def remove(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    S[W + unit] = 0
    return 0


@verb(VICTIM)
def victim(S, X, incoming, size, locked):  # type: ignore[no-untyped-def]
    return queue.oldest(S, Q, W, locked)
