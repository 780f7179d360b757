"""Does each activity take the time that its operator and its bytes take on this machine?

A kernel takes its duration.  A copy takes its start-up latency, and then what its bytes take on the links that it shares with
others (flows.py).  A kernel that reads or writes below the device ends with the last of its bytes, or with its own work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.referee.activities import NEVER, Activities
from gpusim.referee.flows import ends
from gpusim.referee.numbers import Numbers, Way
from gpusim.referee.rates import remote
from gpusim.referee.report import Findings
from gpusim.referee.tiers import Tiers
from gpusim.trace.trace import HOST_WORK, I64, MOVES, Trace

ROUNDING = 1  # ns: copies that share links end within a float's rounding of a whole nanosecond


def check(acts: Activities, trace: Trace, tiers: Tiers, n: Numbers, found: Findings) -> None:
    """Every end against the one that follows from the start."""
    due = expected(acts, trace, tiers, n)
    of_bytes, ended = due.of_bytes, (acts.end < NEVER) & (due.end < NEVER)
    wrong = np.flatnonzero(ended & (np.abs(acts.end - due.end) > np.where(of_bytes, ROUNDING, 0)))
    for i in wrong.tolist():
        took, should = acts.end[i] - acts.start[i], due.end[i] - acts.start[i]
        what = f"operator {acts.op[i]}" if acts.op[i] >= 0 else f"a swap of {acts.size[i]} bytes"
        why = "its latency and its bytes on these links" if of_bytes[i] else "its duration on this machine"
        found.say(acts.end_record[i], f"activity {i}, {what}, takes {took} ns", f"{should} ns: {why}")
    found.count("ends", int(ended.sum()))


class Ends(NamedTuple):
    """(activities,) expected ends, NEVER of those that did not start, and whether bytes over links decide them."""

    end: I64
    of_bytes: npt.NDArray[np.bool_]


def expected(acts: Activities, trace: Trace, tiers: Tiers, n: Numbers) -> Ends:
    """The ends that follow from the starts in the log."""
    started, operator = acts.start < NEVER, acts.op >= 0
    activity = np.append(trace.activity.astype(np.int64), -1)[acts.op]
    recorded = np.append(trace.duration, -1)[acts.op] >= 0
    took = np.append(n.duration, 0)[acts.op]
    works = (activity == HOST_WORK) & (took > 0)  # in host memory, at a rate at which it takes its duration alone
    moves = started & (~operator | ((np.isin(activity, MOVES) | works) & ~recorded & (acts.size > 0)))
    end = np.where(started & operator & ~moves, acts.start + took, NEVER)

    parts: list[tuple[I64, I64, Way]] = []  # activities, bytes, way
    of_tier = np.where(acts.copy & 255, acts.copy & 255, acts.copy >> 8 & 255)
    for code, way in n.operators.items():
        at = np.flatnonzero(moves & operator & (activity == code))
        parts.append((at, acts.size[at], way))
    for tier, (into, out) in enumerate(zip(n.into, n.out, strict=True), 1):
        swaps = moves & ~operator & (of_tier == tier)
        for at, way in ((swaps & (acts.copy & 255 == 0), into), (swaps & (acts.copy & 255 != 0), out)):
            rows = np.flatnonzero(at)
            parts.append((rows, acts.size[rows], way))
    for amount, way in zip(remote(acts, trace, tiers), (n.reads, n.writes), strict=True):
        at = np.flatnonzero(started & (amount > 0))
        parts.append((at, amount[at], way))
    of_bytes = moves.copy()
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return Ends(end, of_bytes)
    rows = np.concatenate([at for at, _, _ in parts])
    begin = np.concatenate([acts.start[at] + way.latency for at, _, way in parts])
    size = np.concatenate([amount for _, amount, _ in parts])
    alone = np.concatenate([
        way.alone(amount) if way is not n.operators[HOST_WORK] else amount / took[at] for at, amount, way in parts
    ])  # fmt: skip
    number = {name: k for k, name in enumerate(n.links)}
    routes = [[number[name] for name in way.links] for *_, way in parts]
    of_part = np.repeat(np.arange(len(parts)), [len(at) for at, _, _ in parts])
    there = ends(begin, size, alone, of_part, routes, list(n.links.values()))
    end[moves] = 0
    np.maximum.at(end, rows, there)
    of_bytes[rows] = True
    return Ends(end, of_bytes)
