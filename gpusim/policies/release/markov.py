"""Keep room for the next `ahead` requests as a Markov chain of size classes expects them, learned while the program runs.

ahead  requests for which there shall be room

A class holds the sizes of one power of two; the chain knows how often each class followed each, and a class stands for the mean
of its sizes so far.  Of a class that nothing has followed yet, it expects the same again.  What is lacking leaves in the
background, so that the requests do not wait for copies.

Source: D. Joseph and D. Grunwald, "Prefetching using Markov predictors", ISCA 1997 (there of addresses).
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"ahead": 8}

CLASSES = 40  # sizes of 2^k up to 2^(k + 1) bytes; larger ones are of the last class
LAST, COUNT = 0, 1  # words of S: class of the latest request + 1; then how often each class followed each
SUM, SEEN = 0, CLASSES  # parts of X: bytes and requests of each class; then the chain's state, twice


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    return np.zeros(COUNT + CLASSES * CLASSES, np.int64), np.zeros(4 * CLASSES)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    k, rest = 0, size
    while rest > 1 and k < CLASSES - 1:
        rest >>= 1
        k += 1
    if S[LAST] > 0:
        S[COUNT + (S[LAST] - 1) * CLASSES + k] += 1
    S[LAST] = k + 1
    X[SUM + k] += size
    X[SEEN + k] += 1.0
    here, there = 2 * CLASSES, 3 * CLASSES
    for i in range(CLASSES):
        X[here + i] = 0.0
    X[here + k] = 1.0
    expected = 0.0
    for _ in range(int(P[0])):
        for j in range(CLASSES):
            X[there + j] = 0.0
        for i in range(CLASSES):
            if X[here + i] > 0.0:
                row = COUNT + i * CLASSES
                total = 0
                for j in range(CLASSES):
                    total += S[row + j]
                if total == 0:
                    X[there + i] += X[here + i]
                else:
                    for j in range(CLASSES):
                        X[there + j] += X[here + i] * S[row + j] / total
        here, there = there, here
        for j in range(CLASSES):
            if X[here + j] > 0.0:
                expected += X[here + j] * X[SUM + j] / X[SEEN + j]
    lacking = int(expected) - (capacity - allocated)
    return min(max(0, lacking), allocated)
