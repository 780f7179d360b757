"""Activities and their queues: what starts when.

An activity may start when it is first in its queue, the queue has a free slot, and for every queue k the first `need[k]`
activities are done.  Queues complete in order as far as waiting is concerned, so one count per queue says everything.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import fetch, kernel, outlined
from gpusim.engine.clock import accounts, copy_engines, lent, links, managed, remote, sharing, sms
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock.records import record as record
from gpusim.engine.clock.submitting import submit as submit
from gpusim.engine.state import (
    DRAIN,
    E_KERNEL,
    E_MOVE,
    E_READY,
    MEETS,
    NEVER,
    NO_WAY,
    RUNNING,
    SPACE,
    STAGING,
    SWAP,
    TIMED_COPY,
    Instructions,
    Island,
    PolicyTables,
)
from gpusim.results import log
from gpusim.trace.trace import COLLECTIVE, HOST_WORK, KERNEL

LATER = 16  # operators: two lines of the cache


@kernel
def wait_for(isl: Island, row: int, needs: Any) -> None:
    """The activity needs these as well; needs: int64[Q]."""
    for k in range(isl.clock[0].queues):
        isl.need[row, k] = max(isl.need[row, k], needs[k])


@kernel
def own_rate(prog: Instructions, way: Any, size: int) -> float:
    """The rate that a copy of this size reaches alone once it moves, bytes/ns: that of the way, or less by its size curve."""
    if way.curve < 0:
        return way.rate
    points = prog.curve[way.curve, 0]
    rates = prog.curve[way.curve, 1]
    x = math.log2(max(1, size))
    n = points.size
    if x >= points[n - 1]:
        rate = rates[n - 1]
    elif x <= points[0]:
        rate = rates[0] * 2.0 ** (x - points[0])
    else:
        i = 1
        while points[i] < x:
            i += 1
        w = (x - points[i - 1]) / (points[i] - points[i - 1])
        rate = rates[i - 1] + w * (rates[i] - rates[i - 1])
    # The measured rate counts the start-up too, which the engine has spent already.
    moving = max(size / rate - way.latency, size / way.rate)
    return size / moving


@outlined
def due(isl: Island, q: int) -> int:
    """The operator that waits for the first activity of a queue, if that may start now; NEVER otherwise."""
    queue = isl.queues[q]
    while queue.started < queue.submitted:
        row = queue.base + (queue.started & queue.mask)
        if isl.activities[row].cancelled == 0:
            a = isl.activities[row]
            return NEVER if isl.clock[0].now < a.submit or is_waiting(isl, row) else a.due
        pass_over(isl, q)
    return NEVER


@kernel
def is_waiting(isl: Island, row: int) -> bool:
    """True while what the activity needs is not done; what it waited for last is asked first."""
    a = isl.activities[row]
    if isl.need[row, a.behind] > isl.queues[a.behind].done:
        return True
    waiting = 0
    for k in range(isl.clock[0].queues):
        if isl.need[row, k] > isl.queues[k].done:
            waiting, a.behind = 1, k
    return waiting != 0


@kernel
def start_ready(isl: Island, prog: Instructions, pol: PolicyTables) -> None:
    """Start whatever can be started now, queue by queue; of two that share slots the one that is due earlier."""
    c, d, t, n = isl.clock[0], isl.devices[0], isl.tenants[0], isl.counts[0]
    c.woken = 0
    ranked = t.ranked
    for q in range(c.queues):
        if isl.look[q] == 0 and isl.ready[q] != c.now:
            continue
        isl.look[q] = 0
        queue = isl.queues[q]
        while queue.started < queue.submitted and queue.running < queue.slots:
            row = queue.base + (queue.started & queue.mask)
            if ranked:
                if isl.activities[row].cancelled:
                    pass_over(isl, q)
                    continue
                if queue.pair >= 0 and queue.running + isl.queues[queue.pair].running >= queue.slots:
                    break
            a = isl.activities[row]
            if c.now < a.submit:
                look_at(isl, q, a.submit)
                break
            if is_waiting(isl, row):
                look_again_after(isl, q, a.behind)
                break
            if ranked and queue.pair > q and due(isl, queue.pair) < a.due:
                # That one starts in this pass, and there may be a slot left.
                c.woken = isl.look[q] = isl.look[queue.pair] = 1
                break
            launched = a.kind == KERNEL or a.kind == COLLECTIVE  # a collective is a kernel too; copies start without the gap
            if launched and c.now < queue.free_at + queue.gap and queue.started > 0:
                look_at(isl, q, queue.free_at + queue.gap)
                break
            on_sms = d.shares_sms and launched and sms.wanted(prog, a)
            if on_sms and not queue.granted:
                sms.want(isl, q)
                break
            if d.shares_engines and a.kind != KERNEL and not copy_engines.may_start(isl, q, a):
                break
            queue.started += 1
            queue.running += 1
            if c.coupled:  # until it starts the next one, other programs have the processor's cache
                fetch(isl.activities, queue.base + (queue.started & queue.mask))
                fetch(isl.need, queue.base + (queue.started & queue.mask))
                fetch(isl.began, a.arg + LATER)
                fetch(prog.sms[0], a.arg + LATER)
                fetch(prog.sms[1], a.arg + LATER)
                fetch(prog.need, a.arg + LATER)
            a.start, a.ends = c.now, c.now + a.duration
            if queue.computes:
                accounts.account_stall(isl, pol, row)
            if a.kind == KERNEL:
                n.busy += a.duration
            if a.kind != SWAP:
                isl.began[a.arg] = c.now
                accounts.count_copies(isl, a.kind, 1)
            record(isl, pol, log.START, a.number, shown(isl, q), 0, 0)
            if isl.pager[0].tables and a.kind != SWAP:
                managed.launch(isl, row)
            else:
                set_out(isl, prog, row)
            if on_sms or (d.shares_memory and a.kind == KERNEL):
                sharing.enter(isl, prog, row)
                if a.paged and a.stopped < NEVER:
                    managed.stand(isl, row)
                if on_sms:
                    sms.enter(isl, prog, row)
            if not on_sms:
                queue.granted = 0


@kernel
def set_out(isl: Island, prog: Instructions, row: int) -> None:
    """The activity goes its way: it takes its time, waits for others, or its bytes flow when its latency is over."""
    a = isl.activities[row]
    if a.way == NO_WAY:
        heap.push(isl, isl.clock[0].now + a.duration, E_KERNEL, row)
        if isl.tenants[0].remote and a.kind == KERNEL:
            remote.begin(isl, prog, row)
    elif a.way == MEETS:
        arrive(isl, row)
    else:
        pages = isl.pager[0].tables and a.kind == SWAP  # the driver's own times hold what it costs to start
        heap.push(isl, isl.clock[0].now + (0 if pages else isl.ways[a.way].latency), E_MOVE, row)


@outlined
def arrive(isl: Island, row: int) -> None:
    """The activity has started, and goes on when those of other programs have that it meets: see `engine.fabric`."""
    fluid = isl.fluid[0]
    isl.arrived[fluid.arrivals].process, isl.arrived[fluid.arrivals].activity = isl.clock[0].process, row
    fluid.arrivals += 1
    fluid.reshare = 1


@kernel
def look_at(isl: Island, q: int, time: int) -> None:
    """The first of queue q cannot start before this time."""
    if isl.ready[q] < time:
        isl.ready[q] = time
        heap.push(isl, time, E_READY, q)


@kernel
def shown(isl: Island, q: int) -> int:
    """The queue as the log has it: those of copies are not numbered with the streams, but -1, -2 and so on."""
    streams = isl.clock[0].streams
    return q if q < streams else streams - 1 - q


@kernel
def move(isl: Island, prog: Instructions, row: int) -> None:
    """The latency of a copy is over: its bytes flow."""
    a = isl.activities[row]
    if a.kind == SWAP and isl.pager[0].tables:
        managed.move(isl, row)
        return
    rate = a.bytes / a.duration if a.way == TIMED_COPY or a.kind == HOST_WORK else own_rate(prog, isl.ways[a.way], a.bytes)
    links.begin(isl, row, a.way, float(a.bytes), rate)


@kernel
def count_done(isl: Island, q: int) -> None:
    """The queue gets on, in order: one that ended before others in front of it counts as done when they are.

    Queues that wait for it look again.
    """
    queue = isl.queues[q]
    while queue.done < queue.started and isl.activities[queue.base + (queue.done & queue.mask)].done:
        isl.activities[queue.base + (queue.done & queue.mask)].end = isl.clock[0].now
        queue.done += 1
    while queue.waiters:
        waiter = isl.queues[queue.waiters - 1]
        isl.look[queue.waiters - 1] = 1
        queue.waiters = waiter.next_waiter
        waiter.waits_for = 0


@kernel
def look_again_after(isl: Island, q: int, k: int) -> None:
    """The first of queue q waits for queue k."""
    queue = isl.queues[q]
    if queue.waits_for == 0:
        queue.waits_for = k + 1
        queue.next_waiter = isl.queues[k].waiters
        isl.queues[k].waiters = q + 1
    elif queue.waits_for != k + 1:  # an activity that has been cancelled waited for that one: look each time
        isl.look[q] = 1


@outlined
def pass_over(isl: Island, q: int) -> None:
    """The first of the queue has been cancelled; nothing waits for it any more."""
    queue = isl.queues[q]
    a = isl.activities[queue.base + (queue.started & queue.mask)]
    a.done, a.end = 1, isl.clock[0].now
    if a.gives:
        lent.ended(isl, queue.base + (queue.started & queue.mask))
    if queue.line:
        copy_engines.leave(isl, q)
    queue.started += 1
    count_done(isl, q)
    isl.clock[0].woken = isl.look[q] = 1
    wake_hosts(isl)


@kernel
def finish(isl: Island, pol: PolicyTables, row: int) -> None:
    """An activity ends now; whatever waited for it may start."""
    c, n = isl.clock[0], isl.counts[0]
    a = isl.activities[row]
    q = a.queue
    queue = isl.queues[q]
    a.end = c.now
    a.done = 1
    queue.running -= 1
    queue.free_at = c.now
    if a.kind == KERNEL:
        n.busy += a.end - a.start - a.duration - a.stalled
        n.sharing += a.end - a.start - a.duration - a.stalled
    if c.running and (a.kind == KERNEL or a.kind == COLLECTIVE):
        sharing.leave(isl, row)
    if a.kind != KERNEL and a.kind != SWAP:
        accounts.count_operator(isl, a)
        accounts.count_copies(isl, a.kind, -1)
    if isl.devices[0].shares_engines and a.kind != KERNEL:
        copy_engines.give_back(isl, copy_engines.engine_of(queue, a))
    record(isl, pol, log.END, a.number, shown(isl, q), 0, 0)
    if isl.pager[0].tables and a.kind != SWAP:
        managed.see(isl, a)
    if a.gives:
        lent.ended(isl, row)
    count_done(isl, q)
    c.woken = isl.look[q] = 1
    if queue.pair >= 0:
        isl.look[queue.pair] = 1
    wake_hosts(isl)


@outlined
def idle(isl: Island) -> bool:
    """True when every submitted activity is done."""
    busy = 0
    for k in range(isl.clock[0].queues):
        busy += isl.queues[k].submitted - isl.queues[k].done
    return busy == 0


@kernel
def full(isl: Island, q: int) -> bool:
    """True when the host is as far ahead of queue q as it may be."""
    queue = isl.queues[q]
    return queue.submitted - queue.done >= queue.limit


@kernel
def full_of_copies(isl: Island) -> int:
    """A queue of copies that the host may not run further ahead of, -1 when there is none."""
    c = isl.clock[0]
    for q in range(c.streams, c.queues):
        if full(isl, q):
            return q
    return -1


@kernel
def stage(isl: Island, h: Any, m: int, q: int, count: int) -> None:
    """The host waits for a copy from or to memory that is not pinned."""
    if isl.memories[m].waits:
        h.staged = 1
        isl.marks[isl.marks.shape[0] - 1, q] = count


@outlined
def staged(isl: Island) -> bool:
    """True when the copies that the host takes part in are done."""
    waiting = 0
    for k in range(isl.clock[0].queues):
        if isl.marks[isl.marks.shape[0] - 1, k] > isl.queues[k].done:
            waiting = 1
    return waiting == 0


@kernel
def takes_part(isl: Island, h: Any) -> bool:
    """The host goes on when the copies that it takes part in are done: True when it has to wait for that."""
    if h.staged:
        if staged(isl):
            h.staged = 0
        else:
            h.state = STAGING
    return h.staged != 0


@kernel
def settle(isl: Island, h: Any) -> None:
    """The device is idle: the calls that waited for it are made and paid."""
    t = isl.tenants[0]
    isl.accounts[t.account].held = isl.accounts[t.account].booked
    h.time += t.owed
    h.alloc_ns += t.owed
    t.owed = 0
    t.drain = 0


@kernel
def wake_hosts(isl: Island) -> None:
    """Hosts that wait for the device go on when what they wait for is done."""
    c, t = isl.clock[0], isl.tenants[0]
    for i in range(isl.hosts.size):
        h = isl.hosts[i]
        if (
            (h.state == DRAIN and idle(isl))
            or (h.state == SPACE and not full(isl, h.queue))
            or (h.state == STAGING and staged(isl))
        ):
            waited = max(0, c.now - h.time)
            h.time += waited
            if h.state == DRAIN:
                if t.drain:
                    h.alloc_ns += waited
                    settle(isl, h)
                else:
                    h.sync_ns += waited
            elif h.state == STAGING:
                h.sync_ns += waited
                h.staged = 0
            h.state = RUNNING
