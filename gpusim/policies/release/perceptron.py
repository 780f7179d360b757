"""Keep room for what the next 8 requests add, as a network foretells it from the growths at the last 8.

seed  which of five trainings foretells

Growth is what was allocated less what was freed from one request to the next; what this policy swapped out still counts.  The
network has 8 hidden units, sees growths as multiples of their mean size so far, and answers such a multiple.  It was
trained by benchmarks/learning/foretell.py, and learns nothing while a program runs.

Source: a perceptron in place of the LSTM of M. Hashemi et al., "Learning memory access patterns", ICML 2018 (there of
addresses).
"""

from __future__ import annotations

import math

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING
from gpusim.policies.network import answer
from gpusim.policies.release.parts.foretelling import AHEAD, ASKED, SEEN, growth, keep_room
from gpusim.policies.release.parts.perceptron_weights import WEIGHTS

__all__ = ["AHEAD", "SEEN", "release", "state"]

PARAMS = {"seed": 0}
LIMITS = {"seed": 4}
TRAINED = ("resnet50-train", "gpt2-small-train", "gpt2-small-train-fp32")

SUM = 2 * SEEN     # word of X


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    """S; in X the latest growths as the network sees them, the newest first, these in bytes, and the sum of all sizes."""
    return np.zeros(3, np.int64), np.zeros(2 * SEEN + 1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    expected = 0.0
    if S[ASKED] > 0:
        for i in range(SEEN - 1, 0, -1):
            X[SEEN + i] = X[SEEN + i - 1]
        X[SEEN] = growth(S, allocated)
        X[SUM] += abs(X[SEEN])
    if S[ASKED] >= SEEN and X[SUM] > 0.0:
        mean = X[SUM] / S[ASKED]
        for i in range(SEEN):
            X[i] = math.asinh(X[SEEN + i] / mean)
        expected = max(answer(WEIGHTS, int(P[0]), X), 0.0) * mean
    return keep_room(S, expected, allocated, capacity)
