"""Prefetched copies that have not started: wanted by an operator they get their turn, wanted no more they are cancelled."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import queues
from gpusim.engine.state import NEVER, SWAP, Island, PolicyTables
from gpusim.results import log


@kernel
def row_of(isl: Island, u: int) -> int:
    """The row of the unit's prefetch while it waits in a queue of its own kind and its source is still there, else -1."""
    unit = isl.units[u]
    tier = isl.memories[unit.tier]
    if unit.tier == 0 or tier.q_early == tier.q_in or unit.brought_by != tier.q_early:
        return -1
    queue = isl.queues[tier.q_early]
    return queue.base + ((unit.brought - 1) & queue.mask) if queue.started < unit.brought else -1


@kernel
def cancel(isl: Island, pol: PolicyTables, u: int, row: int) -> None:
    """The copy will not run, and nothing waits for it."""
    a, unit = isl.activities[row], isl.units[u]
    a.cancelled = 1
    isl.clock[0].woken = isl.look[unit.brought_by] = 1
    isl.use[u, unit.brought_by] = 0
    isl.after[u, unit.brought_by] = isl.need[row, unit.brought_by]  # what it waited for itself
    queues.record(isl, pol, log.CANCEL, u, 0, a.number, a.bytes)


@outlined
def claim(isl: Island, pol: PolicyTables, h: Any, u: int, op: int) -> None:
    """An operator wants the unit.  If its copy still waits, it is due now, and goes before those without a waiting operator."""
    n, unit = isl.counts[0], isl.units[u]
    row = row_of(isl, u)
    if row < 0 or isl.activities[row].due != NEVER:
        return
    n.prefetch_promoted += 1
    queue = isl.queues[unit.brought_by]
    queue.wanted = max(queue.wanted, queue.started)
    while queue.wanted < unit.brought - 1:
        before = isl.activities[queue.base + (queue.wanted & queue.mask)]
        if before.due == NEVER and before.cancelled == 0:
            break
        queue.wanted += 1
    if queue.wanted == unit.brought - 1 or queues.full(isl, isl.memories[unit.tier].q_in):
        isl.activities[row].due = op
    else:
        move_up(isl, pol, h, u, row, op)


@kernel
def move_up(isl: Island, pol: PolicyTables, h: Any, u: int, row: int, op: int) -> None:
    """The unit's copy joins the queue of those that operators want."""
    unit, tier = isl.units[u], isl.memories[isl.units[u].tier]
    new = queues.submit(isl, tier.q_in, SWAP, tier.way_in, u, unit.wire, 0, isl.clock[0].now + h.had)
    isl.activities[new].due = op
    queues.wait_for(isl, new, isl.need[row])
    cancel(isl, pol, u, row)
    count = isl.queues[tier.q_in].submitted
    isl.after[u, tier.q_in] = count
    isl.use[u, tier.q_in] = count
    unit.fetched, unit.fetched_by = count, tier.q_in
    unit.brought, unit.brought_by = count, tier.q_in
    queues.stage(isl, h, unit.tier, tier.q_in, count)
    queues.record(isl, pol, log.COPY, u, int(unit.tier) << 8, isl.activities[new].number, unit.wire)


@outlined
def give_up(isl: Island, pol: PolicyTables, u: int) -> None:
    """A unit that nothing has used since it was prefetched leaves or ends: no bytes move if its copy has not started."""
    n, unit = isl.counts[0], isl.units[u]
    row = row_of(isl, u)
    if row < 0:
        n.prefetch_wasted += 1
    else:
        cancel(isl, pol, u, row)
        isl.memories[unit.tier].into -= unit.wire
        n.swap_ins -= 1
        n.h2d_bytes -= unit.wire
        n.prefetch_cancelled += 1
    unit.brought = 0
