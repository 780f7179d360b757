"""Keep room for what the next `ahead` requests add, as a Markov chain of growth expects it, learned while the program runs.

ahead  requests for which there shall be room

Growth is what was allocated less what was freed from one request to the next; what this policy swapped out still counts.
A class holds the growths of one sign and one power of two, and stands for their mean so far; the chain knows how often each
class followed each.  Of a class that nothing has followed yet, it expects the same again.  What is lacking when most is
expected to be there leaves in the background, so that the requests do not wait for copies.

Source: D. Joseph and D. Grunwald, "Prefetching using Markov predictors", ISCA 1997 (there of addresses).
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"ahead": 8}

POWERS = 41                # 2^k up to 2^(k + 1) bytes; larger ones are of the last
CLASSES = 2 * POWERS + 1   # shrinking, the same (POWERS), growing
ASKED, ALLOCATED, SENT, LAST, COUNT = range(5)
# Words of S: requests so far; bytes allocated, and swapped out, at the latest; its class; then how often each followed each.
SUM, SEEN, STATE = 0, CLASSES, 2 * CLASSES  # parts of X: bytes and number of each class's growths; the chain's state, twice


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    return np.zeros(COUNT + CLASSES * CLASSES, np.int64), np.zeros(4 * CLASSES)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    expected = 0.0
    if S[ASKED] > 0:
        growth = allocated - S[ALLOCATED] + S[SENT]
        power, rest = 0, abs(growth)
        while rest > 0 and power < POWERS:
            rest >>= 1
            power += 1
        k = POWERS + power if growth > 0 else POWERS - power
        if S[ASKED] > 1:
            S[COUNT + S[LAST] * CLASSES + k] += 1
        S[LAST] = k
        X[SUM + k] += growth
        X[SEEN + k] += 1.0
        here, there = STATE, STATE + CLASSES
        for i in range(CLASSES):
            X[here + i] = 0.0
        X[here + k] = 1.0
        sum_ = 0.0
        for _ in range(int(P[0])):
            for j in range(CLASSES):
                X[there + j] = 0.0
            for i in range(CLASSES):
                if X[here + i] > 0.0:
                    total = 0
                    for j in range(CLASSES):
                        total += S[COUNT + i * CLASSES + j]
                    if total == 0:
                        X[there + i] += X[here + i]
                    else:
                        for j in range(CLASSES):
                            X[there + j] += X[here + i] * S[COUNT + i * CLASSES + j] / total
            here, there = there, here
            for j in range(CLASSES):
                if X[here + j] > 0.0:
                    sum_ += X[here + j] * X[SUM + j] / X[SEEN + j]
            expected = max(expected, sum_)
    lacking = int(expected) - (capacity - allocated)
    S[ASKED] += 1
    S[ALLOCATED], S[SENT] = allocated, min(max(0, lacking), allocated)
    return S[SENT]
