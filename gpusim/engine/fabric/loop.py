"""The loop of programs that share links: whose next step is the earliest goes on, up to the next thing that flows."""

from __future__ import annotations

from numba import types

from gpusim.base.compiled import entry, function_at, kernel, tables_at
from gpusim.engine.clock import event_heap, links, sharing
from gpusim.engine.fabric import lenders, memory, pacing, tenants
from gpusim.engine.fabric.rendezvous import begin, gather, next_to_begin
from gpusim.engine.fabric.tables import DECIDE, FABRIC, MOVES, SHEDS, Fabric
from gpusim.engine.host.island import earliest, end, island_at, policies_at, program_at
from gpusim.engine.state import APART, ARBITRATE, E_PAGES, MEETS, NEVER, NO_WAY, PROCESSES, REACHED, RESHARE, WAKES, Processes

RUN = types.int64(PROCESSES, types.int64)  # of `run_until`
processes_at, as_run = tables_at(PROCESSES), function_at(RUN)


@kernel
def reschedule(fabric: Fabric, many: Processes, now: int) -> None:
    """Share the links of all devices, and the memory of each, anew."""
    one, apart = island_at(many.rows[0].island), fabric.gpu[0].mode == APART
    fluid = one.fluid[0]
    if apart:
        sharing.begin(one, now)
        memory.loosen(many)
    else:
        pacing.pace(fabric, many, now)
        if fluid.reshare == 0:
            return
    while fluid.reshare:
        if fluid.flows > 0:
            links.share(one)
        fluid.reshare = 0
        if not apart:
            tenants.share_memory(fabric, many)
        else:
            memory.tighten(many)
    sharing.note_end(one)


@kernel
def abandon(many: Processes, now: int) -> None:
    """Copies of programs that ran out of memory stop; what all members have begun together goes on."""
    one, f = island_at(many.rows[0].island), 0
    while f < one.fluid[0].flows:
        p = one.flow[f].process
        if p >= 0 and many.rows[p].ended:
            links.catch_up_to(one, now)
            links.remove(one, f)
        else:
            f += 1


@kernel
def end_at(fabric: Fabric, many: Processes, p: int, row: int, own: bool, now: int) -> None:
    """An activity of the p-th program, or a part of it, is over now; one that has run out of memory does not see it."""
    if many.rows[p].ended:
        return
    fabric.seats[p].seen = 0
    isl = island_at(many.rows[p].island)
    isl.clock[0].now = now
    end(isl, program_at(many.rows[p].program), policies_at(many.rows[p].policies), row, own)
    many.next[p] = now


@kernel
def end_flow(fabric: Fabric, many: Processes, now: int) -> None:
    """The flow that ends next has ended now, and with it what waited for it."""
    p, row, way = links.take_ended(island_at(many.rows[0].island))
    if way == MOVES:
        tenants.moved(fabric, many, row, now)
    elif way == MEETS:
        met = fabric.rendezvous[row]
        for i in range(met.first, met.first + met.expected):
            end_at(fabric, many, fabric.members[i].process, fabric.members[i].activity, False, now)
    else:
        isl = island_at(many.rows[p].island)
        isl.clock[0].now = now
        fabric.seats[p].seen = 0
        if way != NO_WAY or not sharing.ends_early(isl, row):
            end_at(fabric, many, p, row, way == NO_WAY, now)
        else:
            many.next[p] = now


@kernel
def wake(many: Processes, p: int, now: int) -> None:
    """The driver of the GPU turns from the faults of the p-th program to those of another one, now."""
    pager = island_at(many.rows[p].island).pager[0]
    other = pager.wakes - 1
    pager.wakes = 0
    isl = island_at(many.rows[other].island)
    isl.pager[0].next = now
    event_heap.push(isl, now, E_PAGES, -1)
    many.next[other] = min(many.next[other], now)


@entry(types.int64(FABRIC, PROCESSES, types.int64))
def run_coupled(fabric: Fabric, many: Processes, until: int) -> int:
    """Run all programs up to, not including, time `until`; returns why one of them stopped, which `turn` names, or REACHED.

    At equal times what flows goes first, then the programs in their order.  REACHED at NEVER: each waits for another.
    """
    rows, coming, turn = many.rows, many.next, many.turn[0]
    one = island_at(rows[0].island)
    fluid, tenanted = one.fluid[0], fabric.gpu[0].mode != APART
    together = False  # programs that act at one tick do so before what flows is shared anew
    for p in range(rows.size):  # what Python has done in between may be new to all of them
        coming[p] = NEVER if rows[p].ended else 0
    abandon(many, turn.now)
    fabric.gpu[0].changed = 1
    for p in range(rows.size):
        fabric.seats[p].stale, fabric.seats[p].seen = 1, 0
    if fabric.gpu[0].ordered:
        tenants.order(fabric, many, turn.now)
    while True:
        if fluid.arrivals:
            gather(fabric, many, turn.now)
        while fluid.calls:
            lenders.answer(many, turn.now)
        at = earliest(coming)
        pending = fluid.reshare != 0
        if pending and not tenanted and (at > turn.now or not together):
            reschedule(fabric, many, turn.now)
            pending = False
        flows = next_to_begin(fabric)
        if not pending:
            flows = min(flows, fluid.tick)
        ahead = min(flows, at)
        if tenanted and ahead > turn.now:
            if tenants.is_due(fabric, turn.now):
                tenants.arbitrate(fabric, many, turn.now)
                if fabric.gpu[0].asking:
                    return DECIDE
                at, pending = earliest(coming), fluid.reshare != 0
                if tenants.is_due(fabric, turn.now) or at <= turn.now:
                    continue
            if pending:
                reschedule(fabric, many, turn.now)
                pending = False
            flows = min(next_to_begin(fabric), fluid.tick)
            ahead = min(flows, at)
        if min(ahead, fabric.gpu[0].next) >= until:
            return REACHED
        if fabric.gpu[0].next < ahead:
            turn.now = fabric.gpu[0].next
            continue
        if flows <= at:
            turn.now, together = flows, False
            if not pending and fluid.tick == flows:
                end_flow(fabric, many, flows)
            else:
                begin(fabric, many, flows)
            continue
        first = 0
        while coming[first] != at:
            first += 1
        coming[first] = NEVER
        others = earliest(coming)
        coming[first] = at
        bound = max(min(others, flows, until, tenants.next_change(fabric, at)), at + 1)
        turn.process = first
        fabric.seats[first].seen = 0
        clock = island_at(rows[first].island).clock[0]
        clock.now = max(clock.now, at)
        reason = as_run(fabric.run[0, 0], fabric.run[0, 1])(processes_at(fabric.programs[first]), bound)
        turn.now, together = max(turn.now, clock.now), True
        if fabric.gpu[0].moving == SHEDS:
            fabric.gpu[0].changed = 1
        if reason == RESHARE:
            coming[first] = turn.now if fluid.calls else coming[first]
        elif reason == WAKES:
            coming[first] = turn.now
            wake(many, first, turn.now)
        elif reason == ARBITRATE:
            tenants.note_change(fabric, many, first, turn.now)
        elif reason != REACHED:
            return reason
