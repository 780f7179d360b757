"""Belady's order when time is the index of a request: which resident unit is needed last, in O(log64 requests).

A request's index is the next use of at most one resident unit, so the resident units are a set of indexes and the victim
is the largest.  The set is a tree of 64-bit words: bit i of level 0 says that index i is in it, bit i of level k + 1 that
word i of level k is not zero.  A unit that is never needed again stands at index n_requests + unit.

The index of an access that has passed may stay in the set: every resident unit's next use lies in the future, above it.

    S   [TOP, REQUESTS, CHOSEN | first word of each level [LEVELS] | the levels, 0 first | requests[n_requests]]

These are the verbs of the contract, with key = the index of the unit's next use, negative when there is none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import F64, I64, U8, helper
from gpusim.policies.queue import get, put

TOP, REQUESTS, N, CHOSEN, FIRST = range(5)
LEVELS = 6  # 64**6 indexes


def state(requests: npt.NDArray[np.int32], n_units: int) -> tuple[I64, F64]:
    """The tables for one replay of these requests."""
    sizes: list[int] = []
    words = len(requests) + n_units
    while not sizes or sizes[-1] > 1:
        words = (words + 63) // 64
        sizes.append(words)
    starts = FIRST + LEVELS + np.cumsum([0, *sizes])
    S = np.zeros(starts[-1] + len(requests), np.int64)
    S[FIRST : FIRST + len(sizes)] = starts[:-1]
    S[TOP], S[REQUESTS], S[N] = len(sizes) - 1, starts[-1], len(requests)
    S[starts[-1] :] = requests
    return S, np.zeros(1)


@helper
def _highest_bit(word: int) -> int:
    """Index of the highest bit that is set; word != 0, negative when bit 63 is."""
    found = 0
    for step in (32, 16, 8, 4, 2, 1):
        upper = (word >> step) & ((1 << step) - 1)
        if upper != 0:
            found += step
            word = upper
    return found


@helper
def insert(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    i = int(key) if key >= 0 else S[N] + unit
    for level in range(S[TOP] + 1):
        word = S[FIRST + level] + (i >> 6)
        before = get(S, word)
        put(S, word, before | (np.int64(1) << (i & 63)))
        if before != 0:
            break
        i >>= 6
    return 0


@helper
def touch(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    return insert(S, X, unit, size, key)


@helper
def remove(S: I64, X: F64, unit: int, size: int, key: float) -> int:
    """The latest victim leaves; a replay removes nothing else."""
    i = S[CHOSEN]
    for level in range(S[TOP] + 1):
        word = S[FIRST + level] + (i >> 6)
        left = get(S, word) & ~(np.int64(1) << (i & 63))
        put(S, word, left)
        if left != 0:
            break
        i >>= 6
    return 0


@helper
def victim(S: I64, X: F64, incoming: int, size: int, locked: U8) -> int:
    """The unit needed last, or -1 when there is none; a replay locks nothing."""
    if get(S, S[FIRST + S[TOP]]) == 0:
        return -1
    i = 0
    for level in range(S[TOP], -1, -1):
        i = (i << 6) + _highest_bit(get(S, S[FIRST + level] + i))
    S[CHOSEN] = i
    return get(S, S[REQUESTS] + i) if i < S[N] else i - S[N]
