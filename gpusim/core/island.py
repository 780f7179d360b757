"""The loop: hosts issue, the device runs, whichever comes first in time.  Resumable between any two steps."""

from __future__ import annotations

from typing import Any

from numba import types

from gpusim.core import heap, links, log, queues, residency
from gpusim.core.jit import entry, kernel, verb
from gpusim.core.residency import IN_USE, LOCKED, PROPOSED, V_NOTE, V_PROPOSE, WHERE
from gpusim.core.state import (
    DRAIN,
    E_MOVE,
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
    KERNEL,
    LOG_FULL,
    N_INSERT,
    N_TOUCH,
    NEVER,
    NEXT_CHUNK,
    POLICIES,
    PROGRAM,
    REACHED,
    RUNNING,
    SPACE,
    STUCK,
    Island,
    Policies,
    Program,
)
from gpusim.policies import contract
from gpusim.policies.contract import HELD, HOST, ROUNDED

as_propose, as_note = verb(contract.PROPOSE), verb(contract.NOTE)


# --- the host -------------------------------------------------------------------------------------------------------------


@kernel
def issue_alloc(isl: Island, prog: Program, pol: Policies, h: Any, u: int, stream: int) -> int:
    """A tensor begins."""
    c = isl.control[0]
    unit = isl.units[u]
    if not unit.live:
        unit.live = 1
        unit.born = unit.last = c.program
        unit.next = prog.first[u]
        queues.record(isl, pol, c.now, log.CREATE, u, 0, -1, unit.size)
    if unit.size == 0:
        return 0
    reason = residency.take_block(isl, pol, h, u, stream, True)
    if reason == 0:
        residency.tell(isl, pol, N_INSERT, u)
        h.time += c.cached_ns
        h.alloc_ns += c.cached_ns
    return reason


@kernel
def unlock(isl: Island) -> None:
    c = isl.control[0]
    for i in range(c.locked):
        isl.flags[LOCKED, isl.lists[IN_USE, i]] = 0
    c.locked = 0


@kernel
def lock(isl: Island, u: int) -> None:
    c = isl.control[0]
    if isl.flags[LOCKED, u] == 0:
        isl.flags[LOCKED, u] = 1
        isl.lists[IN_USE, c.locked] = u
        c.locked += 1


@kernel
def issue_op(isl: Island, prog: Program, pol: Policies, h: Any, o: int, stream: int) -> int:
    """Bring in what the operator uses, then submit its kernel.  Stops and repeats are harmless until the submission."""
    c, n = isl.control[0], isl.counts[0]
    if queues.full(isl, stream) or queues.full(isl, c.q_in) or queues.full(isl, c.q_out):
        h.state = SPACE
        h.queue = stream
        if queues.full(isl, c.q_in):
            h.queue = c.q_in
        elif queues.full(isl, c.q_out):
            h.queue = c.q_out
        return -1
    if not h.paid:
        h.paid = 1
        h.time += c.submit_ns
        return -1
    c.program = prog.clock[o]
    first, last = prog.acc_start[o], prog.acc_start[o + 1]
    for i in range(first, last):
        lock(isl, prog.acc_unit[i])
    for i in range(first, last):
        u = prog.acc_unit[i]
        if isl.flags[WHERE, u] == HOST:
            reason = residency.bring_in(isl, pol, h, u, stream, False)
            if reason:
                unlock(isl)
                return reason
            if c.propose:
                as_note(pol.verbs[V_NOTE, 0], pol.verbs[V_NOTE, 1])(pol.prefetch, u, o, 1)
    if c.drain:
        unlock(isl)
        if queues.idle(isl):
            queues.settle(isl, h)
        else:
            h.state = DRAIN
        return -1

    row = queues.submit(isl, stream, KERNEL, o, 0, prog.duration[o], c.now)
    count = isl.queues[stream].submitted
    queues.wait_for(isl, row, isl.marks[stream])
    a = isl.activities[row]
    for i in range(first, last):
        u = prog.acc_unit[i]
        unit = isl.units[u]
        if unit.size == 0:
            continue
        if unit.brought:
            n.prefetch_hits += 1
            a.brought = max(a.brought, unit.brought)
            unit.brought = 0
        queues.wait_for(isl, row, isl.after[u])
        if prog.acc_write[i]:
            queues.wait_for(isl, row, isl.use[u])
            isl.after[u, stream] = count
            unit.data = 1
            if unit.host_copy:
                residency.drop_host_copy(isl, pol, u)
        isl.use[u, stream] = count
        unit.uses += 1
        unit.last = c.program
        unit.next = prog.acc_next[i]
        residency.tell(isl, pol, N_TOUCH, u)
        if c.propose:
            as_note(pol.verbs[V_NOTE, 0], pol.verbs[V_NOTE, 1])(pol.prefetch, u, o, 0)
    isl.need[row, stream] = 0  # its own queue is first in, first out
    a.alloc_ns, a.sync_ns = h.alloc_ns, h.sync_ns
    h.alloc_ns = 0
    h.sync_ns = 0
    c.kernels += 1
    n.op = o
    queues.record(isl, pol, c.now, log.ISSUE, o, stream, a.number, 0)
    queues.start_ready(isl, pol, stream)
    if c.propose:
        prefetch(isl, prog, pol, h, o, stream)
    unlock(isl)
    h.paid = 0
    return 0


@kernel
def prefetch(isl: Island, prog: Program, pol: Policies, h: Any, o: int, stream: int) -> None:
    """Bring in what the policy proposes, as far as room can be made without evicting what it proposes or uses now."""
    c = isl.control[0]
    proposed = isl.lists[PROPOSED]
    n = as_propose(pol.verbs[V_PROPOSE, 0], pol.verbs[V_PROPOSE, 1])(
        pol.prefetch, o, prog.acc_start, prog.acc_unit, isl.flags[WHERE], proposed
    )
    for i in range(n):
        lock(isl, proposed[i])
    for i in range(n):
        u = proposed[i]
        if isl.flags[WHERE, u] == HOST:
            if queues.full(isl, c.q_in) or queues.full(isl, c.q_out):
                break
            if residency.bring_in(isl, pol, h, u, stream, True):
                c.failing = 0
                break


@kernel
def sample(isl: Island, pol: Policies) -> None:
    """One row per stretch of the program: the moment at which most was allocated in it."""
    c, n = isl.control[0], isl.counts[0]
    row = c.instructions // c.bucket
    if row >= c.rows:
        c.rows = row + 1
        n.external_sum += residency.external(isl, pol)
        n.external_samples += 1
        pol.samples[row].allocated = -1
    s = pol.samples[row]
    if pol.place[ROUNDED] >= s.allocated:
        s.time, s.op, s.host = c.now, n.op, c.host_used
        s.allocated, s.reserved, s.requested = pol.place[ROUNDED], pol.place[HELD], n.requested


@kernel
def issue(isl: Island, prog: Program, pol: Policies, h: Any) -> int:
    """One instruction of a host.  Returns 0, or the reason to stop before it."""
    c = isl.control[0]
    if h.pc == h.end:
        if c.more:
            return NEXT_CHUNK
        h.state = ENDED
        return 0
    i = prog.instructions[h.pc]
    reason = 0
    if i.kind == I_ALLOC:
        reason = issue_alloc(isl, prog, pol, h, i.arg, i.stream)
    elif i.kind == I_FREE:
        residency.destroy(isl, pol, h, i.arg)
    elif i.kind == I_OP:
        reason = issue_op(isl, prog, pol, h, i.arg, i.stream)
    elif i.kind == I_RECORD:
        for k in range(c.queues):
            isl.marks[c.streams + i.arg, k] = isl.marks[i.stream, k]
        isl.marks[c.streams + i.arg, i.stream] = isl.queues[i.stream].submitted
    elif i.kind == I_WAIT:
        for k in range(c.queues):
            isl.marks[i.stream, k] = max(isl.marks[i.stream, k], isl.marks[c.streams + i.arg, k])
    elif i.kind == I_UNTIL:
        h.time = max(h.time, i.arg)
    if reason == -1:  # the same instruction again, later
        return 0
    if reason:
        return reason
    h.pc += 1
    if i.kind != I_UNTIL:
        c.instructions += 1
        sample(isl, pol)
    if i.kind == I_SYNC or c.drain:
        if queues.idle(isl):
            queues.settle(isl, h)
        else:
            h.state = DRAIN
    return 0


# --- the loop -------------------------------------------------------------------------------------------------------------


@kernel
def end_flows(isl: Island, prog: Program, pol: Policies) -> None:
    """Every flow that has ended by now ends, in the order of the exact times; those left share anew after each."""
    c = isl.control[0]
    while c.fluid_tick == c.now:
        links.advance(isl, links.first_end(isl))
        row = links.take_ended(isl)
        while row >= 0:
            queues.finish(isl, pol, row)
            row = links.take_ended(isl)
        links.reschedule(isl, prog)


@kernel
def dispatch(isl: Island, prog: Program, pol: Policies) -> None:
    """The next event of the heap happens."""
    c = isl.control[0]
    c.now, kind, arg = heap.pop(isl)
    if kind == E_MOVE:
        queues.move(isl, prog, arg)
    elif kind == E_READY:
        queues.start_ready(isl, pol, arg)
    else:
        queues.finish(isl, pol, arg)


@entry(types.int64(ISLAND, PROGRAM, POLICIES, types.int64))
def run_until(isl: Island, prog: Program, pol: Policies, until: int) -> int:
    """Run up to, not including, time `until`; returns why it stopped.  Devices go before hosts at equal times."""
    c = isl.control[0]
    while True:
        if c.logged > c.log_room or c.notes > c.log_room:
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
            if c.fluid_tick == device:
                c.now = device
                end_flows(isl, prog, pol)
            else:
                dispatch(isl, prog, pol)
        else:
            c.now = max(c.now, at)
            reason = issue(isl, prog, pol, isl.hosts[next_host])
            if reason:
                return reason
