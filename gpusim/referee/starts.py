"""Each activity starts at the very moment at which the last of what it waits for is there, and a stream's stalls have a cause.

It waits for its submission, for what `host.py` finds in its tensors and in the stream's waits for events, for those before it
in its queue, and for a free slot of its engine, a kernel on its stream for the gap between two launches as well.  Those that
then wait for multiprocessors (sms.py), or for their turn among others in a copy engine (turns.py), are ready by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusim.base.compiled import kept
from gpusim.referee.world import step
from gpusim.results.log import (
    BY_ALLOC,
    BY_COPY_ENGINE,
    BY_EVENT,
    BY_LAUNCH,
    BY_SMS,
    BY_SWAP_IN,
    BY_SWAP_OUT,
    BY_SYNC,
    END,
    STALL,
    STALLS,
    START,
)

MOST = 100
LATE = len(STALLS)  # of `sums`: prefetches
NOTHING, PROCESSORS, TURN = range(3)  # what an activity waits for when it is ready


class Starts(NamedTuple):
    """A activities, G groups that share slots: a stream each, or both queues of an engine's direction."""

    kind: Any      # int64[R] columns of the log
    a: Any
    b: Any
    size: Any
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
    blur: int      # ns that rounding the costs of device calls one by one may come to, of the whole run

    free: Any      # int64[G] since when there is a free slot
    running: Any   # int64[G]
    before: Any    # int64[Q] start of the activity before, -1 none
    ready: Any     # int64[A] the answer, ns; NEVER of what has not started
    bare: Any      # int64[A] the same but for the gap between two launches
    sums: Any      # int64[9] of STALLS, ns, and LATE
    own: Any       # int64[8] of one start: its stalls as found here, ns,
    given: Any     # int64[8] and as the log has them
    differs: Any   # int64[MOST, 4] record of a start, cause, as the log has it, as found here
    said: Any      # int64[MOST, 3] record, activity, expected
    count: Any     # int64[2] rows of `said` and of `differs`


@step
def _stall(s: Starts, act: int, start: int) -> None:
    """What the stream waited for since it fell idle: each cause, in the order of time, owns the time up to itself."""
    s.own[:] = 0
    at = s.free[s.group[act]]
    ready = start if s.then[act] == NOTHING else min(start, s.ready[act])
    event, data, room, host = s.need[act, 0], s.need[act, 1], s.need[act, 2], s.submit[act]
    if s.late[act] >= 0 and s.done[s.late[act]] > at:
        s.sums[LATE] += 1
    if start > max(at, ready):
        s.own[BY_SMS if s.then[act] == PROCESSORS else BY_COPY_ENGINE] += start - max(at, ready)
    while at < ready:
        until = ready
        for cause in (host, room, data, event):
            if at < cause < until:
                until = cause
        span = until - at
        if until == host:
            alloc = min(span, s.alloc_ns[act])
            sync = min(span - alloc, s.sync_ns[act])
            s.own[BY_ALLOC] += alloc
            s.own[BY_SYNC] += sync
            s.own[BY_LAUNCH] += span - alloc - sync
        elif until == data:
            s.own[BY_SWAP_IN] += span
        elif until == room:
            s.own[BY_SWAP_OUT] += span
        elif until == event:
            s.own[BY_EVENT] += span
        else:
            s.own[BY_LAUNCH] += span
        at = until


@step
def _compare(s: Starts, i: int) -> None:
    """Whether the causes that the log gives before the start in record i are those found here.

    What the host did in its time before the submission adds up to the ns; each part of it only as far as rounding goes.
    """
    own, given = s.own, s.given
    own_host = own[BY_ALLOC] + own[BY_SYNC] + own[BY_LAUNCH]
    given_host = given[BY_ALLOC] + given[BY_SYNC] + given[BY_LAUNCH]
    for cause in range(len(STALLS)):
        of_host = cause in (BY_ALLOC, BY_SYNC, BY_LAUNCH)
        near = of_host and own_host == given_host and abs(own[cause] - given[cause]) <= s.blur
        if own[cause] != given[cause] and not near and s.count[1] < s.differs.shape[0]:
            row = s.differs[s.count[1]]
            row[0], row[1], row[2], row[3] = i, cause, given[cause], own[cause]
            s.count[1] += 1


def _each_start(s: Starts) -> None:
    for i in range(s.kind.size):
        act = s.a[i]
        if s.kind[i] == STALL:
            s.given[s.b[i]] += s.size[i]
        elif s.kind[i] == END:
            g = s.group[act]
            if s.running[g] == s.slots[g]:
                s.free[g] = s.t[i]
            s.running[g] -= 1
        elif s.kind[i] == START:
            g, q = s.group[act], s.queue[act]
            due = max(s.submit[act], s.need[act, 0], s.need[act, 1], s.need[act, 2], s.before[q])
            if s.in_line[g] == 0:
                due = max(due, s.free[g])
            s.bare[act] = due
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
                for cause in range(len(STALLS)):
                    s.sums[cause] += s.own[cause]
                _compare(s, i)
            s.given[:] = 0
            s.running[g] += 1
            s.before[q] = s.t[i]


each_start = kept(_nrt=False)(_each_start)
