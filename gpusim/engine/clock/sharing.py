"""Kernels that run, and the bandwidth of the device's memory that they share with each other and with what flows.

A kernel that nothing slows down is one event of the heap: it ends after exactly its duration.  Where the memory's bandwidth
does not suffice for all, or a kernel has fewer multiprocessors than it can use (`sms`), its own work is a flow: of the bytes
that it moves through the memory, bound by the rate that it would have on its multiprocessors, or of its time when it moves
none.  Its event stays where it is, and says nothing when it comes: the flow does not end before it.  Beside other tenants,
where nearly all kernels wait for some time, it leaves the heap.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links
from gpusim.engine.clock.records import has
from gpusim.engine.state import AT_ONCE, E_KERNEL, FLOWS, MEETS, NEVER, NO_WAY, OVER, TIMED, Instructions, Island
from gpusim.trace.trace import KERNEL


@kernel
def enter(isl: Island, prog: Instructions, row: int) -> None:
    """A kernel or collective starts, as if nothing slowed it down: the last row of those that run."""
    c, d, a = isl.clock[0], isl.devices[0], isl.activities[row]
    r = isl.running[c.running]
    c.running += 1
    r.activity, r.work, r.sms, r.granted, r.need = row, TIMED, 1, 1, 0.0
    if a.kind == KERNEL and d.shares_memory:
        r.need = prog.need[a.arg]
    if r.need > 0.0 and (c.tight or isl.fluid[0].flows > 0 or c.running > 1 or isl.tenants[0].beside):
        take_bandwidth(isl)


@outlined
def take_bandwidth(isl: Island) -> None:
    """A kernel that needs some starts beside others: where there is not enough, the memory is shared anew."""
    c = isl.clock[0]
    if c.tight or isl.tenants[0].beside or c.demand + needs(isl) > isl.devices[0].bandwidth:
        links.catch_up(isl)
        isl.fluid[0].reshare = 1


@outlined
def leave(isl: Island, row: int) -> None:
    """It has ended; one that has no row leaves nothing."""
    c = isl.clock[0]
    i = place_of(isl, row)
    if i < c.running:
        if isl.devices[0].shares_sms:
            has(isl, i, -1)
        c.running -= 1
        while i < c.running:
            isl.running[i] = isl.running[i + 1]
            i += 1
        if isl.devices[0].shares_sms:
            c.unsettled = 1
            if isl.tenants[0].beside == AT_ONCE or c.running == 0:
                isl.tenants[0].changed = isl.tenants[0].beside


@kernel
def place_of(isl: Island, row: int) -> int:
    """Its place among those that run; how many there are when it is none of them."""
    i = 0
    while i < isl.clock[0].running and isl.running[i].activity != row:
        i += 1
    return i


@outlined
def own_work_ends(isl: Island, row: int) -> None:
    """A kernel's own work is done, and the kernel perhaps not: it waits for what it reads and writes below the device."""
    i = place_of(isl, row)
    if i < isl.clock[0].running:
        isl.running[i].work = OVER


@kernel
def needs(isl: Island) -> float:
    """What kernels that are no flows take of the memory's bandwidth, bytes/ns."""
    total = 0.0
    for i in range(isl.clock[0].running):
        r = isl.running[i]
        if r.work == TIMED:
            total += r.need
    return total


@kernel
def demand(isl: Island) -> None:
    """What flows would take of the memory's bandwidth as if they did not share it."""
    isl.clock[0].demand = 0.0
    for f in range(isl.fluid[0].flows):
        if isl.flow[f].process == isl.clock[0].process:
            isl.clock[0].demand += isl.flow[f].rate * isl.flow[f].passes


@kernel
def is_short(isl: Island) -> bool:
    """The memory's bandwidth was taken to suffice for all, and does not."""
    c, d = isl.clock[0], isl.devices[0]
    return d.shares_memory and c.tight == 0 and c.demand + needs(isl) > d.bandwidth


@kernel
def was_slowed(isl: Island, row: int) -> bool:
    """The activity, whose time from its start is over, is a kernel that has not had all of it, or has just ended."""
    i = place_of(isl, row)
    if isl.clock[0].now < isl.activities[row].ends:
        return True  # it has stopped since, and gone on
    return isl.running[i].work != TIMED if i < isl.clock[0].running else isl.activities[row].done != 0


@kernel
def ends_early(isl: Island, row: int) -> bool:
    """By the floats of its flow a kernel's own work is done before its duration is over: then its event says when."""
    a = isl.activities[row]
    early = isl.clock[0].now < a.ends
    if early:
        isl.running[place_of(isl, row)].work = TIMED
        if heap.place_of(isl, E_KERNEL, row) == isl.clock[0].events:
            heap.push(isl, a.ends, E_KERNEL, row)
    return early


@kernel
def time_left(isl: Island, i: int) -> float:
    """What is left of the i-th's own work, which ends at a known time, ns."""
    fluid, a = isl.fluid[0], isl.activities[isl.running[i].activity]
    return float(a.ends - fluid.base) - fluid.time


@outlined
def flow_on(isl: Island, i: int, left: float) -> None:
    """The i-th's own work, of which so many ns are left, is a flow from now on, no faster than its multiprocessors let it."""
    r = isl.running[i]
    granted = r.granted / r.sms
    speed = granted * isl.tenants[0].part
    r.work = FLOWS
    if r.need > 0.0:
        x = links.add(isl, r.activity, NO_WAY, 1, left * r.need, r.need * speed)
    else:
        x = links.add(isl, r.activity, NO_WAY, 0, left, speed)
    x.granted, x.need = granted, r.need


@outlined
def slow_down(isl: Island) -> None:
    """The memory's bandwidth does not suffice: the own work of all kernels that need it flows, and `pass_memory` is next."""
    c = isl.clock[0]
    c.tight = 1
    for i in range(c.running):
        r = isl.running[i]
        if r.work == TIMED and r.need > 0.0:
            flow_on(isl, i, time_left(isl, i))


@kernel
def pass_memory(isl: Island) -> None:
    """The routes of all flows, through the memory as well while that is tight."""
    c = isl.clock[0]
    for f in range(isl.fluid[0].flows):
        x = isl.flow[f]
        if x.process == c.process and x.way != MEETS:
            x.route_end = isl.ways[x.way].route_end + c.tight * x.passes


@kernel
def reschedule(isl: Island) -> None:
    """Share links and memory anew, and note the tick that will see the next end."""
    fluid = isl.fluid[0]
    begin(isl, isl.clock[0].now)
    loosen(isl)
    while fluid.reshare:
        if fluid.flows > 0:
            links.share(isl)
        fluid.reshare = 0
        tighten(isl)
    note_end(isl)


@kernel
def begin(isl: Island, now: int) -> None:
    """Time counts from the present tick: a float of all the time so far would lose its digits within the hour."""
    fluid = isl.fluid[0]
    fluid.time -= now - fluid.base
    fluid.base = now
    fluid.reshare = 1


@kernel
def loosen(isl: Island) -> None:
    """The memory's bandwidth is taken to suffice."""
    if isl.clock[0].tight:
        isl.clock[0].tight = 0
        pass_memory(isl)


@kernel
def tighten(isl: Island) -> None:
    """Where it does not, all has to be shared once more."""
    if isl.devices[0].shares_memory and isl.clock[0].tight == 0:
        demand(isl)
        if is_short(isl):
            slow_down(isl)
            pass_memory(isl)
            isl.fluid[0].reshare = 1


@kernel
def note_end(isl: Island) -> None:
    """The tick that will see the next end of a flow."""
    note(isl.fluid[0], links.first_end(isl))


@kernel
def note(fluid: Any, end: float) -> None:
    """The next flow ends at this exact time, ns after the base; infinite: there is none."""
    fluid.tick = NEVER
    if fluid.flows > 0:
        fluid.first = end
        fluid.tick = fluid.base + max(math.ceil(end - links.SAME_INSTANT), 0)
