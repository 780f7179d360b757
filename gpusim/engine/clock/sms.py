"""Multiprocessors: which of the kernels that want them start, and how many each kernel that runs is given.

They are granted by stream priority and then in the order of starts, to each as many as it can use of what is left.  A kernel
whose whole grid was resident at once keeps them to its end; one that runs in waves gives up and takes them at once.

What happens at one tick happens together: it is settled when everything has ended and been submitted.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links, sharing
from gpusim.engine.clock.records import has
from gpusim.engine.state import AT_ONCE, BY_TURNS, E_KERNEL, FLOWS, NEVER, NO_WAY, STANDS, TIMED, Instructions, Island
from gpusim.trace.trace import COLLECTIVE, KERNEL


@kernel
def wanted(prog: Instructions, a: Any) -> bool:
    """Whether the activity runs on multiprocessors."""
    return a.kind == KERNEL or (a.kind == COLLECTIVE and prog.sms[0, a.arg] > 0)


@outlined
def want(isl: Island, q: int) -> None:
    """The first of the queue lacks nothing but multiprocessors."""
    c, queue = isl.clock[0], isl.queues[q]
    if queue.wants == 0:
        queue.wants = c.now + 1
        c.wanting += 1
    if left_for(isl, queue.priority) > 0:
        c.unsettled = 1
    if isl.tenants[0].beside == BY_TURNS:
        isl.tenants[0].changed = 1


@outlined
def enter(isl: Island, prog: Instructions, row: int) -> None:
    """The kernel or collective that has started, the last row of those that run, has what it can use.

    As long as all have what they can use, it takes nothing from one that goes behind it, and it will not keep them, there is
    nothing to grant anew.
    """
    c, a = isl.clock[0], isl.activities[row]
    queue, x = isl.queues[a.queue], isl.running[c.running - 1]
    x.priority, x.sms, x.whole = queue.priority, prog.sms[0, a.arg], prog.sms[1, a.arg]
    x.begins, x.until = prog.duration[a.arg] * (prog.sms[2, a.arg] / 1e6), -1.0
    x.granted = x.sms
    has(isl, c.running - 1, x.granted)
    left, enough = isl.devices[0].sms - x.sms, 1
    for i in range(c.running - 1):
        r = isl.running[i]
        left -= r.sms
        if r.granted < r.sms or (r.held == 0 and r.priority > x.priority):
            enough = 0
    if left < 0:
        enough = 0
    x.held = a.kind == COLLECTIVE
    queue.wants = queue.granted = 0
    c.wanting -= 1
    if enough == 0 or x.whole or (left > 0 and c.wanting > 0):
        c.unsettled = 1
    t = isl.tenants[0]
    if t.beside == AT_ONCE:
        t.changed = 1
    if t.part < 1.0 and a.kind == KERNEL:
        regrant(isl, c.running - 1, x.granted)


@outlined
def settle(isl: Island, prog: Instructions) -> None:
    """The first of those that may start is told so; when there is none any more, multiprocessors are granted."""
    c = isl.clock[0]
    q = first_to_start(isl, prog) if c.wanting and isl.tenants[0].part > 0.0 else -1
    if q >= 0:
        isl.queues[q].granted = c.woken = isl.look[q] = 1
    else:
        c.unsettled = 0
        grant(isl)


@kernel
def first_to_start(isl: Island, prog: Instructions) -> int:
    """The queue whose first may start, by priority and then by submission; -1 when there is none."""
    priority, number = -NEVER, -1
    while True:
        q = next_that_wants(isl, priority, number)
        if q < 0:
            return -1
        queue = isl.queues[q]
        a = isl.activities[queue.base + (queue.started & queue.mask)]
        priority, number = queue.priority, a.number
        room = left_for(isl, priority)
        if room < 1:
            return -1
        if a.kind == KERNEL or prog.sms[0, a.arg] <= room:
            return q


@kernel
def next_that_wants(isl: Island, priority: int, number: int) -> int:
    """The queue behind this priority and submission number whose first wants multiprocessors; -1 when there is none."""
    found, best, first = -1, NEVER, NEVER
    for q in range(isl.clock[0].streams):
        queue = isl.queues[q]
        if queue.wants and queue.priority >= priority and queue.priority <= best:
            n = isl.activities[queue.base + (queue.started & queue.mask)].number
            behind = queue.priority > priority or n > number
            if behind and (queue.priority < best or n < first):
                found, best, first = q, queue.priority, n
    return found


@kernel
def left_for(isl: Island, priority: int) -> int:
    """Multiprocessors that kernels leave which keep theirs, or go before one of this priority that starts now."""
    left = isl.devices[0].sms
    for i in range(isl.clock[0].running):
        r = isl.running[i]
        if r.held or r.priority <= priority:
            left -= r.sms
    return left


@kernel
def grant(isl: Island) -> None:
    """Give all that run what is theirs now: first those that keep it, then by priority, of one priority by start."""
    c, left = isl.clock[0], left_for(isl, -NEVER)
    priority = next_priority(isl, -NEVER)
    while priority < NEVER:
        for i in range(c.running):
            r = isl.running[i]
            if r.held == 0 and r.priority == priority:
                given = min(r.sms, left)
                left -= given
                if given != r.granted:
                    regrant(isl, i, given)
                r.held = r.whole if given == r.sms else 0
        priority = next_priority(isl, priority)


@kernel
def next_priority(isl: Island, priority: int) -> int:
    """The next behind this priority of those that run and do not keep what they have; NEVER when there is none."""
    found = NEVER
    for i in range(isl.clock[0].running):
        r = isl.running[i]
        if r.held == 0 and priority < r.priority < found:
            found = r.priority
    return found


@outlined
def regrant(isl: Island, i: int, given: int) -> None:
    """The i-th goes on with another number of multiprocessors."""
    r = isl.running[i]
    if given != r.granted:
        has(isl, i, given)
    links.catch_up(isl)
    isl.fluid[0].reshare = 1
    if r.work == TIMED:
        if isl.tenants[0].beside and isl.activities[r.activity].paged == 0:
            heap.drop(isl, E_KERNEL, r.activity)
        r.left = sharing.time_left(isl, i)
        r.work = STANDS
    elif r.work == FLOWS:
        f = 0
        while isl.flow[f].activity != r.activity or isl.flow[f].way != NO_WAY or isl.flow[f].process != isl.clock[0].process:
            f += 1
        r.left = isl.flow[f].remaining / (r.need if r.need > 0.0 else 1.0)
        links.remove(isl, f)
        r.work = STANDS
    r.granted = given
    if r.work == STANDS and given > 0 and isl.tenants[0].part > 0.0:
        sharing.flow_on(isl, i, r.left)


@kernel
def take_part(isl: Island, part: float) -> None:
    """From now on the program has so much of the time of the multiprocessors that its kernels have.

    Kernels that flow, and still have some, keep their rate until the caller says another.
    """
    c, t = isl.clock[0], isl.tenants[0]
    crosses = part == 0.0 or t.part == 0.0
    t.part = part
    for i in range(c.running):
        x = isl.running[i]
        if (crosses or x.work != FLOWS) and isl.activities[x.activity].kind == KERNEL:
            regrant(isl, i, x.granted)
    if crosses and part > 0.0 and c.wanting:  # others may start
        c.unsettled = 1


@outlined
def busy(isl: Island, now: int) -> bool:
    """A kernel of the program runs or wants multiprocessors, or would but for the gap behind the one before."""
    c = isl.clock[0]
    if c.running > 0 or c.wanting > 0:
        return True
    for q in range(c.streams):
        queue = isl.queues[q]
        if queue.started < queue.submitted and queue.running < queue.slots:
            row = queue.base + (queue.started & queue.mask)
            a = isl.activities[row]
            if a.kind == KERNEL and a.submit <= now and not waits(isl, row):
                return True
    return False


@kernel
def waits(isl: Island, row: int) -> bool:
    """True while something that the activity needs is not done."""
    waiting = 0
    for k in range(isl.clock[0].queues):
        waiting |= isl.need[row, k] > isl.queues[k].done
    return waiting != 0
