"""Give memory up before it is short, in three stages: a step of it at a time, and a quarter of that once it is scarce.

mark  share of the memory that is free when the first stage begins
step  share of the memory that leaves at once; where less than a quarter of the mark is free, a quarter of the step

How much leaves is decided here, which by the evict policy: `staged` takes caches first, then intermediates, and when there is
nothing else what lasts, such as parameters, which the small steps are for.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"mark": 0.2, "step": 0.05}
LIMITS = {"mark": 1.0, "step": 1.0}


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    """No tables."""
    return np.zeros(1, np.int64), np.zeros(1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    free = capacity - allocated
    if free >= P[0] * capacity:
        return 0
    step = P[1] * capacity
    if free < P[0] * capacity / 4:
        step /= 4
    return min(int(step), allocated)
