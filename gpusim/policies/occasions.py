"""The occasions for defragmentation that the built-in policies share."""

from __future__ import annotations

from gpusim.policies.compiled import F64, helper
from gpusim.policies.contract import REFUSED

BEFORE_OOM, THRESHOLD, EVERY = range(3)  # parameters


@helper
def due(P: F64, when: int, allocs: int, held: int, free: int, largest: int) -> int:
    if when == REFUSED:
        return int(P[BEFORE_OOM] != 0)
    every = int(P[EVERY])
    if every > 0 and allocs % every == 0:
        return 1
    return int(P[THRESHOLD] > 0 and free - largest > P[THRESHOLD] * held)
