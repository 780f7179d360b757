"""The loop: hosts issue, the device runs, whichever comes first in time.  Resumable between any two steps."""

from __future__ import annotations

from numba import types

from gpusim.base.compiled import entry, kernel
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links, queues, remote
from gpusim.engine.host.issue import issue
from gpusim.engine.state import (
    E_KERNEL,
    E_MOVE,
    E_READ,
    E_READY,
    ENDED,
    FINISHED,
    ISLAND,
    LOG_FULL,
    NEVER,
    POLICIES,
    PROGRAM,
    REACHED,
    RUNNING,
    STUCK,
    Instructions,
    Island,
    PolicyTables,
)


@kernel
def step_device(isl: Island, prog: Instructions, pol: PolicyTables) -> None:
    """The next thing on the device happens: a flow ends, a kernel ends, a copy begins to move, a stream's gap is over."""
    c = isl.clock[0]
    ended = -1
    if c.fluid_tick == c.now:
        ended = links.take_ended(isl)
    else:
        kind, arg = heap.pop(isl)
        if kind == E_MOVE:
            queues.move(isl, prog, arg)
        elif kind == E_KERNEL:
            ended = arg
        elif kind == E_READY:
            c.woken = 1
        else:
            remote.flow(isl, prog, arg, kind - E_READ)
    if ended >= 0 and remote.is_last(isl, ended):
        queues.finish(isl, pol, ended)
    if c.reshare:
        links.reschedule(isl, prog)


@entry(types.int64(ISLAND, PROGRAM, POLICIES, types.int64))
def run_until(isl: Island, prog: Instructions, pol: PolicyTables, until: int) -> int:
    """Run up to, not including, time `until`; returns why it stopped.  Devices go before hosts at equal times."""
    c, buffers = isl.clock[0], pol.buffers[0]
    while True:
        while c.woken:
            queues.start_ready(isl, prog, pol)
        if buffers.logged > buffers.log_room or buffers.notes > buffers.log_room:
            return LOG_FULL
        device = min(c.fluid_tick, isl.heap[0].time if c.events > 0 else NEVER)
        next_host, at = -1, NEVER
        for i in range(isl.hosts.size):
            h = isl.hosts[i]
            if h.state == RUNNING and h.time < at:
                next_host, at = i, h.time
        if min(device, at) >= until:
            if min(device, at) < NEVER:
                c.now = max(c.now, until)
                return REACHED
            for i in range(isl.hosts.size):
                if isl.hosts[i].state != ENDED:
                    return STUCK
            return FINISHED if queues.idle(isl) else STUCK
        if device <= at:
            c.now = device
            step_device(isl, prog, pol)
        else:
            c.now = max(c.now, at)
            reason = issue(isl, prog, pol, isl.hosts[next_host])
            if reason:
                return reason
