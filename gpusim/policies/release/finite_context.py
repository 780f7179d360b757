"""Keep room for what the next `ahead` requests added the last time that the same `context` came before: learned meanwhile.

ahead    requests for which there shall be room
context  so many latest requests, the same sizes in the same order, are what makes it "here"

What they add is what was allocated less what was freed from one request to the next; what this policy swapped out counts as
still there.  A program that repeats itself is foretold from its second iteration on; where nothing like it has been seen,
nothing is kept ready.  What is lacking when most is expected to be there leaves in the background, so that the requests do
not wait for copies.

Source: the finite context method, Y. Sazeides and J. E. Smith, "The predictability of data values", MICRO 1997; as prediction
by partial matching of one length, J. G. Cleary and I. H. Witten, "Data compression using adaptive coding and partial string
matching", IEEE Trans. Communications 32(4), 1984.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import RELEASING

PARAMS = {"ahead": 8, "context": 4}
LIMITS = {"ahead": 1024, "context": 1024}

HISTORY, PLACES = 1 << 16, 1 << 15  # requests that are remembered; places for contexts, by their hash
PRIME = 1_000_003
ASKED, ALLOCATED, SENT = range(3)   # words of S: requests so far; bytes allocated, and swapped out, at the latest
SIZES = 3                           # then sizes, and growth with each, in rings
GROWTH = SIZES + HISTORY
WHERE = GROWTH + HISTORY            # then after how many requests each context was met last


def state(capacity: int, params: F64) -> tuple[I64, F64]:
    return np.zeros(WHERE + PLACES, np.int64), np.zeros(1)


@verb(RELEASING)
def release(S: I64, X: F64, P: F64, held: int, allocated: int, capacity: int, size: int, now: float) -> int:
    ahead, context = int(P[0]), max(1, int(P[1]))
    S[SIZES + S[ASKED] % HISTORY] = size
    S[GROWTH + S[ASKED] % HISTORY] = allocated - S[ALLOCATED] + S[SENT]
    S[ASKED] += 1
    n = S[ASKED]
    expected = 0
    if n >= context:
        place = 0
        for i in range(n - context, n):
            place = (place * 31 + S[SIZES + i % HISTORY]) % PRIME
        met = S[WHERE + place % PLACES]
        S[WHERE + place % PLACES] = n
        known = met > 0 and n - met + context <= HISTORY
        for i in range(1, context + 1):  # another context may have had the same place
            known = known and S[SIZES + (met - i) % HISTORY] == S[SIZES + (n - i) % HISTORY]
        if known:
            sum_ = 0
            for i in range(met, min(met + ahead, n)):
                sum_ += S[GROWTH + i % HISTORY]
                expected = max(expected, sum_)
    lacking = expected - (capacity - allocated)
    S[ALLOCATED], S[SENT] = allocated, min(max(0, lacking), allocated)
    return S[SENT]
