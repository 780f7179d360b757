"""Keep room for `ahead` requests more, should memory go on growing as it did of late: an exponential moving average.

ahead   requests for which there shall be room
weight  of what came with the latest request in the average

Growth is what was allocated less what was freed from one request to the next; what this policy swapped out still counts.
What is lacking leaves in the background, so that the requests do not wait for copies.

Source: R. G. Brown, "Statistical forecasting for inventory control", McGraw-Hill, 1959 (exponential smoothing).
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"ahead": 8, "weight": 0.1}
LIMITS = {"weight": 1.0}

ASKED, ALLOCATED, SENT = range(3)  # words of S: requests so far; bytes allocated, and swapped out, at the latest


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    """S, and in X the average growth."""
    return np.zeros(3, np.int64), np.zeros(1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    if S[ASKED] > 0:
        X[0] += P[1] * (allocated - S[ALLOCATED] + S[SENT] - X[0])
    lacking = int(P[0] * X[0]) - (capacity - allocated)
    S[ASKED] += 1
    S[ALLOCATED], S[SENT] = allocated, min(max(0, lacking), allocated)
    return S[SENT]
