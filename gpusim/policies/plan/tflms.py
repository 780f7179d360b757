"""A tensor leaves where its next consumer is far from its producer in topological order, and comes back levels ahead of it.

threshold  in levels: tensors stay where the distance from producer to consumer is not above it; -1: the largest with which
           the plan fits, or where none does, with which it needs no more than with all of them gone
ahead      levels before the consumer at which the tensor comes back; -1: as many as still fit
groupby    consumers so many levels apart use the same copy: the tensor stays between them

An operator's level is one more than the highest of what it depends on.  Parameters and what was there before are variables,
which stay. The first -1 is settled with the other one at its least (ahead = 1).  Departures: a trace is a program in one
order, so there are no control dependencies to add: a tensor comes back before the first operator of the order that is of that
level or above.

Source: T. D. Le et al., "TFLMS: Large model support in TensorFlow by graph rewriting", arXiv:1807.02037, 2018 (`threshold`,
`ahead`, `groupby`: swapout_threshold, swapin_ahead, swapin_groupby of its second version).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.policies.plan.parts.swap.idle import I64, idle, resident, schedule
from gpusim.policies.planning import Schedule, View
from gpusim.trace.roles import OPTIMIZER, PARAMETER, roles
from gpusim.trace.trace import Trace

PARAMS = {"threshold": -1, "ahead": -1, "groupby": 0}
KNOWS = "future"


def plan(view: View, threshold: int = -1, ahead: int = -1, groupby: int = 0) -> Schedule:
    trace = view.work.trace
    level, producer = levels(trace, view.work.acc_start, view.work.acc_unit, view.work.acc_write)
    stretches = idle(view)
    variable = np.isin(roles(trace), (PARAMETER, OPTIMIZER)) | (view.work.has_data > 0)
    far = level[stretches.end] - level[stretches.begin] > groupby
    stretches = stretches.of(far & ~variable[stretches.unit])
    distance = level[stretches.end] - producer[stretches.unit]
    reached = np.maximum.accumulate(level)  # the first operator of a level or above, in the program's order

    def back(rows: Any, levels_ahead: int) -> I64:
        chosen = stretches.of(rows)
        first = np.searchsorted(reached, level[chosen.end] - levels_ahead)
        return np.clip(first, chosen.begin + 3, chosen.end)

    def peak(rows: Any, levels_ahead: int) -> int:
        return int(resident(view, stretches.of(rows), back(rows, levels_ahead)).max(initial=0))

    room = max(view.capacity, peak(distance > max(threshold, 0), max(ahead, 1)))
    if threshold < 0:
        threshold = _largest(np.unique(np.append(distance - 1, 0)), lambda d: peak(distance > d, max(ahead, 1)) <= room)
    rows = distance > threshold
    if ahead < 0:
        ahead = _largest(np.arange(1, max(2, int(level.max(initial=1)))), lambda k: peak(rows, k) <= room)
    return schedule(stretches.of(rows), back(rows, ahead))


def _largest(values: I64, good: Callable[[int], bool]) -> int:
    """The largest of these values, in order, that is good, where with one all smaller ones are; the smallest if none is."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(int(values[middle])) else (low, middle)
    return int(values[low])


def levels(trace: Trace, start: I64, unit: I64, write: Any) -> tuple[I64, I64]:
    """(O,) the level of each operator, from 1, and (T,) that of each tensor's first producer, 0 of what has no producer."""
    return _levels(start, unit, write, trace.tensors)


@kept()
def _levels(start: Any, unit: Any, write: Any, tensors: int) -> Any:
    level, producer = np.zeros(start.size - 1, np.int64), np.zeros(tensors, np.int64)
    made = np.zeros(tensors, np.int64)  # level of the latest operator that wrote it
    for o in range(start.size - 1):
        for i in range(start[o], start[o + 1]):
            level[o] = max(level[o], made[unit[i]])
        level[o] += 1
        for i in range(start[o], start[o + 1]):
            if write[i]:
                made[unit[i]] = level[o]
                if producer[unit[i]] == 0:
                    producer[unit[i]] = level[o]
    return level, producer
