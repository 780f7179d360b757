"""Faults planted in results, each with all that follows from it put right: only reasoning about time or content finds them.

A fault changes the event log, the metrics, the bounds or the timeline of a run that finished.  What is a sum, a count or a
quotient of what was changed is made anew from the changed log (`Edit.finish`), so that no total tells.  Written from the
documentation of the log and of the metrics alone, not from the referee.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpusim.machine.constants import Machine
from gpusim.machine.constants import machine as machine_of
from gpusim.machine.profile import Profile
from gpusim.results import log as lg
from gpusim.results.metrics import METRICS, avoidable
from gpusim.results.result import Result
from gpusim.trace import trace as tr
from gpusim.trace.trace import Trace

SWAP = -1
STALLS = tuple(name for name in METRICS if name.startswith("stall_") and name != "stall_ns")


@dataclass
class Activity:
    """One operator or swap of the log."""

    number: int
    what: int       # kind of an operator, or SWAP
    of: int         # operator or tensor
    queue: int
    submitted: int  # place in the log
    starts: int     # places in the log
    ends: int
    start: int      # ns
    end: int
    size: int       # bytes
    source: int = 0
    target: int = 0

    @property
    def names(self) -> set[int]:
        return {self.number, self.of, self.start, self.end, self.end - self.start}


def untold(result: Result) -> Result:
    """The result with a log that does not say what streams waited for: nothing in it gives a fault away that is elsewhere."""
    assert result.log is not None
    return replace(result, log=result.log[result.log["kind"] != lg.STALL], spec={**result.spec, "log_version": 2})


@dataclass
class Case:
    """A run that finished, with its log, its program and its machine."""

    result: Result
    trace: Trace  # the one that ran
    source: Trace  # the one that was asked for
    profile: Profile
    own: Any = None
    durations: Any = None  # int64[O], where known
    again: Callable[..., Result] | None = None  # (trace, profile, other choices) -> the same run with these

    def __post_init__(self) -> None:
        self.result = untold(self.result)

    @cached_property
    def log(self) -> Any:
        return self.result.log

    @cached_property
    def machine(self) -> Machine:
        return machine_of(self.trace, self.profile, None)

    @property
    def tiers(self) -> list[str]:
        """The kind of each memory below the device's, nearest first."""
        return [part.partition("(")[0].strip() for part in str(self.result.spec.get("tiers", "host")).split(">")]

    @cached_property
    def activities(self) -> list[Activity]:
        """Those that ran, in the order of submission."""
        return list(activities_of(self.log, self.trace))

    @cached_property
    def queues(self) -> dict[int, list[Activity]]:
        """Queue -> its activities, in the order in which they ran."""
        found: dict[int, list[Activity]] = {}
        for activity in sorted(self.activities, key=lambda a: (a.start, a.end, a.number)):
            found.setdefault(activity.queue, []).append(activity)
        return found

    @cached_property
    def place(self) -> dict[int, int]:
        """Of each activity its place in its queue."""
        return {a.number: i for of in self.queues.values() for i, a in enumerate(of)}

    @cached_property
    def computing(self) -> list[int]:
        return sorted({a.queue for a in self.activities if a.what == tr.KERNEL})

    @cached_property
    def ending(self) -> dict[int, list[Activity]]:
        """Time -> the activities that end at it."""
        found: dict[int, list[Activity]] = {}
        for activity in self.activities:
            found.setdefault(activity.end, []).append(activity)
        return found

    @cached_property
    def spans(self) -> Any:
        """int64[2, A]: starts and ends."""
        return np.array([[a.start for a in self.activities], [a.end for a in self.activities]])

    def beside(self, start: int, end: int) -> int:
        """How many activities run at some time between these."""
        return int(((self.spans[0] < end) & (self.spans[1] > start)).sum())

    def alone(self, a: Activity) -> bool:
        """Nothing else runs at any time of it, and the host does nothing within it."""
        first, last = np.searchsorted(self.log["t"], [a.start + 1, a.end])
        return first == last and self.beside(a.start, a.end) == 1


def activities_of(log: Any, trace: Trace) -> Iterator[Activity]:
    made: dict[int, tuple[int, int, int, int, int, int]] = {}
    started: dict[int, tuple[int, int, int]] = {}
    for i, (t, kind, a, b, addr, size) in enumerate(log.tolist()):
        if kind == lg.ISSUE:
            made[addr] = (i, int(trace.activity[a]), a, int(trace.read_bytes[a]) if trace.activity[a] in tr.MOVES else 0, 0, 0)
        elif kind == lg.COPY:
            made[addr] = (i, SWAP, a, size, b >> 8 & 255, b & 255)
        elif kind == lg.START:
            started[a] = (i, b, t)
        elif kind == lg.END:
            place, what, of, moved, source, target = made[a]
            begins, queue, start = started[a]
            yield Activity(a, what, of, queue, place, begins, i, start, t, moved, source, target)


@dataclass
class Fault:
    """A result that is wrong in one way; what a reader would have to hear of it."""

    kind: str
    result: Result
    numbers: set[int] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    def named(self, sentences: list[str]) -> bool:
        """Whether a sentence has one of the words or numbers, or is of a record of one of the activities."""
        said = " ".join(sentences)
        found = {int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", said)}
        log = self.result.log
        records = [log[int(n)] for n in re.findall(r"record (\d+)", said) if log is not None and int(n) < len(log)]
        found |= {int(r["a"]) for r in records if r["kind"] in (lg.START, lg.END)}
        return bool(found & self.numbers) or any(word in said for word in self.words)


class Edit:
    """A copy of a run's log under change; `finish` makes all else follow."""

    def __init__(self, case: Case) -> None:
        self.case, self.log = case, case.log.copy()
        self.keep = np.ones(len(self.log), bool)
        self.moved: Callable[[Any], Any] = lambda t: t  # of the times of the timeline

    def span(self, a: Activity, start: int | None = None, end: int | None = None) -> None:
        """Let an activity run at another time."""
        if start is not None:
            self.log["t"][a.starts] = start
        if end is not None:
            self.log["t"][a.ends] = end

    def shift(self, since: int, by: int, place: int = -1) -> None:
        """All records of this time and later, those before `place` excepted, are `by` ns later."""
        later = (self.case.log["t"] >= since) & (np.arange(len(self.log)) >= place)
        self.log["t"][later] += by
        self.moved = lambda t: np.where(t >= since, t + by, t)

    def drop(self, places: list[int]) -> None:
        self.keep[places] = False

    def finish(self, stall: str = "") -> Result | None:
        """The result with this log; None where a number would be below zero.  What streams stood still longer is `stall`."""
        case, old = self.case, self.case.result
        log = self.log[self.keep]
        log = log[np.argsort(log["t"], kind="stable")]
        log["t"] = np.maximum(log["t"], 0)
        before, after = (totals_of(of, case.trace, case.computing, case.tiers) for of in (case.log, log))
        found = dict(old.metrics)
        for name, value in after.items():
            if name in found:
                found[name] += value - before[name]
        part = f"stall_{stall}_ns"
        if part not in found:
            part = max((n for n in STALLS if n in found), key=lambda n: found[n])
        found[part] += after["stall_ns"] - before["stall_ns"]
        if "sharing_ns" in found:
            found["sharing_ns"] = max(0, found["sharing_ns"])
        if any(value < 0 for value in found.values()):
            return None
        timeline = {n: self.moved(c) if n in ("time_ns", "device_ns") else c for n, c in old.timeline.items()}
        return replace(old, log=log, metrics=quotients(found, old, len(case.computing)), timeline=timeline)


def totals_of(log: Any, trace: Trace, computing: list[int], tiers: list[str]) -> dict[str, int]:
    """What metrics count in a log; of a stall, the sum alone."""
    found = list(activities_of(log, trace))
    operators = [a for a in found if a.what != SWAP]
    swaps = [a for a in found if a.what == SWAP]
    total = {
        "makespan_ns": int(log["t"].max()),
        "compute_busy_ns": sum(a.end - a.start for a in operators if a.what == tr.KERNEL),
        "program_transfer_ns": sum(a.end - a.start for a in operators if a.what in tr.MOVES),
        "host_work_ns": sum(a.end - a.start for a in operators if a.what == tr.HOST_WORK),
        "swap_ins": sum(a.target == 0 for a in swaps), "swap_outs": sum(a.target != 0 for a in swaps),
        "h2d_bytes": sum(a.size for a in swaps if a.target == 0), "d2h_bytes": sum(a.size for a in swaps if a.target),
        "clean_drops": int(((log["kind"] == lg.DROP) & (log["b"] == 0)).sum()),
        "stall_ns": 0,
    }  # fmt: skip
    total["sharing_ns"] = total["compute_busy_ns"]
    for memory, tier in enumerate(tiers, 1):
        for word, of in (("in", [a for a in swaps if a.source == memory]), ("out", [a for a in swaps if a.target == memory])):
            total[f"{tier}_{word}_bytes"] = total.get(f"{tier}_{word}_bytes", 0) + sum(a.size for a in of)
    for queue in computing:
        of = [a for a in operators if a.queue == queue]
        total["stall_ns"] += max((a.end for a in of), default=0) - sum(a.end - a.start for a in of)
    return total


def quotients(m: dict[str, Any], old: Result, streams: int) -> dict[str, Any]:
    """Metrics that follow from others."""
    was, makespan = old.metrics, m["makespan_ns"]
    if "compute_idle_share" in m and makespan:
        m["compute_idle_share"] = 1 - m["compute_busy_ns"] / streams / makespan
    for name in ("h2d", "d2h"):
        moved = [x[f"{name}_bytes"] + x.get(f"program_{name}_bytes", 0) for x in (m, was)]
        if f"{name}_busy_share" in m and moved[1]:
            m[f"{name}_busy_share"] = was[f"{name}_busy_share"] * (moved[0] / moved[1]) * (was["makespan_ns"] / makespan)
    if "swaps_per_s" in m:
        m["swaps_per_s"] = (m["swap_ins"] + m["swap_outs"]) / (makespan / 1e9)
    for ratio, bound in (("slowdown", "no_limit"), ("over_oracle", "oracle"), ("over_best_plan", "best_plan")):
        if ratio in m and f"bound_{bound}_ns" in old.bounds:
            m[ratio] = makespan / old.bounds[f"bound_{bound}_ns"]
    if "frag_utilisation" in m and m["reserved_peak_bytes"]:
        m["frag_utilisation"] = m["requested_peak_bytes"] / m["reserved_peak_bytes"]
    if "frag_internal" in m and m["allocated_peak_bytes"] and was["requested_peak_bytes"] != m["requested_peak_bytes"]:
        m["frag_internal"] = max(0.0, 1 - m["requested_peak_bytes"] / m["allocated_peak_bytes"])
    if "avoidable_share" in m and "bound_live_bytes" in old.bounds:
        m["avoidable_share"] = avoidable({**m, **old.bounds})
    return m


Planter = Callable[[Case, Any], Fault | None]
KINDS: dict[str, Planter] = {}


def kind(function: Planter) -> Planter:
    """Enter a function that plants one kind of fault, or finds no place for it (None)."""
    KINDS[function.__name__.replace("_", " ")] = function
    return function


def pick(rng: Any, places: list[Any]) -> Any:
    return places[int(rng.integers(len(places)))] if places else None


def fault(result: Result | None, numbers: set[int], *words: str) -> Fault | None:
    """The result as a fault, where there is one."""
    return None if result is None else Fault("", result, numbers, set(words))


def resized(case: Case, a: Activity, by: int) -> Fault | None:
    """An activity takes `by` ns more; everything behind it is so much later."""
    if by == 0 or a.end - a.start + by < 0:
        return None
    edit = Edit(case)
    edit.shift(a.end, by, a.starts + 1)
    return fault(edit.finish(), a.names | {a.end + by, a.end - a.start + by})


def earlier(case: Case, a: Activity, start: int, stall: str, *others: Activity) -> Fault | None:
    """An activity runs earlier by itself, in its own length; nothing else changes."""
    if not 0 <= start < a.start:
        return None
    edit = Edit(case)
    edit.span(a, start, start + a.end - a.start)
    near = set().union(*(b.names for b in others)) if others else set()
    return fault(edit.finish(stall), a.names | near | {start, start + a.end - a.start})


def room(case: Case, a: Activity) -> int:
    """When the activity before it in its queue ends, or it is submitted, whichever is later."""
    before = case.queues[a.queue][: case.place[a.number]]
    return max([int(case.log["t"][a.submitted]), *(b.end for b in before[-4:] if b.end <= a.start)])
