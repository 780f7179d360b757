"""The loop: hosts issue, the device runs, whichever comes first in time.  Resumable between any two steps."""

from __future__ import annotations

from typing import Any

from numba import types

from gpusim.base.compiled import entry, kernel
from gpusim.engine.clock import event_heap as heap
from gpusim.engine.clock import links, queues, remote
from gpusim.engine.host import operators, plan
from gpusim.engine.memory import blocks, prefetches, release, residency
from gpusim.engine.memory.residency import CREATED, DEMANDED, PLANNED, PREFETCH
from gpusim.engine.state import (
    BAD_ANSWER,
    DEFRAGMENT,
    DRAIN,
    E_KERNEL,
    E_MOVE,
    E_READ,
    E_READY,
    ENDED,
    FINISHED,
    I_ALLOC,
    I_FREE,
    I_OP,
    I_RECORD,
    I_SYNC,
    I_UNTIL,
    I_WAIT,
    ISLAND,
    LOG_FULL,
    NEVER,
    NEXT_CHUNK,
    POLICIES,
    PROGRAM,
    PROPOSED,
    REACHED,
    RUNNING,
    STUCK,
    WHERE,
    Instructions,
    Island,
    PolicyTables,
)
from gpusim.engine.verbs import V_NOTE, V_PROPOSE, as_note, as_propose
from gpusim.policies.contract import ABSENT, EVICT, HOST

# --- the host -------------------------------------------------------------------------------------------------------------


@kernel
def issue(isl: Island, prog: Instructions, pol: PolicyTables, h: Any) -> int:
    """One step of a host: an instruction, or what follows a launch.  Returns 0, or the reason to stop before it.

    A step may be repeated after a stop: what it has done already it finds done.
    """
    c, d, rules = isl.clock[0], isl.devices[0], pol.rules[0]
    if h.wake_ns:  # a host that waits for a copy goes on later than the copy ends
        h.time += h.wake_ns
        h.sync_ns += h.wake_ns
        h.wake_ns = 0
        return 0
    if h.pc == h.end and not h.prefetching:
        if h.more:
            return NEXT_CHUNK
        h.state = ENDED
        return 0

    if d.due:
        if queues.idle(isl):
            blocks.defragment(isl, pol, h)
        else:
            d.drain = 1
            h.state = DRAIN
            return 0

    if d.leaving > 0:
        reason = release.step(isl, pol, h)
        queues.takes_part(isl, h)
        return reason

    # Which units does this step need on the device, and why?
    i = prog.instructions[h.pc - h.prefetching]
    first, count, why, moved = 0, 0, DEMANDED, 0
    if h.prefetching:
        why = PREFETCH
        count = as_propose(pol.verbs[V_PROPOSE, 0], pol.verbs[V_PROPOSE, 1])(
            pol.prefetch, i.arg, prog.acc_start, prog.acc_unit, isl.flags[WHERE], isl.lists[PROPOSED]
        )
        if count < 0 or count > isl.lists.shape[1]:
            d.request = count
            return BAD_ANSWER
        for j in range(count):
            u = isl.lists[PROPOSED, j]
            if u < 0 or u >= isl.units.size or not isl.units[u].live:
                d.request = u
                return BAD_ANSWER
            operators.lock(isl, u)
    elif i.kind == I_OP:
        planned = plan.acts_at(prog, h, i.arg)
        if not (plan.may_copy(isl, h) if planned else operators.may_launch(isl, h, i.stream)):
            return 0
        d.program = prog.clock[i.arg]
        first = prog.acc_start[i.arg]
        count = prog.acc_start[i.arg + 1] - first
        for j in range(first, first + count):
            operators.lock(isl, prog.acc_unit[j])
        if planned:
            action = prog.plan[h.planned]
            why, count = PLANNED, 1
            if action.verb == EVICT:
                count, moved = 0, plan.evict(isl, pol, h, action.unit, action.to)
    elif i.kind == I_ALLOC:
        why = CREATED
        count = 1
        operators.create(isl, prog, pol, i.arg)

    # Bring them in.  This is the only place from which blocks are taken.
    wanted, ranked = ABSENT if why == CREATED else HOST, d.ranked
    for j in range(count):
        u = i.arg
        if why == DEMANDED:
            u = prog.acc_unit[first + j]
        elif why == PREFETCH:
            u = isl.lists[PROPOSED, j]
        elif why == PLANNED:
            u = prog.plan[h.planned].unit
        if isl.flags[WHERE, u] == wanted and isl.units[u].size > 0:
            if why == PREFETCH and queues.full_of_copies(isl) >= 0:
                break
            reason = residency.bring_in(isl, pol, h, u, i.stream, why)
            if reason:
                if why < PREFETCH or reason == BAD_ANSWER:
                    return 0 if reason == DEFRAGMENT else reason
                d.failing = 0  # what does not fit is not prefetched
                break
            if why == DEMANDED and rules.propose:
                as_note(pol.verbs[V_NOTE, 0], pol.verbs[V_NOTE, 1])(pol.prefetch, u, i.arg, 1)
            elif why == CREATED:
                h.time += h.cached_ns
                h.alloc_ns += h.cached_ns
            moved += 1
        elif ranked and why == DEMANDED and isl.units[u].brought:
            prefetches.claim(isl, pol, h, u, i.arg)

    # Then do it.
    waits = queues.takes_part(isl, h)
    if h.prefetching:
        h.prefetching = 0
        operators.unlock(isl)
        return 0
    if why == PLANNED:
        plan.acted(isl, prog, h, moved > 0)
        return 0
    if waits:
        return 0
    if i.kind == I_OP:
        if d.drain:
            if queues.idle(isl):
                queues.settle(isl, h)
            else:
                h.state = DRAIN
            return 0
        operators.submit_kernel(isl, prog, pol, h, i.arg, i.stream)
        if not h.prefetching:
            operators.unlock(isl)
    elif i.kind == I_FREE:
        residency.destroy(isl, pol, h, i.arg, i.stream)
    elif i.kind == I_RECORD:
        for k in range(c.queues):
            isl.marks[c.streams + i.arg, k] = isl.marks[i.stream, k]
        isl.marks[c.streams + i.arg, i.stream] = isl.queues[i.stream].submitted
    elif i.kind == I_WAIT:
        for k in range(c.queues):
            isl.marks[i.stream, k] = max(isl.marks[i.stream, k], isl.marks[c.streams + i.arg, k])
    elif i.kind == I_UNTIL:
        h.time = max(h.time, i.arg)
    h.pc += 1
    if i.kind != I_UNTIL:
        d.instructions += 1
        operators.sample(isl, pol)
    if i.kind == I_SYNC and h.copied:
        h.wake_ns, h.copied = h.wait_ns, 0
    if i.kind == I_SYNC or d.drain:
        if queues.idle(isl):
            queues.settle(isl, h)
        else:
            h.state = DRAIN
    return 0


# --- the loop -------------------------------------------------------------------------------------------------------------


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
