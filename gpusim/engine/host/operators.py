"""What the host does for one instruction, beside bringing in what it needs: beginnings, launches, samples."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import fetch, kernel
from gpusim.engine.clock import queues
from gpusim.engine.memory import blocks, swaps
from gpusim.engine.memory import evicting as choice
from gpusim.engine.state import I_ALLOC, IN_USE, LOCKED, N_TOUCH, SPACE, Instructions, Island, PolicyTables
from gpusim.engine.verbs import V_NOTE, as_note
from gpusim.policies.contract import HELD, ROUNDED
from gpusim.results import log
from gpusim.trace.trace import COPY_IN, COPY_OUT


@kernel
def unlock(isl: Island) -> None:
    t = isl.tenants[0]
    for i in range(t.locked):
        isl.flags[LOCKED, isl.lists[IN_USE, i]] = 0
    t.locked = 0


@kernel
def lock(isl: Island, u: int) -> None:
    t = isl.tenants[0]
    if isl.flags[LOCKED, u] == 0:
        isl.flags[LOCKED, u] = 1
        isl.lists[IN_USE, t.locked] = u
        t.locked += 1


@kernel
def create(isl: Island, prog: Instructions, pol: PolicyTables, u: int) -> None:
    """A tensor begins; once, however often its allocation has to be tried."""
    t = isl.tenants[0]
    unit = isl.units[u]
    if not unit.live:
        unit.live = 1
        unit.born = unit.last = t.program
        unit.next = prog.first[u]
        queues.record(isl, pol, log.CREATE, u, 0, -1, unit.size)


@kernel
def may_launch(isl: Island, prog: Instructions, h: Any, o: int, stream: int) -> bool:
    """The host has room in the queues and has paid for the launch, or for its own call; if not, it comes back later."""
    q = stream if queues.full(isl, stream) else queues.full_of_copies(isl)
    if q >= 0:
        h.state, h.queue = SPACE, q
        return False
    if not h.paid:
        h.paid = 1
        h.time += h.operator_ns
        if prog.call[o] > 0:
            h.time += prog.call[o]
            h.alloc_ns += prog.call[o]
        elif prog.call[o] < 0:
            t = isl.tenants[0]
            t.drain = 1
            t.owed -= prog.call[o]
        if isl.clock[0].coupled:
            look_ahead(isl, prog, h, o, stream)
        return False
    return True


@kernel
def look_ahead(isl: Island, prog: Instructions, h: Any, o: int, stream: int) -> None:
    """The operator is launched when the host has paid for that; meanwhile other programs have the processor's cache."""
    queue = isl.queues[stream]
    row = queue.base + (queue.submitted & queue.mask)
    fetch(isl.activities, row)
    fetch(isl.need, row)
    for j in range(prog.acc_start[o], prog.acc_start[o + 1]):
        fetch_unit(isl, prog.acc_unit[j])
    for k in range(h.pc + 1, min(h.pc + 5, prog.instructions.size)):
        if prog.instructions[k].kind == I_ALLOC:
            fetch_unit(isl, prog.instructions[k].arg)
    later = min(o + queues.LATER, prog.duration.size - 1)
    fetch(prog.duration, later)
    fetch(prog.bytes, later)
    fetch(prog.call, later)
    fetch(prog.clock, later)
    fetch(prog.acc_start, later)
    fetch(prog.carried[0], later)
    fetch(prog.carried[1], later)
    fetch(prog.instructions, h.pc + queues.LATER)
    fetch(prog.acc_unit, prog.acc_start[later])
    fetch(prog.acc_next, prog.acc_start[later])
    fetch(prog.acc_write, prog.acc_start[later])


@kernel
def fetch_unit(isl: Island, u: int) -> None:
    fetch(isl.units, u)
    fetch(isl.after, u)
    fetch(isl.use, u)


@kernel
def submit_kernel(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, o: int, stream: int) -> None:
    """All that the operator uses is or will be there: its kernel joins the stream and waits for it."""
    c, t, rules, n = isl.clock[0], isl.tenants[0], pol.rules[0], isl.counts[0]
    row = queues.submit(isl, stream, prog.carried[0, o], prog.carried[1, o], o, prog.bytes[o], prog.duration[o], c.now)
    count = isl.queues[stream].submitted
    queues.wait_for(isl, row, isl.marks[stream])
    a, below = isl.activities[row], t.remote
    for i in range(prog.acc_start[o], prog.acc_start[o + 1]):
        u = prog.acc_unit[i]
        unit = isl.units[u]
        if unit.size == 0:
            continue
        if unit.brought:
            n.prefetch_hits += 1
            a.brought = max(a.brought, unit.brought) if unit.brought_by == a.brought_by else unit.brought
            a.brought_by = unit.brought_by
            unit.brought = 0
        queues.wait_for(isl, row, isl.after[u])
        if prog.acc_write[i]:
            queues.wait_for(isl, row, isl.use[u])
            isl.after[u, stream] = count
            unit.data = 1
            if unit.tier and not (below and unit.stays):
                swaps.drop_copy(isl, pol, u)
        isl.use[u, stream] = count
        unit.uses += 1
        unit.last = t.program
        unit.next = prog.acc_next[i]
        if not (below and unit.stays):
            choice.tell(isl, pol, N_TOUCH, u)
        if rules.propose:
            as_note(pol.verbs[V_NOTE, 0], pol.verbs[V_NOTE, 1])(pol.prefetch, u, o, 0)
    isl.need[row, stream] = 0  # its own queue is first in, first out
    a.submit = c.now + h.had
    a.alloc_ns, a.sync_ns = h.alloc_ns, h.sync_ns
    h.alloc_ns = 0
    h.sync_ns = 0
    h.paid = 0
    h.copied = prog.carried[0, o] == COPY_IN or prog.carried[0, o] == COPY_OUT
    h.prefetching = rules.propose
    t.kernels += 1
    n.op = o
    queues.record(isl, pol, log.ISSUE, o, stream, a.number, a.bytes)


@kernel
def sample(isl: Island, pol: PolicyTables) -> None:
    """One row per stretch of the program: the moment at which most was allocated in it."""
    c, t, buffers, n = isl.clock[0], isl.tenants[0], pol.buffers[0], isl.counts[0]
    row = buffers.rows - 1
    if t.instructions >= buffers.rows * buffers.bucket:  # no division for each instruction
        row = t.instructions // buffers.bucket
        buffers.rows = row + 1
        n.external_sum += blocks.external(isl, pol)
        n.external_samples += 1
        pol.samples[row].allocated = -1
    s = pol.samples[row]
    if pol.place[ROUNDED] >= s.allocated:
        s.time, s.op, s.host = c.now, n.op, t.below
        s.allocated, s.reserved, s.requested = pol.place[ROUNDED], pol.place[HELD], n.requested
