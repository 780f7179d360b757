"""Idle stretches of tensors with what moving them costs, and from a choice among them to a schedule.

A chosen stretch has two triggers: the tensor leaves when the host comes to operator `leave`, and comes back when it comes to
`back`; where `back` is the stretch's end it comes back on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.policies.planning import ACTION, EVICT, PREFETCH, Gaps, Schedule, View
from gpusim.trace.edit import issued
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, OPTIMIZER, PARAMETER, WORKSPACE, phase_kinds, roles
from gpusim.trace.trace import Trace

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Idle:
    """Stretches between two uses of a tensor, which operators `begin` and `end` make.  G rows; ns of program time."""

    unit: I64
    begin: I64    # -1: before the first use of what came with data
    end: I64
    size: I64     # bytes
    out_ns: F64   # time of the copy to the nearest tier, alone
    in_ns: F64    # time of the copy back, alone
    starts: F64   # when `begin` has ended
    ends: F64     # when `end` starts

    @property
    def spare_ns(self) -> F64:
        """How much longer the stretch is than both copies; negative where they cannot be hidden."""
        return self.ends - self.starts - self.out_ns - self.in_ns

    def of(self, rows: Any) -> Idle:
        """The rows of a mask, or these rows in this order."""
        return Idle(*(getattr(self, f.name)[rows] for f in fields(self)))


def idle(view: View, gaps: Gaps | None = None) -> Idle:
    """Of all gaps, or those given, what can pay: tensors with bytes, gone for one operator at least (see `resident`).

    Without a tier below there is nowhere to go, hence none.
    """
    gaps = view.gaps if gaps is None else gaps
    size = view.work.trace.size[gaps.unit]
    rows = np.flatnonzero((size > 0) & (gaps.end > gaps.begin + 2)) if view.tiers else np.zeros(0, np.int64)
    unit, begin, end, size = gaps.unit[rows], gaps.begin[rows], gaps.end[rows], size[rows]
    out_ns = in_ns = np.zeros(len(rows))
    if view.tiers:
        out_ns, in_ns = view.tiers[0].write_ns(size), view.tiers[0].read_ns(size)
    clock, duration = view.work.clock, view.work.duration
    starts = np.where(begin < 0, 0.0, clock[begin] + duration[begin])
    return Idle(unit, begin, end, size, out_ns, in_ns, starts, clock[end])


def operator_phases(trace: Trace) -> npt.NDArray[np.int8]:
    """(O,) the kind of phase (trace.roles) that each operator is in."""
    return phase_kinds(trace)[issued(trace)]


def saved(view: View, stretches: Idle) -> Mask:
    """(G,) whether the stretch is that of a feature map from its last use in the forward pass to its first in backward."""
    trace = view.work.trace
    kinds = operator_phases(trace)
    states = np.isin(roles(trace), (PARAMETER, GRADIENT, OPTIMIZER, WORKSPACE))
    crossing = (kinds[stretches.begin] == FORWARD) & (kinds[stretches.end] == BACKWARD)
    return np.asarray(crossing & ~states[stretches.unit])


def at(view: View, time: Any) -> Any:
    """The last operator that starts at or before a program time, ns; of an array an array."""
    return np.maximum(np.searchsorted(view.work.clock, time, "right") - 1, 0)


def in_time(view: View, stretches: Idle) -> I64:
    """The latest triggers with which each tensor is back when it is needed, were its copy alone on the link."""
    return np.asarray(np.clip(at(view, stretches.ends - stretches.in_ns), stretches.begin + 3, stretches.end))


def in_turns(view: View, stretches: Idle, room: float) -> I64:
    """The same where the link carries one copy at a time: from the last on, each ends when it is needed or the next begins.

    No earlier than there are `room` bytes for what is there; what is needed first has the first claim.
    """
    order = np.argsort(-stretches.ends, kind="stable")
    begins = np.empty(len(order))
    begins[order] = _one_by_one(stretches.ends[order], stretches.in_ns[order])
    back = in_time(view, stretches)
    wanted = np.clip(at(view, begins), stretches.begin + 3, back)
    _earlier(resident(view, stretches, back), back, wanted, stretches.size, order[::-1], room)
    return back


@kept()
def _one_by_one(needed: Any, takes: Any) -> Any:
    begins, link = np.empty(needed.size), np.inf
    for row in range(needed.size):
        link = min(link, needed[row]) - takes[row]
        begins[row] = link
    return begins


@kept()
def _earlier(here: Any, back: Any, wanted: Any, size: Any, order: Any, room: float) -> None:
    for row in order:
        while back[row] > wanted[row] and here[back[row] - 1] + size[row] <= room:
            back[row] -= 1
            here[back[row]] += size[row]


def resident(view: View, stretches: Idle, back: I64) -> I64:
    """(O,) bytes that are on the device when each operator runs: what is alive less what has left.

    An operator's own allocations come before its triggers: a tensor has left from the operator after `leave` on.
    """
    change = np.zeros(len(view.live), np.int64)
    np.add.at(change, stretches.begin + 2, -stretches.size)
    np.add.at(change, back, stretches.size)
    return np.asarray(view.live + np.cumsum(change))


def fits(view: View, stretches: Idle, back: I64, room: float) -> bool:
    """Whether what is planned to be on the device stays within `room` bytes."""
    return bool(resident(view, stretches, back).max(initial=0) <= room)


def schedule(stretches: Idle, back: I64, leave: I64 | None = None) -> Schedule:
    """Every tensor leaves after its stretch's first use, or at `leave`; at one operator evictions first, then what is
    needed first."""
    leave = stretches.begin + 1 if leave is None else leave
    early = np.flatnonzero(back < stretches.end)
    n = len(leave)
    actions = np.zeros(n + len(early), ACTION)
    actions["at"], actions["unit"] = np.append(leave, back[early]), np.append(stretches.unit, stretches.unit[early])
    actions["verb"][:n], actions["verb"][n:] = EVICT, PREFETCH
    due = np.append(stretches.begin, stretches.end[early])
    return Schedule(actions[np.lexsort((actions["unit"], due, actions["verb"], actions["at"]))])
