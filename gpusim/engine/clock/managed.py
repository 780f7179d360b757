"""Kernels under managed memory: their warps stop at page faults, and go on when the driver of the GPU has served them.

What they touch and what the driver does is behind an address (`engine.pages.door`), which is called once for each of these
moments: a run without managed memory compiles none of it.  Here is what they have of the device meanwhile: a kernel that stands
keeps its multiprocessors and needs no bandwidth; what the driver moves and what kernels access remotely flows on the links of
the machine.  Copies between host and device take turns in the copy engines, where the program's own do.
"""

from __future__ import annotations

import math
from typing import Any

from numba import types

from gpusim.base.compiled import function_at, kernel, outlined
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links, sharing
from gpusim.engine.clock.records import record
from gpusim.engine.clock.submitting import submit
from gpusim.engine.state import (
    AHEAD,
    ASKED,
    BY_TURNS,
    COMES,
    COPIED,
    CROSSES,
    DUE,
    E_KERNEL,
    E_PAGES,
    FILLS,
    IDLE,
    LAUNCHED,
    LEAVES,
    LEGS,
    MOVES,
    NEVER,
    STANDS,
    STOPPED,
    SWAP,
    SWAPS,
    TIMED,
    TIMED_COPY,
    WAITS,
    Island,
    PolicyTables,
)
from gpusim.results import log
from gpusim.trace.trace import COPY_PEER, KERNEL

DOOR = types.int64(types.int64, types.int64, types.int64, types.int64)  # (tables, what is told, of which, ns): when it goes on
door_at = function_at(DOOR)


ROUNDED = 1e-12  # of a time: what adding up very many parts of it may lose


@kernel
def tick(at: float) -> int:
    """The first tick that is not before this moment."""
    return math.ceil(at - links.SAME_INSTANT - ROUNDED * at)


@outlined
def call(isl: Island, told: int, which: int) -> None:
    """Tell the driver, and do what follows: when it goes on, which transfers begin, which warps go on."""
    c, p = isl.clock[0], isl.pager[0]
    at = door_at(p.door[0], p.door[1])(p.tables, told, which, c.now)
    if at < NEVER and at != p.next:
        heap.push(isl, max(at, c.now), E_PAGES, -1)
    p.next = max(at, c.now)
    for k in range(isl.transfers.size):
        t = isl.transfers[k]
        if t.state == ASKED:
            t.state = MOVES
            heap.push(isl, max(c.now, tick(t.at)), E_PAGES, k)
    for q in range(c.streams):
        if isl.warps[q].go:
            isl.warps[q].go = 0
            go_on(isl, q)


@kernel
def way_of(leg: int) -> int:
    """The way of a leg."""
    if leg == COMES:
        return SWAPS
    if leg == LEAVES:
        return SWAPS + 1
    return COPY_PEER if leg == CROSSES else TIMED_COPY


@outlined
def flow(isl: Island, activity: int, way: int, size: float, lasts: float) -> None:
    """So many bytes flow from now on, and last so long alone: that is no more than the whole of a link or the memory."""
    w, rate = isl.ways[way], size / lasts
    for r in range(w.route, w.route_end):
        rate = min(rate, isl.link[isl.route[r]].rate)
    if w.passes and isl.devices[0].shares_memory:
        rate = min(rate, isl.devices[0].bandwidth)
    links.catch_up(isl)
    links.add(isl, activity, way, w.passes, rate * lasts, rate)


@outlined
def next_piece(isl: Island, pol: PolicyTables, k: int) -> None:
    """The next piece of a transfer begins; when there is none any more, the driver is told."""
    c, t = isl.clock[0], isl.transfers[k]
    if k == AHEAD and t.leg == 0:
        at_once(isl, t)
        return
    while t.leg < LEGS and t.bytes[t.leg] < 1.0:
        t.leg += 1
    if t.leg == LEGS:
        ready = tick(t.ready)
        if ready > c.now:
            heap.push(isl, ready, E_PAGES, k)
        else:
            t.at, t.state = max(t.at, t.ready), IDLE
            call(isl, COPIED, k)
        return
    t.moving = min(t.bytes[t.leg], t.piece)
    t.takes, t.since = t.ns[t.leg] * t.moving / t.bytes[t.leg], c.now
    if t.leg == FILLS or t.leg == CROSSES:
        flow(isl, -1 - k, way_of(t.leg), t.moving, max(t.at + t.takes - c.now, 1.0))
        return
    into, size = t.leg == COMES, math.ceil(t.moving)
    q = isl.memories[1].q_in if into else isl.memories[1].q_out
    row = submit(isl, q, SWAP, way_of(t.leg), k, size, 0, c.now)
    record(isl, pol, log.COPY, -1 - k, 256 if into else 1, isl.activities[row].number, size)


@outlined
def at_once(isl: Island, t: Any) -> None:
    """All legs of what comes or leaves ahead of need flow side by side, evenly while warps work: `moving` of them."""
    lasts, t.leg, t.moving = max(t.at + t.takes - isl.clock[0].now, 1.0), LEGS, 0.0
    for leg in range(LEGS):
        if t.bytes[leg] >= 1.0:
            flow(isl, -1 - AHEAD, way_of(leg), t.bytes[leg], lasts)
            t.moving += 1.0


@outlined
def move(isl: Island, row: int) -> None:
    """A piece that has had to wait for its turn, or not, flows."""
    a, c = isl.activities[row], isl.clock[0]
    t = isl.transfers[a.arg]
    lasts = t.at + t.takes - c.now if c.now == t.since else t.takes
    flow(isl, row, a.way, t.moving, max(lasts, 1.0))


@outlined
def moved(isl: Island, pol: PolicyTables, k: int) -> None:
    """A piece of a transfer has ended."""
    now, t = isl.clock[0].now, isl.transfers[k]
    if k == AHEAD:
        t.moving -= 1.0
        if t.moving > 0.0:
            return
    else:
        t.bytes[t.leg] -= t.moving
        t.ns[t.leg] -= t.takes
    t.at += t.takes
    if now >= t.at + 1.0:  # others were on the link: less is the tick at which it is seen
        t.at, t.late = float(now), 1
    next_piece(isl, pol, k)


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
    a.ends = max(c.now, tick(w.stop))
    if w.work < 0.0 and a.kind == KERNEL:
        a.ends = c.now + a.duration
    heap.push(isl, a.ends, E_KERNEL, w.activity)
    reach(isl, q)
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


@kernel
def reach(isl: Island, q: int) -> None:
    """What the warps access remotely until they stop flows as they ask for it: evenly, and no faster."""
    if not isl.pager[0].flows:
        return
    w = isl.warps[q]
    lasts, ways = max(w.stop - isl.clock[0].now, 1.0), isl.ways.size
    if w.read > 0.0:
        beside(isl, w.activity, ways - 2, w.read, lasts)
    if w.written > 0.0:
        beside(isl, w.activity, ways - 1, w.written, lasts)
    if w.peer > 0.0:
        beside(isl, w.activity, COPY_PEER, w.peer, lasts)
    w.read = w.written = w.peer = 0.0


@outlined
def beside(isl: Island, row: int, way: int, size: float, lasts: float) -> None:
    """The activity's warps do not stop before these bytes have moved."""
    isl.activities[row].parts += 1
    flow(isl, row, way, size, lasts)


@outlined
def launch(isl: Island, row: int) -> None:
    """An activity begins that may touch managed memory."""
    a = isl.activities[row]
    w = isl.warps[a.queue]
    a.paged, a.stopped, w.operator, w.activity = 1, isl.clock[0].now, a.arg, row
    call(isl, LAUNCHED, a.queue)


@outlined
def stand(isl: Island, row: int) -> None:
    """The activity's warps stand: it needs no bandwidth."""
    c = isl.clock[0]
    i = sharing.place_of(isl, row)
    if i < c.running:
        isl.running[i].work = WAITS
        if c.tight:
            links.catch_up(isl)
            isl.fluid[0].reshare = 1


@outlined
def stop(isl: Island, row: int) -> bool:
    """The activity's warps stop now; True when they have ended."""
    a = isl.activities[row]
    if isl.warps[a.queue].last:
        a.paged = 0
        return True
    stand(isl, row)
    a.stopped = isl.clock[0].now
    call(isl, STOPPED, a.queue)
    return False


@outlined
def goes_on(isl: Island, pol: PolicyTables, k: int) -> None:
    """A transfer's moment has come; -1: the driver's."""
    p = isl.pager[0]
    if k >= 0:
        next_piece(isl, pol, k)
    elif p.next == isl.clock[0].now:
        p.next = NEVER
        call(isl, DUE, 0)


@kernel
def see(isl: Island, a: Any) -> None:
    """An operator has ended: Python may want to know."""
    p = isl.pager[0]
    isl.ended[a.arg], isl.stalled[a.arg] = a.end, a.stalled
    p.ended += 1
    if p.stops and p.ended >= p.stops:
        p.due = 1
