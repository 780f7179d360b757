"""A counter from 0 to 3 per unit, 32 to a word: the whole table of a million units stays in the second-level cache."""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import I64, helper


def words(n_units: int) -> int:
    """Length of the table in words."""
    return n_units // 32 + 1


@helper
def mark(S: I64, m: int, unit: int) -> None:
    """Counter |= 1, in the table at word m: a reference bit."""
    S[m + (unit >> 5)] |= np.int64(1) << ((unit & 31) << 1)


@helper
def read(S: I64, m: int, unit: int) -> int:
    return (S[m + (unit >> 5)] >> ((unit & 31) << 1)) & 3


@helper
def write(S: I64, m: int, unit: int, value: int) -> None:
    shift = (unit & 31) << 1
    S[m + (unit >> 5)] = (S[m + (unit >> 5)] & ~(np.int64(3) << shift)) | (np.int64(value) << shift)
