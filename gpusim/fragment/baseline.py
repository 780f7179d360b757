"""STUB until the branch base is merged."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.fragment.candidates import Candidate, pytorch
from gpusim.fragment.moment import moment
from gpusim.fragment.replay import ENDLESS, Replay, replay
from gpusim.fragment.requests import of_trace
from gpusim.policies import registry
from gpusim.trace.trace import Trace


@dataclass(frozen=True)
class Baseline:
    exact: bool
    reason: str
    replay: Replay
    error: int
    capacity: int


@dataclass(frozen=True)
class Outcome:
    replay: Replay
    low: int
    high: int


def baseline(trace: Trace, capacity: int | None = None) -> Baseline:
    m = moment(trace)
    limit = m.limit if m.limit < ENDLESS else capacity or ENDLESS
    own = pytorch(str(trace.meta.get("alloc_conf") or ""))
    made = replay(of_trace(trace), registry.get("place", own.spec), limit if limit < ENDLESS else 1 << 38, log=True)
    return Baseline(True, "", made, 0, limit)


def under(base: Baseline, candidate: Candidate) -> Outcome:
    room = base.capacity if base.capacity < ENDLESS else 1 << 38
    made = replay(base.replay.program, registry.get("place", candidate.spec), room, log=True)
    return Outcome(made, made.held_peak, made.held_peak)
