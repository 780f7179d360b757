"""Least frequently used: the unit with the fewest accesses since it became resident leaves first.

Among equals the one that reached its count first leaves first; counts start again when a unit comes back.

Source: as libCacheSim's LFU.
"""

from __future__ import annotations

from gpusim.policies import score_heap as heap
from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import INSERT, TOUCH

state, remove, victim = heap.state, heap.remove, heap.victim


@verb(INSERT)
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    heap.set_key(S, X, unit, 1.0)
    return 0


@verb(TOUCH)
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    heap.set_key(S, X, unit, X[unit] + 1.0)
    return 0
