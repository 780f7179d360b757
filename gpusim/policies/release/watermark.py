"""Write back in the background: when less than `low` of the memory is free, until `high` of it is.

Source: kswapd of the Linux kernel, mm/vmscan.c (below a zone's low watermark it reclaims up to the high one).
"""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"low": 0.05, "high": 0.1}
LIMITS = {"low": 1.0, "high": 1.0}


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    """No tables; PolicyError for marks the wrong way round."""
    if params[0] > params[1]:
        raise PolicyError(f"policy 'watermark' has its low mark ({params[0]:g}) above its high one ({params[1]:g})")
    return np.zeros(1, np.int64), np.zeros(1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    free = capacity - allocated
    if free >= P[0] * capacity:
        return 0
    return int(P[1] * capacity) - free
