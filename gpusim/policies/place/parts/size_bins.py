"""Blocks in lists by class of size, the latest first: the bins of `bins` and their bitmaps, with a list in place of each treap.

LEFT and RIGHT of a block are its neighbours in its list; i is where the index starts.
"""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import bins
from gpusim.policies.place.parts.bins import LEFT, RIGHT, ROOTS


@helper
def add(S: I64, i: int, p: int, size: int) -> None:
    b = bins.bin_of(size)
    head = S[i + ROOTS + b]
    S[p + LEFT] = 0
    S[p + RIGHT] = head
    if head != 0:
        S[head + LEFT] = p
    else:
        bins.mark(S, i, b)
    S[i + ROOTS + b] = p


@helper
def drop(S: I64, i: int, p: int, size: int) -> None:
    left, right = S[p + LEFT], S[p + RIGHT]
    if right != 0:
        S[right + LEFT] = left
    if left != 0:
        S[left + RIGHT] = right
        return
    b = bins.bin_of(size)
    S[i + ROOTS + b] = right
    if right == 0:
        bins.unmark(S, i, b)
