"""Kernels under managed memory: their warps stop at page faults, and go on when the driver of the GPU has served them.

What they touch and what the driver does is behind an address (`engine.pages.door`), which is called once for each of these
moments: a run without managed memory compiles none of it.  Here is what they have of the device meanwhile: a kernel that stands
keeps its multiprocessors and needs no bandwidth; the driver's copies are flows on the links of the machine.
"""

from __future__ import annotations

import math
from typing import Any

from numba import types

from gpusim.base.compiled import function_at, kernel, outlined
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links, sharing
from gpusim.engine.state import (
    BY_TURNS,
    COPIED,
    DUE,
    E_KERNEL,
    E_PAGES,
    LAUNCHED,
    NEVER,
    STANDS,
    STOPPED,
    SWAPS,
    TIMED,
    WAITS,
    Island,
)
from gpusim.trace.trace import KERNEL

DOOR = types.int64(types.int64, types.int64, types.int64, types.int64)  # (tables, what is told, stream, ns): when it goes on
door_at = function_at(DOOR)


@outlined
def call(isl: Island, told: int, stream: int) -> None:
    """Tell the driver, and do what follows: when it goes on, which copies begin, which warps go on."""
    c, p = isl.clock[0], isl.pager[0]
    at = door_at(p.door[0], p.door[1])(p.tables, told, stream, c.now)
    if at < NEVER and at != p.next:
        heap.push(isl, max(at, c.now), E_PAGES, 0)
    p.next = max(at, c.now)
    if p.into > 0.0:
        begin_copies(isl, SWAPS, p.into)
        p.into = 0.0
    if p.out > 0.0:
        begin_copies(isl, SWAPS + 1, p.out)
        p.out = 0.0
    for q in range(c.streams):
        if isl.warps[q].go:
            isl.warps[q].go = 0
            go_on(isl, q)


@kernel
def begin_copies(isl: Island, way: int, size: float) -> None:
    """Copies of the driver flow between host and device: they belong to no activity."""
    links.catch_up(isl)
    links.add(isl, -1, way, isl.ways[way].passes, size, size / isl.pager[0].lasts)


@outlined
def go_on(isl: Island, q: int) -> None:
    """The warps of stream q go on: the activity's own work up to their next stop is timed, or flows."""
    c, w = isl.clock[0], isl.warps[q]
    a = isl.activities[w.activity]
    if isl.tenants[0].beside == BY_TURNS:
        isl.tenants[0].changed = 1  # its turn may be over, but for faults
    if a.stopped < NEVER:
        a.stalled += c.now - a.stopped
        a.stopped = NEVER
    a.ends = max(c.now, math.ceil(w.stop - links.SAME_INSTANT))
    if w.work < 0.0 and a.kind == KERNEL:
        a.ends = c.now + a.duration
    elif w.work >= 0.0:
        a.stalled += max(a.ends - c.now - math.ceil(w.work), 0)  # pages that the program itself has brought before
    heap.push(isl, a.ends, E_KERNEL, w.activity)
    i = sharing.place_of(isl, w.activity)
    if i < c.running and isl.running[i].work == WAITS:
        r = isl.running[i]
        if r.granted == r.sms and isl.tenants[0].part >= 1.0:
            r.work = TIMED
            if r.need > 0.0:
                sharing.take_bandwidth(isl)
        else:
            r.left, r.work = w.work, STANDS
            if r.granted > 0 and isl.tenants[0].part > 0.0:
                links.catch_up(isl)
                sharing.flow_on(isl, i, w.work)


@outlined
def launch(isl: Island, row: int) -> None:
    """An activity begins that may touch managed memory."""
    a = isl.activities[row]
    w = isl.warps[a.queue]
    a.paged, a.stopped, w.operator, w.activity = 1, NEVER, a.arg, row
    call(isl, LAUNCHED, a.queue)


@outlined
def stop(isl: Island, row: int) -> bool:
    """The activity's warps stop now; True when they have ended."""
    c, a = isl.clock[0], isl.activities[row]
    if isl.warps[a.queue].last:
        a.paged = 0
        return True
    i = sharing.place_of(isl, row)
    if i < c.running:
        isl.running[i].work = WAITS
        if c.tight:
            links.catch_up(isl)
            isl.fluid[0].reshare = 1
    a.stopped = c.now
    call(isl, STOPPED, a.queue)
    return False


@outlined
def goes_on(isl: Island) -> None:
    """The driver's moment has come."""
    p = isl.pager[0]
    if p.next == isl.clock[0].now:
        p.next = NEVER
        call(isl, DUE, 0)


@outlined
def copied(isl: Island) -> None:
    """A flow of its copies has ended."""
    call(isl, COPIED, 0)


@kernel
def see(isl: Island, a: Any) -> None:
    """An operator has ended: Python may want to know."""
    p = isl.pager[0]
    isl.ended[a.arg], isl.stalled[a.arg] = a.end, a.stalled
    p.ended += 1
    if p.stops and p.ended >= p.stops:
        p.due = 1
