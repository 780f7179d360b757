"""Which kernel has how many multiprocessors when, and does each kernel start as soon as it may?

From the starts and ends in the log.  At any time multiprocessors are given out until there are no more: first to activities
whose whole grid is resident at once and has had all that it can use, which keep them to their ends; then by (priority of the
stream, order of starts), to each as many as it can use.  What is ready may start when it would get one that way, a collective
when it would get all; of several the first by (priority, number) that may.  What happens at one tick happens together: ends,
then starts, then grants; what takes no time ends in its tick, and what has waited for it may start there too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import kept
from gpusim.machine.sharing import SMS
from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.flows import Grants
from gpusim.referee.numbers import Figures
from gpusim.referee.report import Findings
from gpusim.referee.world import step
from gpusim.trace.submission import stream_priorities
from gpusim.trace.trace import COLLECTIVE, I64, Trace

MOST = 100


class Sms(NamedTuple):
    """N activities that take multiprocessors, in the order of submission."""

    tick: Any      # int64[...] ascending, with repetitions: when anything starts, ends or is ready
    wants: Any     # int64[N] what it can use
    whole: Any     # uint8[N] 1: its grid is resident at once
    all: Any       # uint8[N] 1: it starts with all or not at all
    priority: Any  # int64[N] the lower goes first
    ready: Any     # int64[N] ns
    start: Any
    end: Any
    turn: Any      # int64[N] place in the order of starts
    epoch: Any     # int64[N] how much began and ended in the tick of its start before that
    by_ready: Any  # int64[N]
    limit: int

    waiting: Any   # int64[N], the first so many
    running: Any   # int64[N]
    looked: Any    # uint8[N] 1: looked at in this round
    late: Any      # uint8[N] 1: it was to start earlier
    has: Any       # int64[N]
    held: Any      # uint8[N]
    time: Any      # int64[G] grants
    which: Any
    granted: Any
    said: Any      # int64[MOST, 2] activity, when it was to start; NEVER: not yet when it did
    count: Any     # int64[2] grants, said


@step
def _room(s: Sms, running: int, a: int) -> bool:
    """Activity a, which is ready, may start."""
    left = s.limit
    for i in range(running):
        b = s.running[i]
        if s.held[b]:
            left -= s.wants[b]
    for k in range(running):  # of those no worse in priority each takes what it can use, in any order: the sum counts
        b = s.running[k]
        if s.held[b] == 0 and s.priority[b] <= s.priority[a]:
            left -= s.wants[b]
    return bool(left >= s.wants[a] if s.all[a] else left >= 1)


@step
def _say(s: Sms, a: int, due: int) -> None:
    if s.count[1] < s.said.shape[0]:
        s.said[s.count[1], 0], s.said[s.count[1], 1] = a, due
        s.count[1] += 1


@step
def _next(s: Sms, waiting: int) -> int:
    """Where the best of those that wait stands which has not been looked at in this round; -1: there is none."""
    best = -1
    for i in range(waiting):
        a = s.waiting[i]
        if s.looked[a] == 0:
            b = s.waiting[best]
            if best < 0 or s.priority[a] < s.priority[b] or (s.priority[a] == s.priority[b] and a < b):
                best = i
    return best


@step
def _without_ended(s: Sms, running: int, t: int) -> int:
    """Those that have ended give their multiprocessors back; how many still run."""
    left = 0
    for i in range(running):
        if s.end[s.running[i]] > t:
            s.running[left] = s.running[i]
            left += 1
    return left


@step
def _grant(s: Sms, running: int, t: int) -> None:
    """Which kernel has how many from now on."""
    left = s.limit
    for i in range(running):
        a = s.running[i]
        s.looked[a] = s.held[a]
        if s.held[a]:
            left -= s.wants[a]
    for _ in range(running):
        best = -1
        for i in range(running):
            a = s.running[i]
            if s.looked[a] == 0:
                first = best < 0 or s.priority[a] < s.priority[best]
                if first or (s.priority[a] == s.priority[best] and s.turn[a] < s.turn[best]):
                    best = a
        if best < 0:
            break
        s.looked[best] = 1
        has = min(s.wants[best], max(0, left))
        left -= has
        if has != s.has[best]:
            g = s.count[0]
            s.has[best], s.time[g], s.which[g], s.granted[g] = has, t, best, has
            s.count[0] += 1
        if s.whole[best] and has == s.wants[best]:
            s.held[best] = 1


@kept(_nrt=False)
def _each_tick(s: Sms) -> None:
    waiting, running, coming = 0, 0, 0
    for k in range(s.tick.size):
        t, last = s.tick[k], 0
        if k and t == s.tick[k - 1]:
            continue
        while coming < s.by_ready.size and s.ready[s.by_ready[coming]] <= t:
            s.waiting[waiting] = s.by_ready[coming]
            waiting += 1
            coming += 1
        for i in range(waiting):
            if s.start[s.waiting[i]] == t:
                last = max(last, s.epoch[s.waiting[i]])
        for epoch in range(last + 1):
            running = _without_ended(s, running, t)
            for i in range(waiting):
                a = s.waiting[i]
                there = epoch == last or (s.start[a] == t and s.epoch[a] <= epoch)
                s.looked[a] = s.late[a] or not there
            i = _next(s, waiting)
            while i >= 0:
                a = s.waiting[i]
                s.looked[a] = 1
                if _room(s, running, a):
                    if s.start[a] == t:
                        waiting -= 1
                        s.waiting[i] = s.waiting[waiting]
                        s.running[running] = a
                        running += 1
                    else:
                        s.late[a] = 1
                        _say(s, a, t)
                i = _next(s, waiting)
        running = _without_ended(s, running, t)
        i = 0
        while i < waiting:
            a = s.waiting[i]
            if s.start[a] == t:
                if s.late[a] == 0:
                    _say(s, a, NEVER)
                waiting -= 1
                s.waiting[i] = s.waiting[waiting]
                if s.end[a] > t:
                    s.running[running] = a
                    running += 1
            else:
                i += 1
        _grant(s, running, t)


def users(acts: ActivityTimes, n: Figures) -> I64:
    """Of each activity the multiprocessors that it takes, 0 where no other wants any."""
    wants = np.append(n.needs.sms[0], 0)[acts.op] if SMS in n.share else np.zeros(len(acts.op), np.int64)
    wants = np.where(acts.start < NEVER, wants, 0)
    queues = acts.queue[wants > 0]
    one = len(queues) > 0 and queues.min() == queues.max() and wants.max() <= n.needs.processors and not n.beside
    return 0 * wants if one else wants  # one stream has all that it can use


def check(acts: ActivityTimes, trace: Trace, ready: I64, time: I64, n: Figures, found: Findings) -> Grants:
    """Starts, as soon as they may be; returns the grants, as shares of what each activity can use.

    ready  (activities,) when it waits for nothing but multiprocessors
    time   (records,) of the log
    """
    rows = np.flatnonzero(users(acts, n))
    if not len(rows):
        nothing = np.zeros(0, np.int64)
        return Grants(nothing, nothing, np.zeros(0))
    s = _tables(acts, trace, rows, ready, _epochs(acts, rows, time), n)
    _each_tick(s)
    for a, due in s.said[: s.count[1]].tolist():
        act = int(rows[a])
        what = f"activity {act}, operator {acts.op[act]}, starts at {acts.start[act]} ns"
        when = "a later start: those before it leave no multiprocessors" if due == NEVER else f"{due} ns, when it gets them"
        found.say(acts.start_record[act], what, when)
    found.count("starts on multiprocessors", len(rows))
    count = int(s.count[0])
    which = s.which[:count]
    return Grants(s.time[:count], rows[which], s.granted[:count] / s.wants[which])


def _epochs(acts: ActivityTimes, rows: I64, time: I64) -> I64:
    """Of each activity that starts how many of `rows` began and ended in the same tick before."""
    over = np.zeros(len(time) + 1, np.int64)
    over[acts.end_record[rows[acts.start[rows] == acts.end[rows]]] + 1] = 1
    before = np.cumsum(over)
    return before[acts.start_record] - before[np.searchsorted(time, acts.start)]


def _tables(acts: ActivityTimes, trace: Trace, rows: I64, ready: I64, epoch: I64, n: Figures) -> Sms:
    many, op = len(rows), acts.op[rows]
    start, end, begins = acts.start[rows], acts.end[rows], np.minimum(ready[rows], acts.start[rows])
    turn = np.empty(many, np.int64)
    turn[np.argsort(acts.start_record[rows])] = np.arange(many)
    most = 3 * many * min(many, len(np.unique(acts.queue[rows])))

    def zero(length: int, dtype: Any = np.int64) -> Any:
        return np.zeros(length, dtype)

    return Sms(
        np.sort(np.concatenate([start, end[end < NEVER], begins]), kind="stable"), n.needs.sms[0][op],
        n.needs.sms[1][op].astype(np.uint8),
        (trace.activity[op] == COLLECTIVE).astype(np.uint8), stream_priorities(trace)[acts.queue[rows]], begins, start, end,
        turn, epoch[rows], np.argsort(begins, kind="stable"), n.needs.processors,
        waiting=zero(many), running=zero(many), looked=zero(many, np.uint8), late=zero(many, np.uint8), has=zero(many),
        held=zero(many, np.uint8), time=zero(most), which=zero(most), granted=zero(most), said=np.zeros((MOST, 2), np.int64),
        count=zero(2),
    )  # fmt: skip
