"""Units that a lender of memory has leave it: copied to a tier further down, or dropped where they are on their device, too.

A lender waits for copies that move only.  A copy that has not started takes another way instead: its bytes go to that tier, or
come from there.  Nothing of this waits for a kernel, which may wait for the lender.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import lent, queues
from gpusim.engine.memory import lending, swaps
from gpusim.engine.state import SPARE, SWAP, Island, PolicyTables
from gpusim.results import log


@outlined
def call_back(isl: Island, pol: PolicyTables, u: int) -> bool:
    """The unit leaves the lent memory that it is in; False where it cannot."""
    unit, buffers = isl.units[u], pol.buffers[0]
    if queues.full(isl, isl.tenants[0].recalls):
        return False
    m, at = int(unit.tier), buffers.logged
    queues.record(isl, pol, log.DECIDE, u, log.CALLED_BACK, 0, unit.stored)
    fetch = unstarted(isl, unit.fetched_by, unit.fetched)
    if isl.flags[SPARE, u] == m and fetch < 0:
        given = swaps.drop_copy(isl, pol, u)
        counts_on(isl, given)
    else:
        to = tier_below(isl, pol, m, unit.stored)
        if to == 0:
            buffers.logged = at
            return False
        fall(isl, pol, u, m, to)
    isl.counts[0].recalls += 1
    if buffers.log_on:
        pol.log[at].addr = buffers.logged - at - 1
    return True


@kernel
def unstarted(isl: Island, q: int, count: int) -> int:
    """The row of the copy that is the count-th of queue q, while it has not started and will; else -1."""
    row = lending.pending(isl, q, count) if isl.queues[q].started < count else -1
    return row if row >= 0 and isl.activities[row].cancelled == 0 else -1


@kernel
def counts_on(isl: Island, given: int) -> None:
    """The lender waits for what the copy in row `given` - 1 gives back; 0: all is free already."""
    if given:
        x = isl.activities[given - 1]
        x.called = 1
        isl.accounts[x.gives_to].coming += x.gives


@kernel
def tier_below(isl: Island, pol: PolicyTables, m: int, size: int) -> int:
    """The nearest exclusive memory behind m that has room; 0: none."""
    for to in range(m + 1, isl.memories.size):
        if isl.memories[to].account < 0 and swaps.has_room(isl, pol, to, size):
            return to
    return 0


@outlined
def fall(isl: Island, pol: PolicyTables, u: int, m: int, to: int) -> None:
    """Its bytes go from lent memory m to tier `to`, and copies of it that have not started come from there or go there."""
    unit, tier, below = isl.units[u], isl.memories[m], isl.memories[to]
    sent = unstarted(isl, unit.sent_by, unit.sent)
    queues.record(isl, pol, log.PLACE, u, to, -1, unit.stored)
    if sent >= 0:
        tier.out -= unit.wire
        below.out += unit.wire
        isl.activities[sent].way = below.way_out
        queues.record(isl, pol, log.REDIRECT, u, to, isl.activities[sent].number, unit.wire)
    else:
        copy(isl, pol, u, m, to)
    if unit.fetched:
        come_from(isl, pol, tier.q_in, u, to, sent < 0)
        if tier.q_early != tier.q_in:
            come_from(isl, pol, tier.q_early, u, to, sent < 0)
    queues.record(isl, pol, log.UNPLACE, u, m, -1, unit.stored)
    if sent >= 0:
        lent.returned(isl, tier.account, unit.stored)
    move_books(isl, u, m, to)


@kernel
def copy(isl: Island, pol: PolicyTables, u: int, m: int, to: int) -> None:
    """Submit the copy from memory m to tier `to`: it waits for what moves to or from there, and for nothing else."""
    unit, tier, t = isl.units[u], isl.memories[m], isl.tenants[0]
    q = t.recalls
    way = tier.falls + isl.memories[to].own
    row = queues.submit(isl, q, SWAP, way, u, unit.wire, 0, isl.clock[0].now)
    x = isl.activities[row]
    x.due, x.gives, x.gives_to, x.called = isl.counts[0].op, unit.stored, tier.account, 1
    isl.accounts[tier.account].coming += unit.stored
    isl.need[row, unit.sent_by] = unit.sent
    if lending.pending(isl, unit.fetched_by, unit.fetched) >= 0:
        for k in (tier.q_in, tier.q_early):
            isl.need[row, k] = isl.queues[k].started
    count = isl.queues[q].submitted
    isl.after[u, q] = count
    unit.sent, unit.sent_by = count, q
    isl.counts[0].recall_bytes += unit.wire
    queues.record(isl, pol, log.COPY, u, m << 8 | to, x.number, unit.wire)


@kernel
def is_of(isl: Island, x: Any, u: int) -> bool:
    """The copy brings back what the unit has had in a lent memory since it last left the device."""
    return x.arg == u and x.cancelled == 0 and x.number > isl.units[u].sent_as


@kernel
def come_from(isl: Island, pol: PolicyTables, q: int, u: int, to: int, copied: bool) -> None:
    """Copies of the unit in queue q that have not started come from tier `to`, when what is copied there has arrived."""
    queue, tier, below = isl.queues[q], isl.memories[isl.units[u].tier], isl.memories[to]
    for i in range(queue.started, queue.submitted):
        row = queue.base + (i & queue.mask)
        x = isl.activities[row]
        if is_of(isl, x, u):
            x.way = below.way_in
            tier.into -= x.bytes
            below.into += x.bytes
            if copied:
                isl.need[row, isl.tenants[0].recalls] = isl.units[u].sent
            queues.record(isl, pol, log.REDIRECT, u, to << 8, x.number, x.bytes)


@kernel
def move_books(isl: Island, u: int, m: int, to: int) -> None:
    """The unit's copy below is that of tier `to` from now on."""
    unit, tier, below = isl.units[u], isl.memories[m], isl.memories[to]
    tier.used -= unit.stored
    below.used += unit.stored
    below.peak = max(below.peak, below.used)
    if isl.flags[SPARE, u]:
        tier.spare -= unit.stored
        below.spare += unit.stored
        isl.flags[SPARE, u] = to
    unit.tier = to
