"""The loop: hosts issue, devices run, whichever comes first in time.  Resumable between any two steps."""

from __future__ import annotations

from typing import Any

from numba import types

from gpusim.base.compiled import entry, kernel, tables_at
from gpusim.engine.clock import copy_engines, links, managed, queues, remote, sharing, sms
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.host.issue import issue
from gpusim.engine.state import (
    ARBITRATE,
    ASK,
    E_KERNEL,
    E_MOVE,
    E_PAGES,
    E_READ,
    E_READY,
    ENDED,
    FINISHED,
    ISLAND,
    LOG_FULL,
    NEVER,
    NO_WAY,
    PAGED,
    POLICIES,
    PROCESSES,
    PROGRAM,
    REACHED,
    RESHARE,
    RUNNING,
    STUCK,
    SWAP,
    WAKES,
    Instructions,
    Island,
    PolicyTables,
    Processes,
)
from gpusim.trace.trace import KERNEL

island_at, program_at, policies_at = tables_at(ISLAND), tables_at(PROGRAM), tables_at(POLICIES)


@kernel
def end(isl: Island, prog: Instructions, pol: PolicyTables, row: int, own: bool) -> None:
    """A part of an activity is over, a kernel's own work or what flows for it, and with the last of them the activity.

    What flows of no activity (below 0) is a transfer of the driver's.
    """
    if row < 0:
        managed.moved(isl, pol, -1 - row)
        return
    if isl.activities[row].paged:
        if own and isl.activities[row].parts:
            sharing.own_work_ends(isl, row)
        if not remote.is_last(isl, row) or not managed.stop(isl, row):
            return
        if isl.activities[row].kind != KERNEL:  # all that it touches is there
            queues.set_out(isl, prog, row)
            return
    if own and isl.tenants[0].remote:
        sharing.own_work_ends(isl, row)
    if remote.is_last(isl, row):
        queues.finish(isl, pol, row)
        if isl.pager[0].tables and isl.activities[row].kind == SWAP:
            managed.moved(isl, pol, isl.activities[row].arg)


@kernel
def step_device(isl: Island, prog: Instructions, pol: PolicyTables) -> None:
    """The next thing on the device happens: a flow ends, a kernel ends, a copy begins to move, a stream's gap is over."""
    c = isl.clock[0]
    ended, own = -1, False
    if isl.fluid[0].tick == c.now and not c.coupled:
        _, ended, way = links.take_ended(isl)
        own = way == NO_WAY
        if ended < 0:
            managed.moved(isl, pol, -1 - ended)
        elif own and sharing.ends_early(isl, ended):
            ended = -1
    else:
        kind, arg = heap.pop(isl)
        if kind == E_MOVE:
            queues.move(isl, prog, arg)
        elif kind == E_KERNEL:
            if not sharing.was_slowed(isl, arg):
                ended, own = arg, True
        elif kind == E_READY:
            c.woken = isl.look[arg] = 1
        elif kind == E_PAGES:
            managed.goes_on(isl, pol, arg)
        else:
            remote.flow(isl, prog, arg, kind - E_READ)
    if ended >= 0:
        end(isl, prog, pol, ended, own)


@kernel
def go_on(isl: Island, prog: Instructions, pol: PolicyTables, coming: Any, until: int) -> int:
    """Run one program up to, not including, time `until`; returns why it stopped.  Devices go before hosts at equal times.

    What flows of a program that shares links is `engine.fabric`'s: it is REACHED while it waits for others, at NEVER.  So is
    whose turn it is among programs on one device.
    """
    c, fluid, buffers, rules = isl.clock[0], isl.fluid[0], pol.buffers[0], pol.rules[0]
    host = rules.paused - 1  # whose step was interrupted for a decision: it goes on before anything else happens
    rules.paused = 0
    while True:
        if host < 0:
            if fluid.reshare and not c.coupled:  # beside others all that happens at one tick comes first
                sharing.reschedule(isl)
            while c.woken:
                queues.start_ready(isl, prog, pol)
            if fluid.reshare and not c.coupled:
                continue
            if buffers.logged > buffers.log_room or buffers.notes > buffers.log_room:
                return LOG_FULL
            if isl.pager[0].due:
                return PAGED
            if isl.pager[0].wakes:
                return WAKES
            device = min(NEVER if c.coupled else fluid.tick, isl.heap[0].time if c.events > 0 else NEVER)
            if c.dealing and device > c.now:
                copy_engines.deal(isl)
                continue
            next_host, at = -1, NEVER
            for i in range(isl.hosts.size):
                h = isl.hosts[i]
                if h.state == RUNNING and h.time < at:
                    next_host, at = i, h.time
            coming[0] = min(device, at)
            if c.unsettled and coming[0] > c.now:
                sms.settle(isl, prog)
                continue
            if isl.tenants[0].changed and coming[0] > c.now:
                return ARBITRATE
            if c.coupled and fluid.reshare and c.now < coming[0] < NEVER:
                return RESHARE
            if coming[0] >= until:
                if coming[0] < NEVER:
                    return REACHED
                ended = queues.idle(isl)
                for i in range(isl.hosts.size):
                    ended = ended and isl.hosts[i].state == ENDED
                if ended:
                    return FINISHED
                return REACHED if c.coupled else STUCK
            if device <= at:
                c.now = device
                step_device(isl, prog, pol)
                continue
            c.now = max(c.now, at)
            host = next_host
            isl.hosts[host].had = 0
        reason = issue(isl, prog, pol, isl.hosts[host])
        if reason:
            if reason == ASK and rules.decides:
                rules.paused = host + 1
            return reason
        host = -1


@kernel
def earliest(times: Any) -> int:
    """The least of them: a loop without branches."""
    least = NEVER
    for i in range(times.size):
        least = min(least, times[i])
    return least


@entry(types.int64(PROCESSES, types.int64))
def run_until(many: Processes, until: int) -> int:
    """Run all programs up to, not including, time `until`; returns why one of them stopped, which `turn` names, or REACHED.

    Whose next step is the earliest goes on until what another does may reach it; of equal ones the first, up to the same time.
    """
    rows, coming, lookahead = many.rows, many.next, many.turn[0].lookahead
    for p in range(rows.size):  # what Python has done in between may be new to all of them
        coming[p] = NEVER if rows[p].ended else 0
    while True:
        at = earliest(coming)
        if at >= until:
            break
        first = 0
        while coming[first] != at:
            first += 1
        coming[first] = NEVER
        others = earliest(coming)
        bound = max(others + lookahead, at + 1) if others < until - lookahead else until
        coming[first] = at
        many.turn[0].process = first
        row = rows[first]
        isl, own = island_at(row.island), coming[first : first + 1]
        reason = go_on(isl, program_at(row.program), policies_at(row.policies), own, bound)
        if reason != REACHED:
            return reason
    for p in range(rows.size):
        if coming[p] < NEVER:
            c = island_at(rows[p].island).clock[0]
            c.now = c.now if c.coupled else max(c.now, until)
    return REACHED
