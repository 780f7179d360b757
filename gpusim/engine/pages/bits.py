"""Masks of the pages of a block: a row of eight 64-bit words in one table W, named by the number of the row."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.bits import popcount, trailing_zeros
from gpusim.base.compiled import kernel, outlined

WORDS = 8
PAGES = 512  # of a row: a block of 2 MiB in pages of 4 KiB
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)


@kernel
def window(word: int, first: int, outer: int) -> Any:
    """The bits of [first, outer) that lie in this word of a row."""
    lo, hi = max(first - 64 * word, 0), min(outer - 64 * word, 64)
    if lo >= hi:
        return np.uint64(0)
    return (ALL >> np.uint64(64 - (hi - lo))) << np.uint64(lo)


@kernel
def bit(page: int) -> Any:
    return ONE << np.uint64(page & 63)


@kernel
def has(W: Any, row: int, page: int) -> bool:
    return bool((W[row, page >> 6] & bit(page)) != np.uint64(0))


@kernel
def put(W: Any, row: int, page: int) -> None:
    W[row, page >> 6] |= bit(page)


@kernel
def drop(W: Any, row: int, page: int) -> None:
    W[row, page >> 6] &= ~bit(page)


@kernel
def count(W: Any, row: int, first: int, outer: int) -> int:
    """How many pages of [first, outer) are set."""
    n = 0
    for w in range(first >> 6, (outer + 63) >> 6):
        n += popcount(W[row, w] & window(w, first, outer))
    return n


@kernel
def total(W: Any, row: int) -> int:
    n = 0
    for w in range(WORDS):
        n += popcount(W[row, w])
    return n


@kernel
def none(W: Any, row: int) -> bool:
    any_bit = np.uint64(0)
    for w in range(WORDS):
        any_bit |= W[row, w]
    return bool(any_bit == np.uint64(0))


@outlined
def fill(W: Any, row: int, first: int, outer: int) -> None:
    """Set [first, outer)."""
    for w in range(first >> 6, (outer + 63) >> 6):
        W[row, w] |= window(w, first, outer)


@kernel
def clear(W: Any, row: int) -> None:
    for w in range(WORDS):
        W[row, w] = np.uint64(0)


@kernel
def copy(W: Any, row: int, source: int) -> None:
    for w in range(WORDS):
        W[row, w] = W[source, w]


@kernel
def add(W: Any, row: int, source: int) -> None:
    for w in range(WORDS):
        W[row, w] |= W[source, w]


@kernel
def subtract(W: Any, row: int, source: int) -> None:
    for w in range(WORDS):
        W[row, w] &= ~W[source, w]


@kernel
def keep(W: Any, row: int, source: int) -> None:
    for w in range(WORDS):
        W[row, w] &= W[source, w]


@outlined
def next_set(W: Any, row: int, page: int, outer: int) -> int:
    """The first page from `page` on that is set, `outer` if there is none before."""
    while page < outer:
        word = W[row, page >> 6] >> np.uint64(page & 63)
        if word != np.uint64(0):
            return min(page + trailing_zeros(word), outer)
        page = (page | 63) + 1
    return outer


@outlined
def next_clear(W: Any, row: int, page: int, outer: int) -> int:
    """The first page from `page` on that is not set, `outer` if there is none before."""
    while page < outer:
        word = ~W[row, page >> 6] >> np.uint64(page & 63)
        if word != np.uint64(0):
            return min(page + trailing_zeros(word), outer)
        page = (page | 63) + 1
    return outer


@outlined
def runs(W: Any, row: int) -> int:
    """How many runs of adjacent pages the mask has."""
    n = 0
    carry = np.uint64(0)
    for w in range(WORDS):
        word = W[row, w]
        n += popcount(word & ~((word << ONE) | carry))
        carry = word >> np.uint64(63)
    return n
