"""A counter from 0 to 3 per unit, 16 to a word, so that the table of a million units stays in the second-level cache.

Words may be int64 or int32 (a replay of small pages uses the latter).
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import I64, helper


def words(n_units: int) -> int:
    """Length of the table in words."""
    return n_units // 16 + 1


@helper
def read(S: I64, m: int, unit: int) -> int:
    """The unit's counter, in the table at word m."""
    return (S[np.uint64(m + (unit >> 4))] >> ((unit & 15) << 1)) & 3


@helper
def write(S: I64, m: int, unit: int, value: int) -> None:
    shift = (unit & 15) << 1
    word = np.uint64(m + (unit >> 4))
    S[word] = (S[word] & ~(np.int64(3) << shift)) | (np.int64(value) << shift)


@helper
def mark(S: I64, m: int, unit: int) -> None:
    """Counter |= 1: a reference bit."""
    word = np.uint64(m + (unit >> 4))
    S[word] |= np.int64(1) << ((unit & 15) << 1)
