"""When copies and kernels end that share links and multiprocessors: between two changes each has a fixed speed.

The rule, as the engine has it: all rates rise together until a link is full or an activity has all that it can take; those
that are held back keep what they have, the others rise on (max-min fairness).  A kernel takes bandwidth of the device's memory,
no more than it needs at the share of its multiprocessors that it has.  Rates change at the exact moment at which a flow ends;
the log shows an end at the next whole nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.referee.activities import NEVER
from gpusim.referee.world import step
from gpusim.trace.trace import I64

NOISE = 1e-4  # ns: ends so close to a whole nanosecond are at it


class Flows(NamedTuple):
    """F flows in the order in which they begin to move, W ways, G changes of what kernels have of their multiprocessors."""

    begin: Any     # int64[F] ns
    size: Any      # float64[F] bytes; ns of a kernel
    alone: Any     # float64[F] the rate that it reaches on idle links, bytes/ns
    unit: Any      # float64[F] bytes/ns for one of `size` each ns: 1 of bytes, what a kernel needs of the memory's bandwidth
    way: Any       # int64[F]
    first: Any     # int64[W + 1] way w passes link[first[w]:first[w + 1]]
    link: Any      # int64[...]
    capacity: Any  # float64[links] bytes/ns
    changed: Any   # int64[G] ns, ascending
    which: Any     # int64[G] flow
    granted: Any   # float64[G] share of its multiprocessors that it has from then on

    # What is under way, the first so many entries of each, and of each link what is left of it and how many pass.
    active: Any    # int64[F]
    rest: Any      # float64[F] as size
    rate: Any      # float64[F] bytes/ns
    share: Any     # float64[F] of its multiprocessors, of each flow
    left: Any      # float64[links]
    users: Any     # int64[links]
    end: Any       # int64[F] the answer, ns; -1 never
    slowed: Any    # uint8[F] 1: it has been slower than alone


@step
def _rates(f: Flows, n: int) -> None:
    """The rates of the n flows under way."""
    capacity, active, rate, left, users = f.capacity, f.active, f.rate, f.left, f.users
    for k in range(capacity.size):
        left[k] = capacity[k]
        users[k] = 0
    for i in range(n):
        rate[i] = -1.0
        w = f.way[active[i]]
        for r in range(f.first[w], f.first[w + 1]):
            users[f.link[r]] += 1
    held = 0
    while held < n:
        level = math.inf
        for k in range(capacity.size):
            if users[k] > 0:
                level = min(level, left[k] / users[k])
        for i in range(n):
            if rate[i] < 0.0:
                level = min(level, f.alone[active[i]] * f.share[active[i]])
        edge = level * (1.0 + 1e-12)
        for i in range(n):  # decided for all before any takes its share
            if rate[i] < 0.0:
                full = f.alone[active[i]] * f.share[active[i]] <= edge
                w = f.way[active[i]]
                for r in range(f.first[w], f.first[w + 1]):
                    full = full or left[f.link[r]] <= edge * users[f.link[r]]
                if full:
                    rate[i] = -2.0
        for i in range(n):
            if rate[i] == -2.0:
                rate[i] = level
                held += 1
                w = f.way[active[i]]
                for r in range(f.first[w], f.first[w + 1]):
                    left[f.link[r]] = max(0.0, left[f.link[r]] - level)
                    users[f.link[r]] -= 1
    for i in range(n):
        if rate[i] < f.alone[active[i]] * (1.0 - 1e-12):
            f.slowed[active[i]] = 1


@step
def _go_on(f: Flows, n: int, span: float) -> None:
    """All flows move for so many ns."""
    for i in range(n):
        f.rest[i] = max(0.0, f.rest[i] - f.rate[i] / f.unit[f.active[i]] * span)


@kept(_nrt=False)
def _ends(f: Flows) -> None:
    begin, count, active, rest = f.begin, f.begin.size, f.active, f.rest
    base, past = 0, 0.0  # the present is base + past ns: a float of all the time so far would lose its digits
    n, coming, change = 0, 0, 0
    while n > 0 or coming < count:
        soonest, which = math.inf, -1
        for i in range(n):
            if f.rate[i] > 0.0:
                after = rest[i] / (f.rate[i] / f.unit[active[i]])
                if after < soonest:
                    soonest, which = after, i
        tick = NEVER
        if coming < count:
            tick = begin[coming]
        if change < f.changed.size:
            tick = min(tick, f.changed[change])
        arrives = float(tick - base) - past
        if which >= 0 and soonest <= arrives + NOISE:
            _go_on(f, n, soonest)
            past += soonest
            whole = math.floor(past)
            base += int(whole)
            past -= whole
            f.end[active[which]] = base + math.ceil(past - NOISE)
            n -= 1
            active[which], rest[which] = active[n], rest[n]
        elif tick == NEVER:
            break
        else:
            if arrives > 0.0:
                _go_on(f, n, arrives)
                base, past = tick, 0.0
            while coming < count and begin[coming] <= base:
                active[n], rest[n] = coming, f.size[coming]
                n += 1
                coming += 1
            while change < f.changed.size and f.changed[change] <= base:
                f.share[f.which[change]] = f.granted[change]
                change += 1
        if n > 0:
            _rates(f, n)


class Grants(NamedTuple):
    """(G,) what kernels have of their multiprocessors, in the order of time: when, which flow, the share from then on."""

    time: I64
    flow: I64
    share: npt.NDArray[np.float64]


class Moved(NamedTuple):
    """(F,) when flows end, ns, -1 never; whether others ever slowed them."""

    end: I64
    slowed: npt.NDArray[np.bool_]


def ends(
    begin: I64, size: Any, alone: Any, unit: Any, way: I64, routes: Sequence[Sequence[int]], capacity: Sequence[float],
    grants: Grants,
) -> Moved:  # fmt: skip
    """begin, size, alone, unit, way: as in Flows, in any order; routes: the links of each way.

    A flow with grants has nothing before the first of them, one without has all that it can use.
    """
    order, count = np.argsort(begin, kind="stable"), len(begin)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    share = np.ones(count)
    share[place[grants.flow]] = 0.0

    def sorted_by_begin(values: Any) -> Any:
        return np.asarray(values, np.float64)[order]

    f = Flows(
        begin[order], sorted_by_begin(size), sorted_by_begin(alone), sorted_by_begin(unit), way[order],
        np.concatenate([[0], np.cumsum([len(route) for route in routes])]).astype(np.int64),
        np.array([link for route in routes for link in route], np.int64), np.array(capacity, np.float64),
        grants.time, place[grants.flow], grants.share,
        active=np.zeros(count, np.int64), rest=np.zeros(count), rate=np.zeros(count), share=share,
        left=np.zeros(len(capacity)), users=np.zeros(len(capacity), np.int64), end=np.full(count, -1),
        slowed=np.zeros(count, np.uint8),
    )  # fmt: skip
    _ends(f)
    return Moved(f.end[place], f.slowed[place] != 0)
