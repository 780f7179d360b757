"""Does each activity take the time that its operator and its bytes take on this machine?

A kernel takes its duration, and longer where it has not all of its multiprocessors or of the memory's bandwidth that it needs
(sms.py, flows.py).  A copy takes its start-up latency, and then what its bytes take on the links that it shares with others.  A
kernel that reads or writes below the device ends with the last of its bytes, or with its own work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.sharing import MEMORY, SMS
from gpusim.machine.topology.sharing import SharedLink
from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.flows import Grants, Moved, ends
from gpusim.referee.numbers import DEVICE_MEMORY, F64, Figures, Route
from gpusim.referee.rates import remote
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.trace.trace import COLLECTIVE, HOST_WORK, I64, KERNEL, MOVES, Trace

ROUNDING = 1  # ns: what shares links or multiprocessors ends within a float's rounding of a whole nanosecond


NOTHING = Grants(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class Ready(NamedTuple):
    """When activities wait for nothing but multiprocessors, and when they would but for the gap between two launches, ns; and
    the times of the log."""

    ready: I64
    bare: I64
    time: I64


class Started(NamedTuple):
    """What a run has started, when and on which machine.  grants: of the multiprocessors, to activities."""

    acts: ActivityTimes
    trace: Trace
    tiers: Tiers
    n: Figures
    grants: Grants
    ready: Ready


class Ends(NamedTuple):
    """(activities,) expected ends, NEVER of those that did not start, and whether what they share decides them."""

    end: I64
    shared: npt.NDArray[np.bool_]


def check(run: Started, found: Findings) -> None:
    """Every end against the one that follows from the start."""
    compare(run, expected(run), found)


def compare(run: Started, due: Ends, found: Findings) -> None:
    """Every end of the log against the one that is due."""
    acts, trace = run.acts, run.trace
    shared, ended = due.shared, (acts.end < NEVER) & (due.end < NEVER)
    wrong = np.flatnonzero(ended & (np.abs(acts.end - due.end) > np.where(shared, ROUNDING, 0)))
    for i in wrong.tolist():
        took, should = acts.end[i] - acts.start[i], due.end[i] - acts.start[i]
        what = f"operator {acts.op[i]}" if acts.op[i] >= 0 else f"a swap of {acts.size[i]} bytes"
        why = "its latency and its bytes on these links"
        if acts.op[i] >= 0 and trace.activity[acts.op[i]] == KERNEL:
            why = "its duration on this machine" + (" beside what runs with it" if shared[i] else "")
        found.say(acts.end_record[i], f"activity {i}, {what}, takes {took} ns", f"{should} ns: {why}")
    found.count("ends", int(ended.sum()))


class Flow(NamedTuple):
    """What activities move, or do, at once: when it begins, bytes (or ns of kernels), and as in flows.Flows."""

    rows: I64
    begin: I64
    size: F64
    alone: F64
    unit: F64
    links: tuple[SharedLink, ...]


class Moving(NamedTuple):
    """What follows from the starts of a run before anything is shared."""

    own: Ends          # of what shares nothing; of copies the start of all time
    flows: list[Flow]
    grants: Grants     # of the multiprocessors, to flows as they stand there


def expected(run: Started) -> Ends:
    """The ends that follow from the starts in the log."""
    moving = flowing(run)
    return settled(moving, arrivals(moving.flows, run.n.links, moving.grants)) if moving.flows else moving.own


def flowing(run: Started) -> Moving:
    """What flows, and what ends whatever flows; both leave out what ends with activities of other runs."""
    acts, trace, tiers, n, grants, _ = run
    started, operator = (acts.start < NEVER) & ~acts.met, acts.op >= 0
    recorded = np.append(trace.duration, -1)[acts.op] >= 0
    activity = np.append(trace.activity.astype(np.int64), -1)[acts.op]
    took = np.append(n.duration, 0)[acts.op]
    works = (activity == HOST_WORK) & (took > 0)  # in host memory, at a rate at which it takes its duration alone
    moves = started & (~operator | ((np.isin(activity, MOVES) | works) & ~recorded & (acts.size > 0)))
    end = np.where(started & operator & ~moves, acts.start + took, NEVER)
    end[moves] = 0
    shared = moves.copy()
    parts = [part for part in _copies(acts, activity, tiers, n, moves) if len(part.rows)]
    by_kernels = [part for part in _remote(acts, trace, tiers, n, started) if len(part.rows)]
    kernels = np.flatnonzero(started & (activity == KERNEL) & (end > acts.start))
    work = [part for part in _kernels(acts, kernels, n) if len(part.rows)]
    timed = [part for part in _timed(acts, trace, n, started & recorded & np.isin(activity, MOVES)) if len(part.rows)]
    for part in by_kernels:
        shared[part.rows] = True
    return Moving(Ends(end, shared), [*work, *parts, *timed, *by_kernels], _of_flows(grants, work, len(end)))


def arrivals(flows: Sequence[Flow], rates: Mapping[Any, float], grants: Grants) -> Moved:
    """When each row of each of these flows has arrived; rates: of the links, bytes/ns."""
    number = {link: k for k, link in enumerate(rates)}
    begin, size, alone, unit = (np.concatenate(column) for column in zip(*(part[1:5] for part in flows), strict=True))
    return ends(
        begin, size, alone, unit,
        np.repeat(np.arange(len(flows)), [len(part.rows) for part in flows]),
        [[number[link] for link in part.links] for part in flows], list(rates.values()), grants,
    )  # fmt: skip


def settled(moving: Moving, there: Moved) -> Ends:
    """The ends of a run whose flows have arrived like that."""
    end, shared = moving.own
    rows = np.concatenate([part.rows for part in moving.flows])
    np.maximum.at(end, rows, np.where(there.end < 0, NEVER, there.end))
    shared[rows[there.slowed]] = True
    return moving.own


def _copies(acts: ActivityTimes, activity: I64, tiers: Tiers, n: Figures, moves: npt.NDArray[np.bool_]) -> Iterator[Flow]:
    """Swaps, and operators that move bytes."""
    operator = acts.op >= 0
    of_tier = np.where(acts.copy & 255, acts.copy & 255, acts.copy >> 8 & 255)
    for code, way in n.operators.items():
        part = _flowing(acts, moves & operator & (activity == code), acts.size, way)
        yield part if code != HOST_WORK else part._replace(alone=part.size / n.duration[acts.op[part.rows]])
    for tier, (into, out) in enumerate(zip(n.into, n.out, strict=True), 1):
        swaps = moves & ~operator & (of_tier == tier) & ~tiers.is_recall(acts.copy)
        for at, way in ((swaps & (acts.copy & 255 == 0), into), (swaps & (acts.copy & 255 != 0), out)):
            yield _flowing(acts, at, acts.size, way)
    for (source, to), way in n.falls.items():
        yield _flowing(acts, moves & (acts.copy == source << 8 | to), acts.size, way)


def _remote(acts: ActivityTimes, trace: Trace, tiers: Tiers, n: Figures, started: npt.NDArray[np.bool_]) -> Iterator[Flow]:
    """What kernels read and write below the device themselves."""
    for amount, way in zip(remote(acts, trace, tiers), (n.reads, n.writes), strict=True):
        yield _flowing(acts, started & (amount > 0), amount, way)


def _flowing(acts: ActivityTimes, which: npt.NDArray[np.bool_], amount: I64, way: Route) -> Flow:
    rows = np.flatnonzero(which)
    size = amount[rows]
    return Flow(rows, acts.start[rows] + way.latency, size.astype(np.float64), way.alone(size), np.ones(len(rows)), way.links)


def _timed(acts: ActivityTimes, trace: Trace, n: Figures, which: npt.NDArray[np.bool_]) -> Iterator[Flow]:
    """Copies whose recorded times are known without what ran beside them: their own rate, through the device's memory."""
    known = (trace.device_time >= 0) & (n.duration > 0) & (trace.activity != COLLECTIVE)
    rows = np.flatnonzero(which & np.append(known, False)[acts.op] & (acts.size > 0) & (MEMORY in n.share))
    size = acts.size[rows].astype(np.float64)
    yield Flow(rows, acts.start[rows], size, size / n.duration[acts.op[rows]], np.ones(len(rows)), (DEVICE_MEMORY,))


def _kernels(acts: ActivityTimes, rows: I64, n: Figures) -> Iterator[Flow]:
    """The work of kernels in ns, where anything of it is shared: those that need the memory's bandwidth, and the others."""
    if MEMORY not in n.share and SMS not in n.share:
        return
    need = n.needs.memory[acts.op[rows]] if MEMORY in n.share else np.zeros(len(rows))
    for at, links in ((need > 0, (DEVICE_MEMORY,)), (need == 0, ())):
        those, unit = rows[at], np.where(need > 0, need, 1.0)[at]
        work = n.duration[acts.op[those]].astype(np.float64)
        yield Flow(those, acts.start[those], work, unit, unit, links)


def _of_flows(grants: Grants, work: list[Flow], activities: int) -> Grants:
    """The grants to activities as grants to the flows of kernels' work, which come first."""
    flow = np.full(activities, -1)
    rows = np.concatenate([part.rows for part in work]) if work else np.zeros(0, np.int64)
    flow[rows] = np.arange(len(rows))
    of = flow[grants.flow]
    return Grants(grants.time[of >= 0], of[of >= 0], grants.share[of >= 0])
