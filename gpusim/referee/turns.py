"""Do copies take their turns in the copy engines?

An engine serves one direction, with so many copies at once.  Where the program has copies of its own, they stand in one line
with swaps, by the time at which they came and then by number: the first goes when a slot is free, once all that happens at a
tick has happened.  Swaps that nothing waits for yet have a queue of their own beside those that are due; when it is the turn of
the first of either, and the other's first has come too, the one that is due earlier goes, and the other takes its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.machine.sharing import ENGINES
from gpusim.machine.tiers import COPY_ENGINES
from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.numbers import Figures
from gpusim.referee.report import Findings
from gpusim.referee.tiers import INTO, OUT, Tiers
from gpusim.referee.world import step
from gpusim.trace.trace import COPY_IN, COPY_OUT, I64, Trace

MOST = 100
PROGRAM, DUE, EARLY = range(3)  # whose copy it is: the program's, a swap that is due, one that is not


class Turns(NamedTuple):
    """N copies of one direction, in the order of submission."""

    tick: Any    # int64[...] ascending: when anything comes, starts or ends
    after: Any   # uint8[ticks] 1: something took no time in this tick, and what comes then may have waited for that
    of: Any      # uint8[N]
    due: Any     # int64[N] the operator that waits for it, NEVER none
    came: Any    # int64[N] ns
    start: Any
    end: Any
    by_came: Any # int64[N]
    slots: int

    place: Any   # int64[N, 2] in the line: time, number
    waiting: Any # int64[N], the first so many
    late: Any    # uint8[N] 1: it was to start earlier
    said: Any    # int64[MOST, 2] copy, when it was to start; NEVER: not yet when it did
    count: Any   # int64[1]


@step
def _before(s: Turns, a: int, b: int) -> bool:
    return bool(s.place[a, 0] < s.place[b, 0] or (s.place[a, 0] == s.place[b, 0] and s.place[a, 1] < s.place[b, 1]))


@step
def _is_there(s: Turns, a: int, tick: int) -> bool:
    """It stands in the line when slots are given in this tick."""
    t = s.tick[tick]
    return bool(s.late[a] == 0 and (s.start[a] == t or s.came[a] < t or s.after[tick] == 0))


@step
def _head(s: Turns, waiting: int, of: int, tick: int) -> int:
    """The first of a queue of swaps that waits, -1 none."""
    head = -1
    for i in range(waiting):
        a = s.waiting[i]
        if s.of[a] == of and _is_there(s, a, tick) and (head < 0 or a < head):
            head = a
    return head


@step
def _first(s: Turns, waiting: int, tick: int) -> int:
    """The process whose turn it is, -1: of none."""
    due, early = _head(s, waiting, DUE, tick), _head(s, waiting, EARLY, tick)
    first = -1
    for i in range(waiting):
        a = s.waiting[i]
        heads = s.of[a] == PROGRAM or a in (due, early)
        if heads and _is_there(s, a, tick) and (first < 0 or _before(s, a, first)):
            first = a
    if first >= 0 and due >= 0 and early >= 0 and first in (due, early):
        goes = due if s.due[due] <= s.due[early] else early
        if goes != first:
            for k in range(2):
                s.place[first, k], s.place[goes, k] = s.place[goes, k], s.place[first, k]
        first = goes
    return first


@step
def _say(s: Turns, a: int, due: int) -> None:
    if s.count[0] < s.said.shape[0]:
        s.said[s.count[0], 0], s.said[s.count[0], 1] = a, due
        s.count[0] += 1


@step
def _starts(s: Turns, waiting: int, a: int) -> int:
    """It waits no more; how many still do."""
    i = 0
    while s.waiting[i] != a:
        i += 1
    s.waiting[i] = s.waiting[waiting - 1]
    return waiting - 1


@kept(_nrt=False)
def _each_tick(s: Turns, by_end: Any) -> None:
    waiting, running, coming, ended = 0, 0, 0, 0
    for tick in range(s.tick.size):
        t = s.tick[tick]
        while ended < by_end.size and s.end[by_end[ended]] <= t:
            if s.start[by_end[ended]] < t:
                running -= 1
            ended += 1
        while coming < s.by_came.size and s.came[s.by_came[coming]] <= t:
            s.waiting[waiting] = s.by_came[coming]
            waiting += 1
            coming += 1
        while running < s.slots:
            a = _first(s, waiting, tick)
            if a < 0:
                break
            if s.start[a] == t:
                waiting = _starts(s, waiting, a)
                running += s.end[a] > t
            else:
                s.late[a] = 1
                _say(s, a, t)
        i = 0
        while i < waiting:
            a = s.waiting[i]
            if s.start[a] == t:
                if s.late[a] == 0:
                    _say(s, a, NEVER)
                waiting = _starts(s, waiting, a)
                running += s.end[a] > t
            else:
                i += 1


def in_line(acts: ActivityTimes, trace: Trace, tiers: Tiers, n: Figures) -> I64:
    """Of each activity the direction in whose line it stands, INTO or OUT; -1 in none."""
    activity = np.append(trace.activity.astype(np.int64), -1)[acts.op]
    line = np.select([activity == COPY_IN, activity == COPY_OUT], [INTO, OUT], -1)
    if ENGINES not in n.share or not np.isin(trace.activity, (COPY_IN, COPY_OUT)).any():
        return np.full(len(line), -1)
    for queue in np.unique(acts.queue[acts.queue < 0]).tolist():
        engine, direction = tiers.side(queue)
        if engine in tiers.engine and n.machine.tiers[tiers.engine.index(engine)].queue == COPY_ENGINES:
            line[acts.queue == queue] = direction
    return line


def check(acts: ActivityTimes, line: I64, tiers: Tiers, ready: I64, wanted: I64, n: Figures, found: Findings) -> None:
    """Each copy that stands in a line starts when it is its turn.

    ready   (activities,) when it comes to the engine
    wanted  (activities,) the operator that waits for a swap, NEVER none
    """
    for direction, slots in ((INTO, n.machine.copies_in), (OUT, n.machine.copies_out)):
        rows = np.flatnonzero((line == direction) & (acts.start < NEVER))
        if not len(rows):
            continue
        s = _tables(acts, rows, tiers, ready, wanted, slots)
        _each_tick(s, np.argsort(s.end, kind="stable"))
        for a, due in s.said[: s.count[0]].tolist():
            act = int(rows[a])
            what = f"activity {act} of {tiers.name(int(acts.queue[act]))} starts at {acts.start[act]} ns"
            when = "its turn in the copy engine" if due == NEVER else f"{due} ns, when it is its turn in the copy engine"
            found.say(acts.start_record[act], what, when)
        found.count("turns in copy engines", len(rows))


def _tables(acts: ActivityTimes, rows: I64, tiers: Tiers, ready: I64, wanted: I64, slots: int) -> Turns:
    start, end = acts.start[rows], acts.end[rows]
    came = np.minimum(ready[rows], start)
    tick = np.unique(np.concatenate([came, start, end[end < NEVER]]))
    after = np.isin(tick, acts.start[acts.start == acts.end]).astype(np.uint8)
    return Turns(
        tick, after, _whose(acts.queue[rows], tiers), wanted[rows], came, start,
        end, np.argsort(came, kind="stable"), slots,
        place=np.stack([came, rows], 1), waiting=np.zeros(len(rows), np.int64), late=np.zeros(len(rows), np.uint8),
        said=np.zeros((MOST, 2), np.int64), count=np.zeros(1, np.int64),
    )  # fmt: skip


def _whose(queue: I64, tiers: Tiers) -> npt.NDArray[np.uint8]:
    """PROGRAM, DUE or EARLY: of each engine the first two queues are of swaps that are due."""
    due = -1 - queue < 2 * tiers.engines
    return np.select([queue >= 0, due], [PROGRAM, DUE], EARLY).astype(np.uint8)
