"""How sure the time of a program's kernels is, by class: errors of one class go together, so that they do not cancel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.durations import BASIS, BOUND, RECORDED, OperatorTimes

PREFIX = "kernels."
"""Of the path of a class's factor, which stands beside the numbers of a profile."""
LEAST = 0.01
"""Of the kernel time: a class below it changes no answer."""


@dataclass(frozen=True)
class ClassBar:
    """One class of kernels of a program on a machine.

    count   operators
    ns      their time
    bound   what limits most of it: a word of BOUND
    basis   how most of it is known: a word of BASIS
    low     factor below which the true time lies one time out of ten
    high    factor above which it lies one time out of ten
    """

    what: str
    count: int
    ns: int
    bound: str
    basis: str
    low: float
    high: float

    @property
    def path(self) -> str:
        """How answers name its factor."""
        return PREFIX + self.what.replace(" ", "_")


def bars(times: OperatorTimes) -> list[ClassBar]:
    """The classes of a program's operators, the longest first."""
    found = []
    for i, what in enumerate(times.classes):
        at = np.flatnonzero(times.what == i)
        ns = times.ns[at]
        if not len(at):
            continue
        weight = ns if ns.any() else np.ones(len(at))
        low, high = (float(np.average(log[at], weights=weight)) for log in (times.low, times.high))
        bound = BOUND[int(np.bincount(times.bound[at], weight).argmax())]
        basis = BASIS[int(np.bincount(times.basis[at], weight).argmax())]
        found.append(ClassBar(what, len(at), int(ns.sum()), bound, basis, math.exp(low), math.exp(high)))
    return sorted(found, key=lambda bar: -bar.ns)


def interval(found: list[ClassBar]) -> tuple[float, float]:
    """Factors on the time of all kernels together: the classes' ends at once, since they share the GPU's peak and bandwidth."""
    total = sum(bar.ns for bar in found)
    if not total:
        return 1.0, 1.0
    return sum(bar.ns * bar.low for bar in found) / total, sum(bar.ns * bar.high for bar in found) / total


def decides(found: list[ClassBar]) -> ClassBar | None:
    """The class on which the interval depends most; None where every time is certain."""
    wide = [bar for bar in found if bar.high > bar.low and bar.ns]
    return max(wide, key=lambda bar: bar.ns * (bar.high - bar.low), default=None)


def uncertain(found: list[ClassBar]) -> list[ClassBar]:
    """The classes whose factor is worth drawing."""
    least = LEAST * sum(bar.ns for bar in found)
    return [bar for bar in found if bar.high > bar.low and bar.ns >= least]


def scaled(times: OperatorTimes, factors: Mapping[str, float]) -> npt.NDArray[np.int64]:
    """(O,) ns with one factor for all kernels of a class, by path; recorded times stay."""
    of = np.array([factors.get(PREFIX + what.replace(" ", "_"), 1.0) for what in times.classes] or [1.0])
    return np.where(times.basis == RECORDED, times.ns, np.rint(times.ns * of[times.what])).astype(np.int64)
