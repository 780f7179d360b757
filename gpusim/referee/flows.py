"""When copies end that share links: between two changes each has a fixed rate, which is max-min fair.

The rule, as the engine has it: all rates rise together until a link is full or a copy has all that it can take alone; those
that are held back keep what they have, the others rise on.  Rates change at the exact moment at which a copy ends; the log
shows an end at the next whole nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import kept
from gpusim.referee.world import step
from gpusim.trace.trace import I64

NOISE = 1e-4  # ns: ends so close to a whole nanosecond are at it


class Flows(NamedTuple):
    """F copies in the order in which their bytes begin to move, W ways."""

    begin: Any     # int64[F] ns
    size: Any      # float64[F] bytes
    alone: Any     # float64[F] the rate that it reaches on idle links, bytes/ns
    way: Any       # int64[F]
    first: Any     # int64[W + 1] way w passes link[first[w]:first[w + 1]]
    link: Any      # int64[...]
    capacity: Any  # float64[links] bytes/ns

    # What is under way, the first so many entries of each, and of each link what is left of it and how many pass.
    active: Any    # int64[F]
    rest: Any      # float64[F] bytes
    rate: Any      # float64[F]
    left: Any      # float64[links]
    users: Any     # int64[links]
    end: Any       # int64[F] the answer, ns


@step
def _rates(f: Flows, n: int) -> None:
    """The rates of the n copies under way."""
    alone, capacity, active, rate, left, users = f.alone, f.capacity, f.active, f.rate, f.left, f.users
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
                level = min(level, alone[active[i]])
        edge = level * (1.0 + 1e-12)
        for i in range(n):  # decided for all before any takes its share
            if rate[i] < 0.0:
                full = alone[active[i]] <= edge
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


@kept(_nrt=False)
def _ends(f: Flows) -> None:
    begin, count, end, active, rest, rate = f.begin, f.begin.size, f.end, f.active, f.rest, f.rate
    base, past = 0, 0.0  # the present is base + past ns: a float of all the time so far would lose its digits
    n, coming = 0, 0
    while n > 0 or coming < count:
        soonest, which = math.inf, -1
        for i in range(n):
            after = rest[i] / rate[i]
            if after < soonest:
                soonest, which = after, i
        arrives = math.inf
        if coming < count:
            arrives = float(begin[coming] - base) - past
        if n > 0 and soonest <= arrives + NOISE:
            for i in range(n):
                rest[i] = max(0.0, rest[i] - rate[i] * soonest)
            past += soonest
            whole = math.floor(past)
            base += int(whole)
            past -= whole
            end[active[which]] = base + math.ceil(past - NOISE)
            n -= 1
            active[which], rest[which] = active[n], rest[n]
        else:
            if n > 0 and arrives > 0.0:
                for i in range(n):
                    rest[i] = max(0.0, rest[i] - rate[i] * arrives)
            base, past = begin[coming], 0.0
            while coming < count and begin[coming] == base:
                active[n], rest[n] = coming, f.size[coming]
                n += 1
                coming += 1
        if n > 0:
            _rates(f, n)


def ends(begin: I64, size: Any, alone: Any, way: I64, routes: Sequence[Sequence[int]], capacity: Sequence[float]) -> I64:
    """(F,) when each of these ends, ns.  begin, size, alone, way: as in Flows, in any order; routes: the links of each way."""
    order, count = np.argsort(begin, kind="stable"), len(begin)
    f = Flows(
        begin[order], np.asarray(size, np.float64)[order], np.asarray(alone, np.float64)[order], way[order],
        np.concatenate([[0], np.cumsum([len(route) for route in routes])]).astype(np.int64),
        np.array([link for route in routes for link in route], np.int64), np.array(capacity, np.float64),
        active=np.zeros(count, np.int64), rest=np.zeros(count), rate=np.zeros(count), left=np.zeros(len(capacity)),
        users=np.zeros(len(capacity), np.int64), end=np.zeros(count, np.int64),
    )  # fmt: skip
    _ends(f)
    out = np.empty(count, np.int64)
    out[order] = f.end
    return out
