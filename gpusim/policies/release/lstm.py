"""Keep room for what the next 8 requests add, as a long short-term memory foretells it from all growths so far.

seed  which of five trainings foretells

Growth is what was allocated less what was freed from one request to the next; what this policy swapped out still counts.  The
network has 8 units, sees one growth at each request as a multiple of their mean size so far, and answers such a multiple; from
the ninth request on it is heeded.  It was trained by benchmarks/learning/foretell_lstm.py, and learns nothing while a program
runs.

Source: an LSTM as that of M. Hashemi et al., "Learning memory access patterns", ICML 2018 (there of addresses).
"""

from __future__ import annotations

import math

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING
from gpusim.policies.recurrent import remember
from gpusim.policies.release.parts.foretelling import AHEAD, ASKED, SEEN, growth, keep_room
from gpusim.policies.release.parts.lstm_weights import WEIGHTS

__all__ = ["AHEAD", "SEEN", "release", "state"]

PARAMS = {"seed": 0}
LIMITS = {"seed": 4}
TRAINED = ("resnet50-train", "gpt2-small-train", "gpt2-small-train-fp32")

UNITS = 8
SUM = 6 * UNITS    # word of X


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    """S; in X what the network remembers, and the sum of all sizes."""
    return np.zeros(3, np.int64), np.zeros(6 * UNITS + 1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    expected = 0.0
    if S[ASKED] > 0:
        added = growth(S, allocated)
        X[SUM] += abs(added)
        if X[SUM] > 0.0:
            mean = X[SUM] / S[ASKED]
            answer = remember(WEIGHTS, int(P[0]), math.asinh(added / mean), X)
            if S[ASKED] >= SEEN:
                expected = max(answer, 0.0) * mean
    return keep_room(S, expected, allocated, capacity)
