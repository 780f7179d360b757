"""The order in which std::sort of GNU's C++ library leaves what its comparison calls equal.

The study sorts with it, by comparisons that leave much open; which tensor moves then follows from the steps of the algorithm
alone: introsort (D. Musser, 1997) with the median of three, a heap sort below 2 log2 n parts of parts, and ranges of up to 16
left to one insertion sort at the end.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import kept, kernel
from gpusim.studies.g10.kernel_program import F64, I64

SMALL = 16


@kernel
def precedes(a: int, b: int, key: F64, tie: F64) -> bool:
    """Larger keys first; where two keys are equal and not 0, larger ties first."""
    x, y = key[a], key[b]
    if abs(x - y) < 1e-6 and x != 0 and y != 0:
        return bool(tie[a] > tie[b])
    return bool(x > y)


@kernel
def swap(order: I64, i: int, j: int) -> None:
    order[i], order[j] = order[j], order[i]


@kernel
def median_first(order: I64, at: int, a: int, b: int, c: int, key: F64, tie: F64) -> None:
    """The median of the elements at a, b, c changes places with the one at `at`."""
    x, y, z = order[a], order[b], order[c]
    if precedes(x, y, key, tie):
        if precedes(y, z, key, tie):
            swap(order, at, b)
        elif precedes(x, z, key, tie):
            swap(order, at, c)
        else:
            swap(order, at, a)
    elif precedes(x, z, key, tie):
        swap(order, at, a)
    elif precedes(y, z, key, tie):
        swap(order, at, c)
    else:
        swap(order, at, b)


@kernel
def parted(order: I64, first: int, last: int, key: F64, tie: F64) -> int:
    """Part the range around its median, which is at `first` afterwards; returns where the second part begins."""
    median_first(order, first, first + 1, first + (last - first) // 2, last - 1, key, tie)
    pivot = order[first]
    i, j = first + 1, last
    while True:
        while i < last and precedes(order[i], pivot, key, tie):
            i += 1
        j -= 1
        while j > first and precedes(pivot, order[j], key, tie):
            j -= 1
        if i >= j:
            return i
        swap(order, i, j)
        i += 1


@kernel
def insert(order: I64, at: int, first: int, key: F64, tie: F64) -> None:
    """The element at `at` moves before all in front of it that it precedes, if need be as far as `first`."""
    x = order[at]
    while at > first and precedes(x, order[at - 1], key, tie):
        order[at] = order[at - 1]
        at -= 1
    order[at] = x


@kernel
def sift(order: I64, first: int, hole: int, n: int, x: int, key: F64, tie: F64) -> None:
    """Of a heap of n elements, the last on top: fill the hole from below, then let x rise from where that ended."""
    top, child = hole, hole
    while child < (n - 1) // 2:
        child = 2 * (child + 1)
        if precedes(order[first + child], order[first + child - 1], key, tie):
            child -= 1
        order[first + hole] = order[first + child]
        hole = child
    if n % 2 == 0 and child == (n - 2) // 2:
        child = 2 * child + 1
        order[first + hole] = order[first + child]
        hole = child
    while hole > top and precedes(order[first + (hole - 1) // 2], x, key, tie):
        order[first + hole] = order[first + (hole - 1) // 2]
        hole = (hole - 1) // 2
    order[first + hole] = x


@kernel
def heapsort(order: I64, first: int, last: int, key: F64, tie: F64) -> None:
    n = last - first
    for parent in range((n - 2) // 2, -1, -1):
        sift(order, first, parent, n, order[first + parent], key, tie)
    for end in range(n - 1, 0, -1):
        x = order[first + end]
        order[first + end] = order[first]
        sift(order, first, 0, end, x, key, tie)


@kept(error_model="numpy")
def introsort(order: I64, key: F64, tie: F64) -> None:
    """Sort `order`, indices into the others, in place."""
    n = len(order)
    depth = 0
    while (1 << (depth + 1)) <= n:
        depth += 1
    pending = np.empty((2 * depth + 2, 3), np.int64)
    pending[0] = (0, n, 2 * depth)
    open_ = 1
    while open_ > 0:
        open_ -= 1
        first, last, depth = pending[open_, 0], pending[open_, 1], pending[open_, 2]
        while last - first > SMALL:
            if depth == 0:
                heapsort(order, first, last, key, tie)
                break
            depth -= 1
            cut = parted(order, first, last, key, tie)
            # The second part is sorted before the first: the order of disjoint ranges makes no difference.
            if cut - first > SMALL:
                pending[open_] = (first, cut, depth)
                open_ += 1
            first = cut
    for at in range(1, n):
        if at < SMALL and precedes(order[at], order[0], key, tie):
            x = order[at]
            for i in range(at, 0, -1):
                order[i] = order[i - 1]
            order[0] = x
        else:
            insert(order, at, 0, key, tie)
