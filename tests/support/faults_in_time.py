"""Faults in when things happen; see `fault_tools`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from fault_tools import KINDS, SWAP, Activity, Case, Edit, Fault, Planter, earlier, fault, kind, pick, resized, room

from gpusim.results import log as lg
from gpusim.trace import trace as tr

Pairs = Iterator[tuple[Activity, Activity]]

# --- how long activities take -----------------------------------------------------------------------------------------------


def _of_other_length(what: tuple[int, ...], change: Callable[[Case, int, Any], float]) -> Planter:
    """An activity of these kinds, beside which nothing runs, takes more or less by what `change` says of its time."""

    def planted(case: Case, rng: Any) -> Fault | None:
        a = pick(rng, [a for a in case.activities if a.what in what and a.end - a.start >= 400 and case.alone(a)])
        return resized(case, a, int(change(case, a.end - a.start, rng))) if a else None

    return planted


_KERNEL = (tr.KERNEL,)
KINDS |= {
    "kernel shortened": _of_other_length(_KERNEL, lambda _, ns, rng: -ns * rng.uniform(0.2, 0.9)),
    "kernel of 1 ns": _of_other_length(_KERNEL, lambda _, ns, rng: 1 - ns),
    "kernel lengthened": _of_other_length(_KERNEL, lambda _, ns, rng: ns * rng.uniform(0.1, 2)),
    "kernel longer by 1 ns": _of_other_length(_KERNEL, lambda _, ns, rng: 1),
    "swap in half its time": _of_other_length((SWAP,), lambda _, ns, rng: -ns // 2),
    "swap lengthened": _of_other_length((SWAP,), lambda _, ns, rng: ns * rng.uniform(0.1, 2)),
    "latency left out": _of_other_length(
        (SWAP, tr.COPY_IN, tr.COPY_OUT), lambda case, ns, rng: -case.machine.tiers[0].read_latency
    ),
    "program's copy in half its time": _of_other_length(tr.MOVES, lambda _, ns, rng: -ns // 2),
    "host work shortened": _of_other_length((tr.HOST_WORK,), lambda _, ns, rng: -ns // 2),
}


def _shared(end: Callable[[Activity, int, Any], int]) -> Planter:
    """A kernel that shared memory or multiprocessors ends at another time, of it and of its isolated duration."""

    def planted(case: Case, rng: Any) -> Fault | None:
        known = case.durations
        slow = [a for a in case.activities if known is not None and a.what == tr.KERNEL and a.end - a.start > known[a.of] + 1]
        a = pick(rng, slow)
        if a is None:
            return None
        edit, until = Edit(case), end(a, int(case.durations[a.of]), rng)
        edit.span(a, end=until)
        return fault(edit.finish(), a.names | {until, until - a.start})

    return planted


KINDS |= {
    "kernel not slowed": _shared(lambda a, alone, rng: a.start + alone),
    "kernel slowed less": _shared(lambda a, alone, rng: int(rng.integers(a.start + alone, a.end))),
    "kernel slowed by 1 ns less": _shared(lambda a, alone, rng: a.end - 1),
}


# --- when activities start --------------------------------------------------------------------------------------------------


@kind
def idle_inserted(case: Case, rng: Any) -> Fault | None:
    """Nothing starts for a while, though nothing is in the way."""
    a = pick(rng, [a for a in case.activities if case.alone(a) and a.start > 0])
    if a is None:
        return None
    by = int(rng.choice([1, 1_000, 100_000, 100_000_000]))
    edit = Edit(case)
    edit.shift(a.start, by, a.starts)
    return fault(edit.finish(), a.names | {a.start + by, a.end + by})


def _in_turn(case: Case, computing: bool) -> Pairs:
    """Neighbours of the streams with kernels, or of the queues of swaps."""
    queues = case.computing if computing else [queue for queue in case.queues if queue < 0]
    return (pair for queue in queues for pair in pairwise(case.queues[queue]))


@kind
def gap_left_out(case: Case, rng: Any) -> Fault | None:
    gap = case.machine.gap
    pair = pick(rng, [
        (a, b) for a, b in _in_turn(case, True) if gap and b.what == tr.KERNEL and b.start == a.end + gap and case.alone(b)
    ])  # fmt: skip
    if pair is None:
        return None
    a, b = pair
    edit = Edit(case)
    edit.shift(b.start, -gap, b.starts)
    return fault(edit.finish("launch"), a.names | b.names | {b.start - gap})


def _behind(case: Case, what: tuple[int, ...]) -> Pairs:
    """(a, b): b of these kinds starts when a ends, though it was first of its queue before."""
    for b in case.activities:
        if b.what in what and room(case, b) < b.start - 50:
            yield from ((a, b) for a in case.ending.get(b.start, ()) if a.submitted < b.submitted)


def _not_waiting(what: tuple[int, ...], holds: Callable[[Case, Activity, Activity], bool]) -> Planter:
    """An activity does not wait for another, for which this must hold."""

    def planted(case: Case, rng: Any) -> Fault | None:
        pair = pick(rng, [(a, b) for a, b in _behind(case, what) if holds(case, a, b)])
        if pair is None:
            return None
        a, b = pair
        return earlier(case, b, (max(room(case, b), a.start) + a.end) // 2, "", a)

    return planted


def _brought(case: Case, a: Activity, b: Activity) -> bool:
    """A swap brings what a kernel reads."""
    reads = case.trace.read_id[case.trace.read_start[b.of] : case.trace.read_start[b.of + 1]]
    return a.what == SWAP and a.target == 0 and a.of in reads


KINDS |= {
    "kernel before what it reads has come": _not_waiting(_KERNEL, _brought),
    "swap out before its kernel is done": _not_waiting((SWAP,), lambda _, a, b: a.what == tr.KERNEL and b.target != 0),
    "kernel before another stream's": _not_waiting(_KERNEL, lambda _, a, b: a.queue >= 0 and a.queue != b.queue),
}


@kind
def multiprocessors_granted_twice(case: Case, rng: Any) -> Fault | None:
    """Two kernels of two streams, one of which waited for the other's multiprocessors, run side by side at full speed."""
    shared = "sms" in str(case.result.spec.get("share", ""))
    kernels = [
        (a, b) for a, b in _behind(case, _KERNEL) if a.what == tr.KERNEL and a.queue != b.queue and room(case, b) <= a.start
    ]  # fmt: skip
    pair = pick(rng, kernels) if shared else None
    return earlier(case, pair[1], pair[0].start, "sms", pair[0]) if pair else None


def _turns(case: Case, computing: bool, rng: Any) -> Any:
    """Two of a queue, one behind the other, the second of which could have been first."""
    gap = case.machine.gap if computing else 0
    return pick(rng, [
        (a, b) for a, b in _in_turn(case, computing)
        if b.start - a.end <= gap and case.log["t"][b.submitted] <= a.start and a.end - a.start != b.end - b.start
        and (not computing or a.what == b.what == tr.KERNEL)
    ])  # fmt: skip


def _in_other_order(computing: bool) -> Planter:
    def planted(case: Case, rng: Any) -> Fault | None:
        pair = _turns(case, computing, rng)
        if pair is None:
            return None
        a, b = pair
        edit, turn = Edit(case), a.start + b.end - b.start
        edit.span(b, a.start, turn)
        edit.span(a, turn + b.start - a.end, b.end)
        return fault(edit.finish(), a.names | b.names | {turn})

    return planted


KINDS["swaps in other order"] = _in_other_order(False)
KINDS["kernels in other order"] = _in_other_order(True)


@kind
def two_at_once_in_a_copy_engine(case: Case, rng: Any) -> Fault | None:
    pair = _turns(case, False, rng)
    return earlier(case, pair[1], pair[0].start, "", pair[0]) if pair else None


@kind
def swap_starts_late(case: Case, rng: Any) -> Fault | None:
    """A copy takes its time later than it could, while nothing waits for it."""
    starts = case.spans[0]
    swaps = [a for a, b in _in_turn(case, False) if b.start - a.end > 2_000]
    a = pick(rng, [a for a in swaps if not ((starts >= a.end) & (starts <= a.end + 1_500)).any()])
    if a is None:
        return None
    edit = Edit(case)
    edit.span(a, a.start + 1_000, a.end + 1_000)
    return fault(edit.finish(), a.names | {a.start + 1_000, a.end + 1_000})


# --- the host ---------------------------------------------------------------------------------------------------------------


def _host_between(case: Case, first: int, last: int) -> Any:
    """bool[records]: the host's, from one place of the log to another."""
    places = np.arange(len(case.log))
    return ~np.isin(case.log["kind"], [lg.START, lg.END]) & (places >= first) & (places <= last)


def _issued(case: Case) -> list[tuple[Activity, int]]:
    """The program's operators, and when the host issued them."""
    return [(a, int(case.log["t"][a.submitted])) for a in case.activities if a.what != SWAP]


@kind
def host_pauses(case: Case, rng: Any) -> Fault | None:
    """The host does nothing for a while, and all that it does afterwards is later, as is what the device does with it."""
    pair = pick(rng, [(a, t) for a, t in _issued(case) if t > 0 and not case.beside(t, t)])
    if pair is None:
        return None
    (a, since), by = pair, int(rng.choice([700, 5_000, 1_000_000]))
    edit = Edit(case)
    edit.shift(since, by, a.submitted)
    return fault(edit.finish("launch"), a.names | {since, since + by})


@kind
def launch_left_out(case: Case, rng: Any) -> Fault | None:
    """A launch costs the host nothing: where the device waits for it, all is earlier."""
    cost = case.machine.operator
    a = pick(rng, [a for a, t in _issued(case) if 0 < cost <= a.start == t and not case.beside(a.start - cost, a.start)])
    if a is None:
        return None
    edit = Edit(case)
    edit.shift(a.start, -cost, a.submitted)
    return fault(edit.finish("launch"), a.names | {a.start - cost})


@kind
def synchronisation_that_does_not_wait(case: Case, rng: Any) -> Fault | None:
    """The host goes on behind a synchronisation while the device is still at work."""
    issued = {a.of: (a, t) for a, t in _issued(case)}
    places = []
    for event in np.flatnonzero(case.trace.kind == tr.SYNC).tolist():
        first = int((case.trace.kind[:event] == tr.OP).sum())
        if first in issued and first - 1 in issued:
            (a, resumed), (before, asked) = issued[first], issued[first - 1]
            done = max(b.end for b in case.activities if b.submitted < a.submitted)
            if resumed >= done > asked + 200:
                places.append((a, before, asked, done))
    place = pick(rng, places)
    if place is None:
        return None
    a, before, asked, done = place
    edit, behind = Edit(case), _host_between(case, before.submitted + 1, a.submitted)
    edit.log["t"][behind] = np.minimum(edit.log["t"][behind], (asked + done) // 2)
    return fault(edit.finish(), a.names | {done, (asked + done) // 2}, "the host")


@kind
def launches_at_once(case: Case, rng: Any) -> Fault | None:
    """The host issues four operators at one time."""
    issued = _issued(case)
    at = pick(rng, [i for i in range(len(issued) - 3) if issued[i + 3][1] - issued[i][1] > 200])
    if at is None:
        return None
    (first, since), (last, _) = issued[at], issued[at + 3]
    edit = Edit(case)
    edit.log["t"][_host_between(case, first.submitted, last.submitted)] = since
    return fault(edit.finish(), set().union(*(a.names for a, _ in issued[at : at + 4])) | {since}, "the host")
