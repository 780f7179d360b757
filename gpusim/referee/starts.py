"""Each activity starts at the very moment at which the last of what it waits for is there, and a stream's stalls have a cause.

It waits for its submission, for what `host.py` finds in its tensors and in the stream's waits for events, for those before it
in its queue, and for a free slot of its engine, a kernel on its stream for the gap between two launches as well.  Those that
then wait for multiprocessors (sms.py), or for their turn among others in a copy engine (turns.py), are ready by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusim.base.compiled import kept
from gpusim.referee.world import step
from gpusim.results.log import END, START

MOST = 100
SWAP_IN, SWAP_OUT, ALLOC, LAUNCH, SYNC, EVENT, ON_SMS, ENGINE, LATE = range(9)  # of what stalls add up to, ns; LATE: prefetches
NOTHING, PROCESSORS, TURN = range(3)  # what an activity waits for when it is ready


class Starts(NamedTuple):
    """A activities, G groups that share slots: a stream each, or both queues of an engine's direction."""

    kind: Any      # int64[R] columns of the log
    a: Any
    t: Any
    queue: Any     # int64[A]
    group: Any     # int64[A]
    launched: Any  # uint8[A] 1: a kernel or a collective, which comes a gap after the activity before it
    submit: Any    # int64[A]
    need: Any      # int64[A, 3] other streams, copies to the device, copies from it
    alloc_ns: Any
    sync_ns: Any
    late: Any      # int64[A] the prefetch that it uses, -1 none
    done: Any      # int64[A] when it and all before it in its queue have ended
    then: Any      # uint8[A] what it waits for when it is ready
    computes: Any  # uint8[Q] 1: a stream with kernels
    slots: Any     # int64[G]
    in_line: Any   # uint8[G] 1: swaps of a copy engine that others use as well
    gap: int

    free: Any      # int64[G] since when there is a free slot
    running: Any   # int64[G]
    before: Any    # int64[Q] start of the activity before, -1 none
    ready: Any     # int64[A] the answer, ns; NEVER of what has not started
    sums: Any      # int64[9]
    said: Any      # int64[MOST, 3] record, activity, expected
    count: Any     # int64[1]


@step
def _stall(s: Starts, act: int, start: int) -> None:
    """What the stream waited for since it fell idle: each cause, in the order of time, owns the time up to itself."""
    at = s.free[s.group[act]]
    ready = start if s.then[act] == NOTHING else min(start, s.ready[act])
    event, data, room, host = s.need[act, 0], s.need[act, 1], s.need[act, 2], s.submit[act]
    if s.late[act] >= 0 and s.done[s.late[act]] > at:
        s.sums[LATE] += 1
    if start > max(at, ready):
        s.sums[ON_SMS if s.then[act] == PROCESSORS else ENGINE] += start - max(at, ready)
    while at < ready:
        until = ready
        for cause in (host, room, data, event):
            if at < cause < until:
                until = cause
        span = until - at
        if until == host:
            alloc = min(span, s.alloc_ns[act])
            sync = min(span - alloc, s.sync_ns[act])
            s.sums[ALLOC] += alloc
            s.sums[SYNC] += sync
            s.sums[LAUNCH] += span - alloc - sync
        elif until == data:
            s.sums[SWAP_IN] += span
        elif until == room:
            s.sums[SWAP_OUT] += span
        elif until == event:
            s.sums[EVENT] += span
        else:
            s.sums[LAUNCH] += span
        at = until


def _each_start(s: Starts) -> None:
    for i in range(s.kind.size):
        act = s.a[i]
        if s.kind[i] == END:
            g = s.group[act]
            if s.running[g] == s.slots[g]:
                s.free[g] = s.t[i]
            s.running[g] -= 1
        elif s.kind[i] == START:
            g, q = s.group[act], s.queue[act]
            due = max(s.submit[act], s.need[act, 0], s.need[act, 1], s.need[act, 2], s.before[q])
            if s.in_line[g] == 0:
                due = max(due, s.free[g])
            if s.launched[act] and s.before[q] >= 0:
                due = max(due, s.free[g] + s.gap)
            s.ready[act] = due
            wrong = s.t[i] < due if s.then[act] else s.t[i] != due
            if wrong and s.count[0] < s.said.shape[0]:
                row = s.said[s.count[0]]
                row[0], row[1], row[2] = i, act, due
                s.count[0] += 1
            if s.computes[q]:
                _stall(s, act, s.t[i])
            s.running[g] += 1
            s.before[q] = s.t[i]


each_start = kept(_nrt=False)(_each_start)
