"""First in, first out: the unit that became resident first leaves first; accesses do not matter.

Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5(2), 1966.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies import pages, queue
from gpusim.policies.compiled import F64, I64, U8, verb
from gpusim.policies.contract import INSERT, REMOVE, TOUCH, VICTIM

TOUCHES = False
Q, W = 0, queue.WORDS  # the queue, oldest arrival first; place_of


def state(n_units: int, capacity: int, params: F64, seed: int) -> tuple[I64, F64]:
    S = np.zeros(W + n_units + queue.slots(n_units), np.int64)
    queue.open_queue(S, Q, W + n_units, queue.slots(n_units))
    return S, np.zeros(1)


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    queue.join(S, Q, W, unit)
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    return 0


@verb(REMOVE)
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    queue.put(S, W + unit, 0)
    return 0


@verb(VICTIM)
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    return queue.oldest(S, Q, W, locked)


def replay(requests: pages.Requests, n_units: int, capacity: int, params: F64, seed: int) -> int:
    """A page leaves with the capacity-th arrival after its own, so that the number of that miss is all there is to know."""
    leaves = np.zeros(n_units, np.uint32)
    misses = 0
    for i in range(requests.shape[0]):
        pages.fetch_ahead(leaves, requests, i)
        unit = np.uint64(requests[i])
        missed = leaves[unit] <= misses
        misses += missed
        leaves[unit] = misses + capacity if missed else leaves[unit]  # a move: a branch would be guessed wrongly too often
    return misses
