"""Plans from one order of the buffers, and from climbing to better orders.

Greedy by size, each buffer into the smallest gap that it fits into, is what deep-learning compilers ship; it is known to
reach the live peak on many programs and to be far from it on hard ones.

Source: Y. Pisarchyk, J. Lee, "Efficient memory management for deep neural net inference", arXiv 2001.03288, 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gpusim.policies.place.parts.packing import gaps as kernel
from gpusim.policies.place.parts.packing.buffers import I64, Buffers


class Packing(NamedTuple):
    """Where each buffer begins, and the end of the highest."""

    offset: I64
    top: int


def online(buffers: Buffers) -> Packing:
    """What best fit without rounding and without an end makes of the same requests in the order of their starts."""
    return _Fitter(buffers)(np.argsort(buffers.lower, kind="stable"), True)


def by_size(buffers: Buffers) -> Packing:
    """Largest first, of equal ones the longer first; each into the smallest gap."""
    return _Fitter(buffers)(_by_size(buffers), True)


def greedy(buffers: Buffers) -> Packing:
    """The best of a few greedy orders and gaps, greedy by size first; ends early at the live peak."""
    return _greedy(buffers)[0]


def climb(buffers: Buffers, goal: int, work: int, seed: int = 0) -> Packing:
    """The best greedy plan, made better by moving one high buffer at a time to an earlier place in its order.

    A move is kept unless the top rises.  Ends at `goal` bytes, or when `work` entries of windows have been looked at
    (about 10 ns each), never by the clock.
    """
    best, order, smallest = _greedy(buffers)
    fitter, random = _Fitter(buffers), np.random.default_rng(seed)
    top, ends = best.top, best.offset + buffers.size
    while top > goal and fitter.work < work:
        high = np.flatnonzero(ends > (goal + top) // 2)
        buffer = high[random.integers(len(high))]
        place = int(np.flatnonzero(order == buffer)[0])
        if place == 0:
            fitter.work += len(order)  # this move costs something too
            continue
        to = int(random.integers(place))
        moved = np.concatenate([order[:to], [buffer], order[to:place], order[place + 1 :]])
        found = fitter(moved, smallest, top)
        if found.top <= top:
            order, top, ends = moved, found.top, found.offset + buffers.size
            best = min(best, found, key=lambda packing: packing.top)
    return best


class _Fitter:
    """Places buffers in any order; counts its work."""

    def __init__(self, buffers: Buffers) -> None:
        self.windows = kernel.windows(buffers)
        self.work = 0

    def __call__(self, order: I64, smallest: bool, limit: int = kernel.ENDLESS) -> Packing:
        top, work = kernel.fit(self.windows, order, smallest, limit)
        self.work += int(work)
        return Packing(self.windows.offset.copy(), int(top))


def _greedy(buffers: Buffers) -> tuple[Packing, I64, bool]:
    """The packing with the order and the gap that made it."""
    fitter = _Fitter(buffers)
    best: tuple[Packing, I64, bool] | None = None
    for order, smallest in _orders(buffers):
        found = fitter(order, smallest)
        if best is None or found.top < best[0].top:
            best = found, order, smallest
        if best[0].top == buffers.peak_live:
            break
    assert best is not None
    return best


def _by_size(buffers: Buffers) -> I64:
    return np.lexsort((buffers.first, buffers.first - buffers.end, -buffers.size))


def _orders(buffers: Buffers) -> Iterator[tuple[I64, bool]]:
    """Orders that are good on one program or another, and whether each goes with the smallest gap or the lowest."""
    yield _by_size(buffers), True
    yield _by_size(buffers), False
    for length in (buffers.upper - buffers.lower, buffers.end - buffers.first):
        yield np.argsort(-buffers.size * np.sqrt(length), kind="stable"), False
    yield np.argsort(buffers.lower, kind="stable"), True
