"""Keep room for the requests that followed the last time that the program was here: learned from earlier iterations.

ahead    requests for which there shall be room
context  so many latest requests, the same sizes in the same order, are what makes it "here"

A program that repeats itself is foretold to the byte from its second iteration on.  Where nothing like it has been seen,
nothing is kept ready.  What is lacking leaves in the background, so that the requests do not wait for copies.

Source: as prediction by partial matching of one length, J. G. Cleary and I. H. Witten, "Data compression using adaptive coding
and partial string matching", IEEE Trans. Communications 32(4), 1984.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"ahead": 8, "context": 4}
LIMITS = {"ahead": 1024, "context": 1024}

HISTORY, PLACES = 1 << 16, 1 << 15  # requests that are remembered; places for contexts, by their hash
PRIME = 1_000_003
COUNT, SIZES = 0, 1                 # words of S: requests so far; then their sizes, in a ring
WHERE = SIZES + HISTORY             # then after how many requests each context was met last


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    return np.zeros(WHERE + PLACES, np.int64), np.zeros(1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    ahead, context = int(P[0]), max(1, int(P[1]))
    S[SIZES + S[COUNT] % HISTORY] = size
    S[COUNT] += 1
    n = S[COUNT]
    if n < context:
        return 0
    place = 0
    for i in range(n - context, n):
        place = (place * 31 + S[SIZES + i % HISTORY]) % PRIME
    met = S[WHERE + place % PLACES]
    S[WHERE + place % PLACES] = n
    if met == 0 or n - met + context > HISTORY:
        return 0
    for i in range(1, context + 1):  # another context may have had the same place
        if S[SIZES + (met - i) % HISTORY] != S[SIZES + (n - i) % HISTORY]:
            return 0
    expected = 0
    for i in range(met, min(met + ahead, n)):
        expected += S[SIZES + i % HISTORY]
    lacking = expected - (capacity - allocated)
    return min(max(0, lacking), allocated)
