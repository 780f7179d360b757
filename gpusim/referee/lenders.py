"""Memory that devices lend each other: of all programs together no more than there is, and no wait longer than needed.

Bytes are a borrower's from the record on that promises them until the last copy to or from them has ended, or its run has.  The
device's own program has what its allocator has taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpusim.machine.topology.connections import Connections, Lender
from gpusim.referee.activities import NEVER
from gpusim.referee.ends import Started
from gpusim.referee.report import Findings
from gpusim.results.log import COPY, DECIDE, PLACE, REGAINED, RELEASE, RESERVE, UNPLACE, WANTS
from gpusim.results.result import Result
from gpusim.trace.trace import I64


class LentLevels(NamedTuple):
    """Changes of a number of bytes, in the order of time: when, ns, how much there is from then on, and the record of each."""

    time: I64
    level: I64
    record: I64

    def at(self, time: int) -> int:
        """How much there is when all of that time has happened."""
        i = int(np.searchsorted(self.time, time, side="right"))
        return int(self.level[i - 1]) if i else 0

    def least(self, time: int) -> int:
        """How much there is at least at that time."""
        return min(self.at(time), int(self.level[self.time == time].min(initial=NEVER)))

    def before(self, record: int) -> int:
        """How much there is before a record of the log whose records these are."""
        i = int(np.searchsorted(self.record, record))
        return int(self.level[i - 1]) if i else 0


def check_lenders(
    results: Sequence[Result], runs: Sequence[Started], between: Connections, stop: I64, found: Sequence[Findings]
) -> None:
    """Every memory of the machine that is lent."""
    for name, lender in between.lenders.items():
        lent = _lent(name, results, runs, stop)
        who = max(0, lender.program)
        capacity = lender.capacity if lender.program < 0 else int(results[who].spec["capacity"])
        own = _own(results[who]) if lender.program >= 0 else _levels([])
        _no_more(lent, lender.lends, f"others have of {name}", found[who])
        _no_more(_sum(own, lent), capacity, f"memory of {name} holds, whoever they belong to,", found[who])
        if lender.program >= 0:
            _waits(lender, own, lent, capacity, _recalls(name, runs, stop), results, found[who])
        found[who].count("lent memory", len(lent.time))


def _lent(name: str, results: Sequence[Result], runs: Sequence[Started], stop: I64) -> LentLevels:
    """What all programs together have of the lender's memory."""
    changes = list[tuple[int, int, int]]()
    for result, run, end in zip(results, runs, stop.tolist(), strict=True):
        if name in run.tiers.lenders:
            changes += _of_program(result, run, 1 + run.tiers.lenders.index(name), _over(result, run) if end == NEVER else end)
    return _levels(changes)


def _over(result: Result, run: Started) -> int:
    """When a run that has finished is over."""
    return int(result.metrics.get("makespan_ns", 0))


def _of_program(result: Result, run: Started, m: int, over: int) -> list[tuple[int, int, int]]:
    """(ns, bytes, record) of the copies of a program that come into memory m and go."""
    log, acts = result.log, run.acts
    assert log is not None
    uses = (acts.copy >= 0) & ~acts.cancelled & ((acts.copy >> 8 & 255 == m) | (acts.copy & 255 == m))
    ends = dict(zip(acts.record[uses].tolist(), np.minimum(acts.end[uses], over).tolist(), strict=True))
    changes, there = list[tuple[int, int, int]](), dict[int, list[int]]()
    wanted = np.isin(log["kind"], (COPY, PLACE, UNPLACE))
    for i in np.flatnonzero(wanted).tolist():
        kind, u, memory, size, t = (int(log[name][i]) for name in ("kind", "a", "b", "bytes", "t"))
        if kind == COPY:
            if i in ends and u in there:
                there[u].append(ends[i])
        elif memory == m and kind == PLACE:
            there[u] = []
            changes.append((t, size, i))
        elif memory == m and u in there:
            changes.append((max([t, *there.pop(u)]), -size, i))
    left = sum(size for _, size, _ in changes)
    return [*((min(t, over), size, i) for t, size, i in changes), (over, -left, len(log) - 1)]


def _own(result: Result) -> LentLevels:
    """What the allocator of the device's own program has taken from it."""
    log = result.log
    assert log is not None
    at = np.flatnonzero(np.isin(log["kind"], (RESERVE, RELEASE)))
    size = np.where(log["kind"][at] == RESERVE, log["bytes"][at], -log["bytes"][at])
    before = int(result.metrics["reserved_current_bytes"]) - int(size.sum())  # taken before the first record
    return LentLevels(np.append(0, log["t"][at]), before + np.append(0, np.cumsum(size)), np.append(-1, at))


def _levels(changes: list[tuple[int, int, int]]) -> LentLevels:
    """At one time what goes goes first."""
    rows = np.array(sorted(changes, key=lambda change: (change[0], change[1])) or np.zeros((0, 3)), np.int64)
    return LentLevels(rows[:, 0], np.cumsum(rows[:, 1]), rows[:, 2])


def _sum(*each: LentLevels) -> LentLevels:
    changes = list[tuple[int, int, int]]()
    for one in each:
        changes += zip(one.time.tolist(), np.diff(one.level, prepend=0).tolist(), one.record.tolist(), strict=True)
    return _levels(changes)


def _no_more(levels: LentLevels, most: int, what: str, found: Findings) -> None:
    over = np.flatnonzero(levels.level > most)
    if len(over):
        i = int(over[0])
        found.say(-1, f"{levels.level[i]} bytes {what} at {levels.time[i]} ns", f"at most {most}")


def _recalls(name: str, runs: Sequence[Started], stop: I64) -> list[tuple[int, int]]:
    """(submitted, ended) ns of copies from the lender's memory to tiers below, which end with their run."""
    found = []
    for run, over in zip(runs, stop.tolist(), strict=True):
        if name in run.tiers.lenders:
            m = 1 + run.tiers.lenders.index(name)
            mine = run.tiers.is_recall(run.acts.copy) & (run.acts.copy >> 8 & 255 == m)
            found += list(zip(run.acts.submit[mine].tolist(), np.minimum(run.acts.end[mine], over).tolist(), strict=True))
    return found


def _waits(
    lender: Lender, own: LentLevels, lent: LentLevels, capacity: int, recalls: Sequence[tuple[int, int]],
    results: Sequence[Result], found: Findings,
) -> None:  # fmt: skip
    """The lender's host goes on as soon as it has what it wants, or all of it that comes; not before, and not later."""
    log = results[lender.program].log
    assert log is not None
    wanted, since = 0, -1
    for i in np.flatnonzero((log["kind"] == DECIDE) & np.isin(log["b"], (WANTS, REGAINED))).tolist():
        t = int(log["t"][i])
        if log["b"][i] == WANTS:
            wanted, since = int(log["bytes"][i]), t
            continue
        has = capacity - own.before(i)
        earlier = [int(when) for when in lent.time[(lent.time >= since) & (lent.time < t)]]
        enough = [when for when in [since, *earlier] if has - lent.at(when) >= wanted and when < t]
        if enough:
            found.say(i, f"the host goes on at {t} ns with memory that it had lent", f"{enough[0]} ns, when it has enough back")
        pending = [end for start, end in recalls if since <= start <= t < end]
        if has - lent.least(t) < wanted and pending:
            found.say(i, f"the host goes on at {t} ns without memory that comes back", f"{min(pending)} ns, when that is there")
        found.count("waits for lent memory", 1)
