"""Keep room for the next `ahead` requests, were they of the average size of late: an exponential moving average.

ahead   requests for which there shall be room
weight  of the latest request in the average

What is lacking leaves in the background, so that the requests do not wait for copies.  Nothing is known of frees to come.

Source: R. G. Brown, "Statistical forecasting for inventory control", McGraw-Hill, 1959 (exponential smoothing).
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"ahead": 8, "weight": 0.1}
LIMITS = {"weight": 1.0}


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    """X: [average, bytes]; S: [requests so far]."""
    return np.zeros(1, np.int64), np.zeros(1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    X[0] = size if S[0] == 0 else X[0] + P[1] * (size - X[0])
    S[0] += 1
    lacking = int(P[0] * X[0]) - (capacity - allocated)
    return min(max(0, lacking), allocated)
