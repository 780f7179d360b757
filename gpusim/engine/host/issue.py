"""A step of the host: one instruction, or one of the things that it does between instructions.

What a step needs on the device is brought in first (`residency.bring_in`), and `queues.takes_part` says whether the host has to
wait for copies.  A step that is not over is repeated later: what it has done already it finds done.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.engine.clock import queues
from gpusim.engine.host import operators, plan
from gpusim.engine.memory import blocks, prefetches, release, residency
from gpusim.engine.memory.residency import CREATED, DEMANDED, PLANNED, PREFETCH
from gpusim.engine.state import (
    AGAIN,
    ASK,
    BAD_ANSWER,
    DEPTH,
    DRAIN,
    ENDED,
    I_ALLOC,
    I_FREE,
    I_OP,
    I_RECORD,
    I_SYNC,
    I_UNTIL,
    I_WAIT,
    NEXT_CHUNK,
    PROPOSED,
    WHERE,
    Instructions,
    Island,
    PolicyTables,
)
from gpusim.engine.verbs import V_NOTE, V_PROPOSE, as_note, as_propose
from gpusim.policies.contract import ABSENT, EVICT, HOST

OVER = 0  # the step is done; else AGAIN, or the reason to stop before it


@kernel
def issue(isl: Island, prog: Instructions, pol: PolicyTables, h: Any) -> int:
    """One step of a host.  Returns 0, or the reason to stop before it."""
    t = isl.tenants[0]
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
    if t.due:
        if queues.idle(isl):
            blocks.defragment(isl, pol, h)
        else:
            t.drain = 1
            h.state = DRAIN
            return 0

    if t.leaving > 0:
        reason = release.step(isl, pol, h)
        queues.takes_part(isl, h)
    elif h.prefetching:
        reason = prefetch(isl, prog, pol, h, prog.instructions[h.pc - 1])
    else:
        reason = instruction(isl, prog, pol, h, prog.instructions[h.pc])
    return 0 if reason == AGAIN else reason


@kernel
def prefetch(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, i: Any) -> int:
    """The operator has been submitted: the prefetch policy says which units come next, as many as there is room for."""
    t, rules = isl.tenants[0], pol.rules[0]
    if rules.decides == DEPTH and h.prefetching == 1:
        h.prefetching = 2  # decided, when the host comes back
        return ASK
    count = as_propose(pol.verbs[V_PROPOSE, 0], pol.verbs[V_PROPOSE, 1])(
        pol.prefetch, i.arg, prog.acc_start, prog.acc_unit, isl.flags[WHERE], isl.lists[PROPOSED]
    )
    if count < 0 or count > isl.lists.shape[1]:
        t.request = count
        return BAD_ANSWER
    for j in range(count):
        u = isl.lists[PROPOSED, j]
        if u < 0 or u >= isl.units.size or not isl.units[u].live:
            t.request = u
            return BAD_ANSWER
        operators.lock(isl, u)
    for j in range(count):
        u = isl.lists[PROPOSED, j]
        if is_below(isl, u):
            if queues.full_of_copies(isl) >= 0:
                break
            reason = residency.bring_in(isl, pol, h, u, i.stream, PREFETCH)
            if reason == BAD_ANSWER or (reason == ASK and rules.decides):
                return reason
            if reason:
                t.failing = 0  # what does not fit is not prefetched
                break
    queues.takes_part(isl, h)
    h.prefetching = 0
    operators.unlock(isl)
    return OVER


@kernel
def instruction(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, i: Any) -> int:
    """What the program does next, or an action of the plan before it."""
    t = isl.tenants[0]
    if i.kind == I_OP:
        if plan.acts_at(prog, h, i.arg):
            return act(isl, prog, pol, h, i)
        reason = launch(isl, prog, pol, h, i)
    elif i.kind == I_ALLOC:
        reason = allocate(isl, prog, pol, h, i)
    else:
        reason = carry_out(isl, pol, h, i)
    if reason:
        return reason
    h.pc += 1
    if i.kind != I_UNTIL:
        t.instructions += 1
        operators.sample(isl, pol)
    if i.kind == I_SYNC or t.drain:
        if queues.idle(isl):
            queues.settle(isl, h)
        else:
            h.state = DRAIN
            if i.kind == I_SYNC and h.copied:
                h.wake_ns = h.wait_ns
    if i.kind == I_SYNC:
        h.copied = 0
    return OVER


@kernel
def act(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, i: Any) -> int:
    """The plan's next action, before the operator at which it stands; what the operator uses may not leave for it."""
    t = isl.tenants[0]
    if not plan.may_copy(isl, h):
        return AGAIN
    begin(isl, prog, i.arg)
    action = prog.plan[h.planned]
    moved = False
    if action.verb == EVICT:
        moved = plan.evict(isl, pol, h, action.unit, action.to) > 0
    elif is_below(isl, action.unit):
        reason = residency.bring_in(isl, pol, h, action.unit, i.stream, PLANNED)
        if reason == BAD_ANSWER:
            return reason
        if reason:
            t.failing = 0  # what does not fit is not brought in
        moved = reason == 0
    queues.takes_part(isl, h)
    plan.acted(isl, prog, pol, h, moved)
    return OVER


@kernel
def launch(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, i: Any) -> int:
    """An operator: what it uses is brought in, then its kernel joins the stream."""
    t, rules = isl.tenants[0], pol.rules[0]
    if not operators.may_launch(isl, prog, h, i.arg, i.stream):
        return AGAIN
    begin(isl, prog, i.arg)
    for j in range(prog.acc_start[i.arg], prog.acc_start[i.arg + 1]):
        u = prog.acc_unit[j]
        if is_below(isl, u):
            reason = residency.bring_in(isl, pol, h, u, i.stream, DEMANDED)
            if reason:
                return reason
            if rules.propose:
                as_note(pol.verbs[V_NOTE, 0], pol.verbs[V_NOTE, 1])(pol.prefetch, u, i.arg, 1)
        elif t.ranked and isl.units[u].brought:
            prefetches.claim(isl, pol, h, u, i.arg)
    if queues.takes_part(isl, h):
        return AGAIN
    if t.drain:
        if queues.idle(isl):
            queues.settle(isl, h)
        else:
            h.state = DRAIN
        return AGAIN
    operators.submit_kernel(isl, prog, pol, h, i.arg, i.stream)
    if not h.prefetching:
        operators.unlock(isl)
    return OVER


@kernel
def allocate(isl: Island, prog: Instructions, pol: PolicyTables, h: Any, i: Any) -> int:
    """A tensor begins: it gets a block."""
    u = i.arg
    operators.create(isl, prog, pol, u)
    if isl.flags[WHERE, u] == ABSENT and isl.units[u].size > 0:
        reason = residency.bring_in(isl, pol, h, u, i.stream, CREATED)
        if reason:
            return reason
        h.time += h.cached_ns
        h.alloc_ns += h.cached_ns
    return AGAIN if queues.takes_part(isl, h) else OVER


@kernel
def carry_out(isl: Island, pol: PolicyTables, h: Any, i: Any) -> int:
    """An instruction that needs nothing on the device."""
    c = isl.clock[0]
    if queues.takes_part(isl, h):
        return AGAIN
    if i.kind == I_FREE:
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
    return OVER


@kernel
def begin(isl: Island, prog: Instructions, o: int) -> None:
    """The program has come to this operator: what it uses may not leave until its kernel is submitted."""
    isl.tenants[0].program = prog.clock[o]
    for j in range(prog.acc_start[o], prog.acc_start[o + 1]):
        operators.lock(isl, prog.acc_unit[j])


@kernel
def is_below(isl: Island, u: int) -> bool:
    """The unit's data are below the device and may come."""
    return isl.flags[WHERE, u] == HOST and isl.units[u].size > 0
