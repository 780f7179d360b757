"""A number for every address, the same over long ranges: its owner, whether it is reserved, when it was last used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

LOWEST = -(2**62)


class Ranges(NamedTuple):
    keys: Any    # int64[...] ascending addresses at which the number changes; keys[0] is below all addresses
    values: Any  # int64[...] values[k] holds from keys[k] up to keys[k + 1]
    count: Any   # int64[1] entries in use


def ranges(entries: int, value: int) -> Ranges:
    """`value` everywhere; room for so many changes."""
    keys, values = np.empty(entries + 3, np.int64), np.empty(entries + 3, np.int64)
    keys[0], values[0] = LOWEST, value
    return Ranges(keys, values, np.ones(1, np.int64))


@njit(_nrt=False)
def highest(r: Ranges, lo: int, hi: int) -> int:
    """The highest number in [lo, hi)."""
    keys, values, count = r
    n = count[0]
    k = np.searchsorted(keys[:n], lo, side="right") - 1
    best = values[k]
    k += 1
    while k < n and keys[k] < hi:
        best = max(best, values[k])
        k += 1
    return int(best)


@njit(_nrt=False)
def lowest(r: Ranges, lo: int, hi: int) -> int:
    """The lowest number in [lo, hi)."""
    keys, values, count = r
    n = count[0]
    k = np.searchsorted(keys[:n], lo, side="right") - 1
    best = values[k]
    k += 1
    while k < n and keys[k] < hi:
        best = min(best, values[k])
        k += 1
    return int(best)


@njit(_nrt=False)
def paint(r: Ranges, lo: int, hi: int, value: int) -> None:
    """The number is `value` in [lo, hi), lo < hi, from now on."""
    keys, values, count = r
    n = count[0]
    i = np.searchsorted(keys[:n], lo, side="left")
    j = np.searchsorted(keys[:n], hi, side="right")
    before, after = values[i - 1], values[j - 1]
    opens, closes = value != before, value != after
    grown = i + opens + closes
    # Entries i..j-1 give way to at most two; what follows moves.
    if grown < j:
        for k in range(j, n):
            keys[grown + k - j], values[grown + k - j] = keys[k], values[k]
    elif grown > j:
        for k in range(n - 1, j - 1, -1):
            keys[grown + k - j], values[grown + k - j] = keys[k], values[k]
    count[0] = grown + n - j
    if opens:
        keys[i], values[i] = lo, value
    if closes:
        keys[grown - 1], values[grown - 1] = hi, after
