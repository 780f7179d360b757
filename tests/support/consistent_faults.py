"""Faults planted in results, each with all that follows from it put right: only reasoning about time or content finds them.

A fault changes the event log, the metrics, the bounds or the timeline of a run that finished.  What is a sum, a count or a
quotient of what was changed is made anew from the changed log (`_Edit.finish`), so that no total tells.  Written from the
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
from gpusim.machine.profile import Profile, changed
from gpusim.results import log as lg
from gpusim.results.metrics import METRICS, avoidable
from gpusim.results.result import Result
from gpusim.trace import trace as tr
from gpusim.trace.build import make_trace
from gpusim.trace.trace import Trace

SWAP = -1
OF_OPERATORS = ("program_h2d_bytes", "program_d2h_bytes", "collective_bytes", "nvme_read_bytes", "nvme_written_bytes")
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
        return list(_activities(self.log, self.trace))

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


def _activities(log: Any, trace: Trace) -> Iterator[Activity]:
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

    def named(self, violations: list[str]) -> bool:
        """Whether a sentence has one of the words, or one of the numbers."""
        texts = [text.lower() for text in violations]
        found = {int(n.replace(",", "")) for text in texts for n in re.findall(r"\d[\d,]*", text)}
        return bool(found & self.numbers) or any(word.lower() in text for word in self.words for text in texts)


class _Edit:
    """A copy of a run's log under change; `finish` makes all else follow."""

    def __init__(self, case: Case) -> None:
        self.case, self.log = case, case.log.copy()
        self.keep = np.ones(len(self.log), bool)
        self.added: list[tuple[int, Any]] = []
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

    def finish(self, kind: str, stall: str = "", **metrics: int) -> Result | None:
        """The result with this log; None where a number would be below zero.  What streams stood still longer is `stall`."""
        case, old = self.case, self.case.result
        log = self.log[self.keep]
        for place, record in self.added:
            log = np.insert(log, place, record)
        log = log[np.argsort(log["t"], kind="stable")]
        log["t"] = np.maximum(log["t"], 0)
        before, after = (_totals(of, case.trace, case.computing, case.tiers) for of in (case.log, log))
        found = dict(old.metrics)
        for name, value in after.items():
            if name in found:
                found[name] += value - before[name]
        for name, change in metrics.items():
            if name in found:
                found[name] += change
        part = f"stall_{stall}_ns" if stall else max((n for n in STALLS if n in found), key=lambda n: found[n])
        found[part] += after["stall_ns"] - before["stall_ns"]
        if "sharing_ns" in found:
            found["sharing_ns"] = max(0, found["sharing_ns"])
        if any(value < 0 for value in found.values()):
            return None
        timeline = {n: self.moved(c) if n in ("time_ns", "device_ns") else c for n, c in old.timeline.items()}
        return replace(old, log=log, metrics=_quotients(found, old, len(case.computing)), timeline=timeline)


def _totals(log: Any, trace: Trace, computing: list[int], tiers: list[str]) -> dict[str, int]:
    """What metrics count in a log; of a stall, the sum alone."""
    found = list(_activities(log, trace))
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


def _quotients(m: dict[str, Any], old: Result, streams: int) -> dict[str, Any]:
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
    KINDS[function.__name__.strip("_")] = function
    return function


def _pick(rng: Any, places: list[Any]) -> Any:
    return places[int(rng.integers(len(places)))] if places else None


def _fault(case: Case, result: Result | None, numbers: set[int], *words: str) -> Fault | None:
    return None if result is None else Fault("", result, numbers, set(words))


def _resized(case: Case, a: Activity | None, by: int) -> Fault | None:
    """An activity takes `by` ns more; everything behind it is so much later."""
    if a is None or by == 0 or a.end - a.start + by < 0:
        return None
    edit = _Edit(case)
    edit.shift(a.end, by, a.starts + 1)
    return _fault(case, edit.finish(""), a.names | {a.end + by, a.end - a.start + by})


def _of(case: Case, *what: int, least: int = 400) -> list[Activity]:
    """Activities of these kinds that take a while, and beside which nothing runs."""
    return [a for a in case.activities if a.what in what and a.end - a.start >= least and case.alone(a)]


# --- times of activities ----------------------------------------------------------------------------------------------------


@kind
def kernel_shortened(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, tr.KERNEL))
    return _resized(case, a, -int((a.end - a.start) * rng.uniform(0.2, 0.9))) if a else None


@kind
def kernel_of_1_ns(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, tr.KERNEL))
    return _resized(case, a, 1 - (a.end - a.start)) if a else None


@kind
def kernel_lengthened(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, tr.KERNEL))
    return _resized(case, a, int((a.end - a.start) * rng.uniform(0.1, 2))) if a else None


@kind
def kernel_longer_by_1_ns(case: Case, rng: Any) -> Fault | None:
    return _resized(case, _pick(rng, _of(case, tr.KERNEL)), 1)


@kind
def copy_in_half_its_time(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, SWAP))
    return _resized(case, a, -((a.end - a.start) // 2)) if a else None


@kind
def copy_lengthened(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, SWAP))
    return _resized(case, a, int((a.end - a.start) * rng.uniform(0.1, 2))) if a else None


@kind
def latency_left_out(case: Case, rng: Any) -> Fault | None:
    latency = case.machine.tiers[0].read_latency
    a = _pick(rng, _of(case, SWAP, tr.COPY_IN, tr.COPY_OUT, least=latency + 100))
    return _resized(case, a, -latency) if a and latency else None


@kind
def program_copy_in_half_its_time(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, *tr.MOVES))
    return _resized(case, a, -((a.end - a.start) // 2)) if a else None


@kind
def host_work_shortened(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, _of(case, tr.HOST_WORK))
    return _resized(case, a, -((a.end - a.start) // 2)) if a else None


# --- when activities start --------------------------------------------------------------------------------------------------


@kind
def idle_inserted(case: Case, rng: Any) -> Fault | None:
    """Nothing starts for a while, though nothing is in the way."""
    a = _pick(rng, [a for a in case.activities if case.alone(a) and a.start > 0])
    if a is None:
        return None
    by = int(rng.choice([1, 1_000, 100_000, 100_000_000]))
    edit = _Edit(case)
    edit.shift(a.start, by, a.starts)
    return _fault(case, edit.finish(""), a.names | {a.start + by, a.end + by})


@kind
def gap_left_out(case: Case, rng: Any) -> Fault | None:
    gap = case.machine.gap
    pairs = [
        (a, b) for q in case.computing for a, b in zip(case.queues[q], case.queues[q][1:], strict=False)
        if gap and b.what == tr.KERNEL and b.start == a.end + gap and case.alone(b)
    ]  # fmt: skip
    pair = _pick(rng, pairs)
    if pair is None:
        return None
    edit = _Edit(case)
    edit.shift(pair[1].start, -gap, pair[1].starts)
    return _fault(case, edit.finish("", "launch"), pair[0].names | pair[1].names | {pair[1].start - gap})


def _earlier(case: Case, a: Activity | None, start: int, stall: str = "", *others: Activity) -> Fault | None:
    """An activity runs earlier by itself, in its own length; nothing else changes."""
    if a is None or not 0 <= start < a.start:
        return None
    edit = _Edit(case)
    edit.span(a, start, start + a.end - a.start)
    near = set().union(*(b.names for b in others)) if others else set()
    return _fault(case, edit.finish("", stall), a.names | near | {start, start + a.end - a.start})


def _room(case: Case, a: Activity) -> int:
    """When the activity before it in its queue ends, or it is submitted, whichever is later."""
    before = case.queues[a.queue][: case.place[a.number]]
    return max([int(case.log["t"][a.submitted]), *(b.end for b in before[-4:] if b.end <= a.start)])


@kind
def swap_in_awaited_by_nobody(case: Case, rng: Any) -> Fault | None:
    """A kernel starts before the tensor that it reads has come."""
    pairs = []
    for a in case.activities:
        if a.what == tr.KERNEL:
            ops = case.trace.read_id[case.trace.read_start[a.of] : case.trace.read_start[a.of + 1]].tolist()
            late = [b for b in case.ending.get(a.start, ()) if b.what == SWAP and b.target == 0 and b.of in ops]
            pairs += [(a, b) for b in late if _room(case, a) < b.end - 50]
    pair = _pick(rng, pairs)
    return None if pair is None else _earlier(case, pair[0], (max(_room(case, pair[0]), pair[1].start) + pair[1].end) // 2, "", pair[1])


@kind
def swap_before_its_kernel_is_done(case: Case, rng: Any) -> Fault | None:
    pairs = []
    for b in case.activities:
        if b.what == SWAP and b.target:
            last = [a for a in case.ending.get(b.start, ()) if a.what == tr.KERNEL and a.submitted < b.submitted]
            pairs += [(a, b) for a in last if _room(case, b) < a.end - 50]
    pair = _pick(rng, pairs)
    return None if pair is None else _earlier(case, pair[1], (max(_room(case, pair[1]), pair[0].start) + pair[0].end) // 2, "", pair[0])


@kind
def event_awaited_by_nobody(case: Case, rng: Any) -> Fault | None:
    """A kernel starts before that of another stream for whose end it waited."""
    pairs = [
        (a, b) for q in case.computing for a in case.queues[q] for b in case.ending.get(a.start, ())
        if b.queue >= 0 and b.queue != a.queue and b.submitted < a.submitted and _room(case, a) < b.end - 50
    ]  # fmt: skip
    pair = _pick(rng, pairs)
    return None if pair is None else _earlier(case, pair[0], (max(_room(case, pair[0]), pair[1].start) + pair[1].end) // 2, "", pair[1])


@kind
def swaps_in_other_order(case: Case, rng: Any) -> Fault | None:
    """Two copies of an engine, one behind the other: the second goes first."""
    pairs = [
        (a, b) for q, of in case.queues.items() if q < 0 for a, b in zip(of, of[1:], strict=False)
        if b.start == a.end and case.log["t"][b.submitted] <= a.start and a.end - a.start != b.end - b.start
    ]  # fmt: skip
    pair = _pick(rng, pairs)
    if pair is None:
        return None
    a, b = pair
    edit, turn = _Edit(case), a.start + b.end - b.start
    edit.span(b, a.start, turn)
    edit.span(a, turn, b.end)
    return _fault(case, edit.finish(""), a.names | b.names | {turn})


@kind
def two_at_once_in_an_engine(case: Case, rng: Any) -> Fault | None:
    """A copy starts beside the one whose end it waited for."""
    pairs = [
        (a, b) for q, of in case.queues.items() if q < 0 for a, b in zip(of, of[1:], strict=False)
        if b.start == a.end and case.log["t"][b.submitted] <= a.start
    ]  # fmt: skip
    pair = _pick(rng, pairs)
    return _earlier(case, pair[1], pair[0].start, "", pair[0]) if pair else None


@kind
def copy_starts_late(case: Case, rng: Any) -> Fault | None:
    """A copy takes its time later than it could, while nothing waits for it."""
    swaps = [a for q, of in case.queues.items() if q < 0 for a, b in zip(of, of[1:], strict=False) if b.start - a.end > 2_000]
    starts = np.array([a.start for a in case.activities])
    swaps = [a for a in swaps if not ((starts >= a.end) & (starts <= a.end + 1_500)).any()]
    a = _pick(rng, swaps)
    if a is None:
        return None
    edit = _Edit(case)
    edit.span(a, a.start + 1_000, a.end + 1_000)
    return _fault(case, edit.finish(""), a.names | {a.start + 1_000, a.end + 1_000})


@kind
def kernels_in_other_order(case: Case, rng: Any) -> Fault | None:
    pairs = [
        (a, b) for q in case.computing for a, b in zip(case.queues[q], case.queues[q][1:], strict=False)
        if a.what == b.what == tr.KERNEL and case.log["t"][b.submitted] <= a.start and a.end - a.start != b.end - b.start
        and b.start - a.end <= case.machine.gap
    ]  # fmt: skip
    pair = _pick(rng, pairs)
    if pair is None:
        return None
    a, b = pair
    edit, turn = _Edit(case), a.start + b.end - b.start
    edit.span(b, a.start, turn)
    edit.span(a, turn + b.start - a.end, b.end)
    return _fault(case, edit.finish(""), a.names | b.names | {turn})


@kind
def multiprocessors_granted_twice(case: Case, rng: Any) -> Fault | None:
    """Two kernels of two streams, one of which waited for the other's multiprocessors, run side by side at full speed."""
    pairs = [
        (a, b) for q in case.computing for b in case.queues[q] for a in case.ending.get(b.start, ())
        if b.what == a.what == tr.KERNEL and a.queue != b.queue and _room(case, b) <= a.start
    ]  # fmt: skip
    pair = _pick(rng, pairs) if "sms" in str(case.result.spec.get("share", "")) else None
    return _earlier(case, pair[1], pair[0].start, "sms" if "stall_sms_ns" in case.result.metrics else "", pair[0]) if pair else None


@kind
def kernel_not_slowed(case: Case, rng: Any) -> Fault | None:
    """A kernel that shared memory or multiprocessors takes no longer than alone."""
    if case.durations is None:
        return None
    slow = [a for a in case.activities if a.what == tr.KERNEL and a.end - a.start > case.durations[a.of] + 1]
    a = _pick(rng, slow)
    if a is None:
        return None
    edit, end = _Edit(case), a.start + int(case.durations[a.of])
    edit.span(a, end=end)
    return _fault(case, edit.finish(""), a.names | {end, end - a.start})


# --- the host ---------------------------------------------------------------------------------------------------------------


def _host_records(case: Case) -> Any:
    return ~np.isin(case.log["kind"], [lg.START, lg.END])


@kind
def host_pauses(case: Case, rng: Any) -> Fault | None:
    """The host does nothing for a while, and all that it does afterwards is later, as is what the device does with it."""
    issues = [a for a in case.activities if a.what != SWAP and case.log["t"][a.submitted] > 0]
    times = [int(case.log["t"][a.submitted]) for a in issues]
    quiet = [a for a, t in zip(issues, times, strict=True) if not case.beside(t, t)]
    a = _pick(rng, quiet)
    if a is None:
        return None
    since, by = int(case.log["t"][a.submitted]), int(rng.choice([700, 5_000, 1_000_000]))
    edit = _Edit(case)
    edit.shift(since, by, a.submitted)
    return _fault(case, edit.finish("", "launch"), a.names | {since, since + by})


@kind
def launch_left_out(case: Case, rng: Any) -> Fault | None:
    """A launch costs the host nothing: where the device waits for it, all is earlier."""
    cost = case.machine.operator
    issues = [a for a in case.activities if a.what != SWAP and a.start == case.log["t"][a.submitted] and a.start >= cost]
    quiet = [a for a in issues if not case.beside(a.start - cost, a.start)]
    a = _pick(rng, quiet) if cost else None
    if a is None:
        return None
    edit = _Edit(case)
    edit.shift(a.start, -cost, a.submitted)
    return _fault(case, edit.finish("", "launch"), a.names | {a.start - cost})


@kind
def sync_that_does_not_wait(case: Case, rng: Any) -> Fault | None:
    """The host goes on behind a synchronisation while the device is still at work."""
    of_op = {a.of: a for a in case.activities if a.what != SWAP}
    kinds, args = case.trace.kind, case.trace.arg
    at = np.flatnonzero(kinds == tr.SYNC)
    before = [int((kinds[:e] == tr.OP).sum()) for e in at.tolist()]
    places = []
    for first in before:
        if 0 < first < case.trace.ops and first in of_op and first - 1 in of_op:
            a = of_op[first]
            done = max(b.end for b in case.activities if b.submitted < a.submitted)
            if case.log["t"][a.submitted] >= done and done - case.log["t"][of_op[first - 1].submitted] > 200:
                places.append((a, done))
    place = _pick(rng, places)
    if place is None:
        return None
    a, done = place
    until = int(case.log["t"][of_op[a.of - 1].submitted])
    edit, host = _Edit(case), _host_records(case)
    behind = host & (np.arange(len(case.log)) > of_op[a.of - 1].submitted) & (np.arange(len(case.log)) <= a.submitted)
    edit.log["t"][behind] = np.minimum(edit.log["t"][behind], (until + done) // 2)
    del args
    return _fault(case, edit.finish(""), a.names | {done, (until + done) // 2}, "sync", "wait", "host")


@kind
def launch_queue_exceeded(case: Case, rng: Any) -> Fault | None:
    """The host issues all operators of a stretch at once, however long it takes."""
    issues = [a for a in case.activities if a.what != SWAP]
    if len(issues) < 8:
        return None
    first = int(rng.integers(0, len(issues) - 4))
    span = issues[first : first + 4]
    since = int(case.log["t"][span[0].submitted])
    if int(case.log["t"][span[-1].submitted]) - since < 200:
        return None
    edit, places = _Edit(case), np.arange(len(case.log))
    behind = _host_records(case) & (places >= span[0].submitted) & (places <= span[-1].submitted)
    edit.log["t"][behind] = since
    return _fault(case, edit.finish(""), set().union(*(a.names for a in span)) | {since}, "host", "launch")


# --- what is where ----------------------------------------------------------------------------------------------------------


def _without(case: Case, a: Activity) -> _Edit:
    """The log without a swap: its copy, its start and its end; activities are numbered anew."""
    edit = _Edit(case)
    edit.drop([a.submitted, a.starts, a.ends])
    runs = np.isin(edit.log["kind"], [lg.START, lg.END])
    made = np.isin(edit.log["kind"], [lg.ISSUE, lg.COPY, lg.CANCEL])
    edit.log["a"] -= runs & (edit.log["a"] > a.number)
    edit.log["addr"] -= made & (edit.log["addr"] > a.number)
    return edit


@kind
def eviction_without_its_copy(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, [a for a in case.activities if a.what == SWAP and a.target])
    return _fault(case, _without(case, a).finish(""), a.names, "tensor") if a else None


@kind
def swap_in_without_its_copy(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, [a for a in case.activities if a.what == SWAP and not a.target])
    return _fault(case, _without(case, a).finish(""), a.names, "tensor") if a else None


@kind
def copy_of_half_its_bytes(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, [a for a in case.activities if a.what == SWAP and a.size > 1024])
    if a is None:
        return None
    edit = _Edit(case)
    edit.log["bytes"][a.submitted] //= 2
    return _fault(case, edit.finish(""), a.names | {a.size, a.size // 2})


@kind
def copy_of_half_its_bytes_and_time(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, [a for a in _of(case, SWAP) if a.size > 1024])
    if a is None:
        return None
    edit = _Edit(case)
    edit.log["bytes"][a.submitted] //= 2
    edit.shift(a.end, -((a.end - a.start) // 2), a.starts + 1)
    return _fault(case, edit.finish(""), a.names | {a.size, a.size // 2})


@kind
def tensor_of_half_its_bytes(case: Case, rng: Any) -> Fault | None:
    log = case.log
    made = [i for i in np.flatnonzero(log["kind"] == lg.CREATE).tolist() if log["bytes"][i] > 1024]
    place = _pick(rng, made)
    if place is None:
        return None
    unit, size = int(log["a"][place]), int(log["bytes"][place])
    edit = _Edit(case)
    of = np.isin(log["kind"], [lg.CREATE, lg.DESTROY]) & (log["a"] == unit)
    edit.log["bytes"][of] //= 2
    return _fault(case, edit.finish(""), {unit, size, size // 2}, "requested")


@kind
def copy_to_another_tier(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, [a for a in case.activities if a.what == SWAP]) if len(case.tiers) > 1 else None
    if a is None:
        return None
    edit = _Edit(case)
    b = int(case.log["b"][a.submitted])
    edit.log["b"][a.submitted] = (b & ~0xFFFF) | ((3 - a.source) << 8 if a.source else 0) | (3 - a.target if a.target else 0)
    return _fault(case, edit.finish(""), a.names, "memory", "tier")


def _lives(case: Case) -> list[tuple[int, int, int, int]]:
    """(unit, its PLACE, its UNPLACE or the end, in the log) of blocks on the device."""
    open_: dict[int, int] = {}
    found = []
    for i, record in enumerate(case.log):
        if record["kind"] == lg.PLACE and record["b"] == 0:
            open_[int(record["a"])] = i
        elif record["kind"] == lg.UNPLACE and record["b"] == 0 and int(record["a"]) in open_:
            found.append((int(record["a"]), open_.pop(int(record["a"])), i, int(record["bytes"])))
        elif record["kind"] == lg.MOVE:
            open_.pop(int(record["a"]), None)
    return found


def _block_moved(case: Case, rng: Any, free: bool) -> Fault | None:
    lives = [x for x in _lives(case) if x[3] > 0]
    rng.shuffle(lives)
    top = int(case.result.metrics["reserved_peak_bytes"])
    for unit, since, until, size in lives[:40]:
        others = [(int(case.log["addr"][s]), int(case.log["addr"][s]) + n) for u, s, e, n in lives if e > since and s < until and u != unit]
        own = int(case.log["addr"][since])
        ends = sorted({own + size, *(stop for _, stop in others)})
        for at in ends if free else [start for start, _ in others]:
            clear = all(at + size <= start or at >= stop for start, stop in others)
            if at != own and at + size <= top and clear == free:
                edit = _Edit(case)
                edit.log["addr"][[since, until]] = at
                return _fault(case, edit.finish(""), {unit, at, own})
    return None


@kind
def block_on_a_free_address(case: Case, rng: Any) -> Fault | None:
    return _block_moved(case, rng, True)


@kind
def block_on_another(case: Case, rng: Any) -> Fault | None:
    return _block_moved(case, rng, False)


@kind
def operator_on_another_stream(case: Case, rng: Any) -> Fault | None:
    a = _pick(rng, [a for a in case.activities if a.what == tr.KERNEL]) if len(case.computing) > 1 else None
    if a is None:
        return None
    edit = _Edit(case)
    other = next(q for q in case.computing if q != a.queue)
    edit.log["b"][[a.submitted, a.starts, a.ends]] = other
    return _fault(case, edit.finish(""), a.names, "stream", "queue")


# --- numbers beside the log -------------------------------------------------------------------------------------------------


@kind
def stall_of_another_cause(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    large = [n for n in STALLS if metrics.get(n, 0) > 100]
    taken = _pick(rng, large)
    given = _pick(rng, [n for n in STALLS if n in metrics and n != taken])
    if taken is None or given is None:
        return None
    by = max(1, int(metrics[taken] * rng.uniform(0.01, 1)))
    metrics[taken] -= by
    metrics[given] += by
    return Fault("", replace(case.result, metrics=metrics), set(), {taken, given, "stall"})


_TOGETHER = {  # these metrics change by the same bytes or counts, so that sums hold
    "h2d_bytes": ("host_in_bytes",), "d2h_bytes": ("host_out_bytes",), "prefetch_hits": ("prefetches",),
    "stall_ns": ("stall_launch_ns",), "compute_busy_ns": ("sharing_ns",),
}  # fmt: skip
_LEFT_OUT = {  # they say something of the machine's measurement or the trace, or are sums of stalls
    "stall_ns", *STALLS, "kernel_default_share",
}  # fmt: skip


@kind
def metric_edited(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    name = str(_pick(rng, [n for n in metrics if n not in _LEFT_OUT]))
    was = metrics[name]
    if isinstance(was, int | np.integer):
        by = max(1, int(was * rng.uniform(0.005, 0.5)))
        for each in (name, *(n for n in _TOGETHER.get(name, ()) if n in metrics)):
            metrics[each] += by
        metrics = _quotients(metrics, case.result, max(1, len(case.computing)))
    else:
        metrics[name] = was * 0.9 if was else 0.1
    return Fault("", replace(case.result, metrics=metrics), set(), {name})


@kind
def bound_edited(case: Case, rng: Any) -> Fault | None:
    bounds = dict(case.result.bounds)
    name = _pick(rng, [n for n in bounds if bounds[n]])
    if name is None:
        return None
    bounds[name] = int(bounds[name] * rng.choice([0.5, 0.9, 0.99]))
    claimed = replace(case.result, bounds=bounds)
    metrics = _quotients(dict(case.result.metrics), claimed, max(1, len(case.computing)))
    return Fault("", replace(claimed, metrics=metrics), set(), {name})


@kind
def spec_edited(case: Case, rng: Any) -> Fault | None:
    """What the run is said to have been: the rate of a link, slots of a copy engine, that its policy reads the future."""
    spec, metrics = dict(case.result.spec), dict(case.result.metrics)
    words = ["rates", "slots", "footprint", *(["oracles"] if spec.get("oracles") else [])]
    word = str(rng.choice(words))
    if word == "rates":
        spec["rates"] = {**spec["rates"], "h2d": spec["rates"]["h2d"] * 2}
        metrics["h2d_busy_share"] /= 2
    elif word == "slots":
        spec["slots"] = {**spec["slots"], "h2d": spec["slots"]["h2d"] + 1}
    else:
        spec[word] = int(spec[word] * 1.1) if word == "footprint" else []
    return Fault("", replace(case.result, spec=spec, metrics=metrics), set(), {word.rstrip("s"), "h2d", word})


@kind
def timeline_column_scaled(case: Case, rng: Any) -> Fault | None:
    timeline = dict(case.result.timeline)
    name = _pick(rng, [n for n, column in timeline.items() if len(column) and column.max() > 100])
    if name is None:
        return None
    timeline[name] = (timeline[name] * 0.95).astype(timeline[name].dtype)
    return Fault("", replace(case.result, timeline=timeline), set(), {name, "timeline"})


@kind
def timeline_row_edited(case: Case, rng: Any) -> Fault | None:
    timeline = dict(case.result.timeline)
    name = _pick(rng, [n for n, column in timeline.items() if n.endswith("_bytes") and len(column) > 3 and column.max() > 1024])
    if name is None:
        return None
    column = timeline[name].copy()
    row = int(rng.integers(1, len(column) - 1))
    column[row] += 512
    timeline[name] = column
    return Fault("", replace(case.result, timeline=timeline), {row, int(column[row])}, {name, "timeline"})


@kind
def prefetch_hit_claimed(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    if metrics.get("prefetch_wasted", 0) > 0:
        metrics["prefetch_wasted"] -= 1
        metrics["prefetch_hits"] += 1
        return Fault("", replace(case.result, metrics=metrics), set(), {"prefetch"})
    if metrics.get("prefetch_late", 0) > 0:
        metrics["prefetch_late"] -= 1
        return Fault("", replace(case.result, metrics=metrics), set(), {"prefetch"})
    return None


@kind
def end_of_the_run_earlier(case: Case, rng: Any) -> Fault | None:
    metrics = dict(case.result.metrics)
    metrics["makespan_ns"] = int(metrics["makespan_ns"] * 0.99)
    metrics = _quotients(metrics, case.result, max(1, len(case.computing)))
    return Fault("", replace(case.result, metrics=metrics), set(), {"makespan"})


# --- whole runs of another machine, program or physics, said to be of this one ------------------------------------------------


def _of_another(case: Case, trace: Trace, profile: Profile, **choices: Any) -> Fault | None:
    """What another run came to, under the name of this one; None where it came to the same."""
    if case.again is None or case.result.program is not None:
        return None
    other, mine = case.again(trace, profile, **choices), case.result
    if not other.finished or other.log is None or np.array_equal(other.log, mine.log):
        return None
    spans = [{(a.of, a.what, a.start, a.end): a for a in _activities(of, case.trace)} for of in (mine.log, other.log)]
    moved = [a for there, of in (spans, spans[::-1]) for key, a in there.items() if key not in of]
    if not moved:
        return None
    own = {n: v for n, v in mine.metrics.items() if n not in other.metrics or n.startswith("kernel_")}
    metrics = {**other.metrics, **own}
    metrics = _quotients(dict(metrics), mine, max(1, len(case.computing)))
    claimed = replace(mine, log=other.log, metrics=metrics, timeline=other.timeline)
    return Fault("", claimed, set().union(*(a.names for a in moved)), {"host"})


_NUMBERS = {  # of the machine -> factors
    "link.latency_queued": (0.5, 0.9, 1.1), "link.h2d": (0.9, 0.99), "link.d2h": (0.9, 0.99), "launch.gap": (0.0, 0.9, 2.0),
    "launch.submit": (0.0, 0.5), "launch.eager": (0.0, 0.5), "copy_engines.h2d": (2.0,), "copy_engines.d2h": (2.0,),
    "allocation.cached_alloc": (0.0, 0.5), "allocation.malloc": (0.5,), "link.latency_synchronised": (0.5,),
    "host.bandwidth": (2.0, 0.5), "nvme.read": (1.1,), "nvme.write": (1.1,), "nvme.latency": (0.5,),
}  # fmt: skip


def _another_machine(path: str) -> Planter:
    def planted(case: Case, rng: Any) -> Fault | None:
        value: Any = case.profile
        for step in path.split("."):
            value = getattr(value, step)
        new = value.value * rng.choice(_NUMBERS[path])
        return _of_another(case, case.source, changed(case.profile, path, new))

    return planted


for _path in _NUMBERS:
    KINDS[f"machine {_path}"] = _another_machine(_path)


def _shares(case: Case) -> list[str]:
    return [word for word in str(case.result.spec.get("share", "none")).split(", ") if word != "none"]


def _without_word(word: str) -> Planter:
    def planted(case: Case, rng: Any) -> Fault | None:
        words = _shares(case)
        return _of_another(case, case.source, case.profile, share=[w for w in words if w != word] or "none") if word in words else None

    return planted


for _word in ("sms", "memory", "engines"):
    KINDS[f"shared nothing of {_word}"] = _without_word(_word)


@kind
def shared_though_said_not(case: Case, rng: Any) -> Fault | None:
    return None if _shares(case) else _of_another(case, case.source, case.profile, share="sms, memory, engines")


def _edited(trace: Trace, **columns: Any) -> Trace:
    return make_trace(
        trace.name, {**{n: getattr(trace, n) for n in tr.COLUMNS}, **columns}, {n: getattr(trace, n) for n in tr.NAME_TABLES}, trace.meta
    )


@kind
def another_recorded_time(case: Case, rng: Any) -> Fault | None:
    at = _pick(rng, np.flatnonzero(case.source.duration > 1000).tolist())
    if at is None:
        return None
    duration = case.source.duration.copy()
    duration[at] = int(duration[at] * rng.choice([0.5, 0.9, 0.99, 1.01]))
    return _of_another(case, _edited(case.source, duration=duration), case.profile)


def _silenced(*events: int) -> Planter:
    """A program in which one of these events does not happen."""

    def planted(case: Case, rng: Any) -> Fault | None:
        at = _pick(rng, np.flatnonzero(np.isin(case.source.kind, events)).tolist())
        if at is None:
            return None
        kinds, args = case.source.kind.copy(), case.source.arg.copy()
        kinds[at], args[at] = tr.SNAPSHOT, -1
        return _of_another(case, _edited(case.source, kind=kinds, arg=args), case.profile)

    return planted


KINDS["a synchronisation left out"] = _silenced(tr.SYNC)
KINDS["a wait for an event left out"] = _silenced(tr.WAIT, tr.RECORD)


@kind
def more_bytes_over_the_link(case: Case, rng: Any) -> Fault | None:
    moves = np.flatnonzero(np.isin(case.source.activity, tr.MOVES) & (case.source.duration < 0) & (case.source.read_bytes > 4096))
    at = _pick(rng, moves.tolist())
    if at is None:
        return None
    size = case.source.read_bytes.copy()
    size[at] = size[at] * 9 // 10
    found = _of_another(case, _edited(case.source, read_bytes=size), case.profile)
    return found


@kind
def priorities_ignored(case: Case, rng: Any) -> Fault | None:
    if "stream_priority" not in case.source.meta:
        return None
    meta = {k: v for k, v in case.source.meta.items() if k != "stream_priority"}
    return _of_another(case, replace(case.source, meta=meta), case.profile)


def plant(name: str, case: Case, seed: int) -> Fault | None:
    """A fault of this kind somewhere in the run; None where there is no place for one."""
    found = KINDS[name](case, np.random.default_rng([seed, sum(map(ord, name))]))
    return None if found is None else replace(found, kind=name)
