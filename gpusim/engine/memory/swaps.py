"""Swaps: copies in the tiers below the device, and the moves to and from there."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import queues
from gpusim.engine.memory import blocks, host_memory, lending, prefetches
from gpusim.engine.memory import evicting as choice
from gpusim.engine.state import FROM_DEVICE, HOST_OUT_OF_MEMORY, N_EVICT, NEVER, SPARE, SWAP, WHERE, Island, PolicyTables
from gpusim.policies.contract import HOST, REMOTE
from gpusim.results import log


@outlined
def drop_copy(isl: Island, pol: PolicyTables, u: int) -> int:
    """The tier below gives up its copy of a unit; returns what `lending.give_back` does, 0 of a tier of its own."""
    given = 0
    unit, tier = isl.units[u], isl.memories[isl.units[u].tier]
    tier.used -= unit.stored
    isl.tenants[0].below -= unit.stored
    if isl.flags[SPARE, u]:
        isl.flags[SPARE, u] = 0
        tier.spare -= unit.stored
    queues.record(isl, pol, log.UNPLACE, u, unit.tier, -1, unit.stored)
    host_memory.give_back(isl, unit.tier, unit.stored)
    if tier.account >= 0:
        given = lending.give_back(isl, u, unit.tier, unit.stored)
    unit.tier = 0
    return given


@outlined
def has_room(isl: Island, pol: PolicyTables, m: int, size: int) -> bool:
    """Make room in tier m by dropping copies of units that are on the device too; clock order, amortised O(1)."""
    tier = isl.memories[m]
    if tier.account >= 0:
        return lender_has_room(isl, pol, m, size)
    if tier.used - tier.spare + size > tier.capacity:
        return False
    u, units, spare = tier.hand, isl.units.size, isl.flags[SPARE]
    while tier.used + size > tier.capacity:
        if spare[u] == m:
            drop_copy(isl, pol, u)
        u += 1
        if u == units:
            u = 0
    tier.hand = u
    return True


@outlined
def lender_has_room(isl: Island, pol: PolicyTables, m: int, size: int) -> bool:
    """The same in memory that others use: what is dropped there may be free only when copies under way have ended."""
    tier, u, units, spare = isl.memories[m], isl.memories[m].hand, isl.units.size, isl.flags[SPARE]
    if lending.room(isl, m) + tier.spare < size:
        return False
    while lending.room(isl, m) < size and tier.spare > 0:
        if spare[u] == m:
            drop_copy(isl, pol, u)
        u += 1
        if u == units:
            u = 0
    tier.hand = u
    return lending.room(isl, m) >= size


@kernel
def memory_for(isl: Island, pol: PolicyTables, u: int, to: int) -> int:
    """The memory below that takes the unit in: `to`, or for 0 the pool policy's, or the nearest with room; 0: none."""
    t, size, m = isl.tenants[0], isl.units[u].stored, max(1, to)
    if to == 0 and pol.rules[0].pool:
        m = lending.choose(isl, pol, u)
        if m and has_room(isl, pol, m, size):
            return m
        m = 1
    while not has_room(isl, pol, m, size):
        t.full = m
        m += 1
        if to or m == isl.memories.size:
            return 0
    return m


@kernel
def rank_of(isl: Island, waiting: int) -> int:
    """The log's flag of a copy that nothing waits for yet, where such copies have queues of their own."""
    return 1 << 16 if waiting and isl.tenants[0].ranked else 0


@kernel
def evict(isl: Island, pol: PolicyTables, h: Any, u: int, to: int, late: int) -> int:
    """Swap a unit out: copy it to tier `to` (0: the nearest with room) unless a valid copy is below.

    late: nothing waits for its block yet.  Returns 0 or HOST_OUT_OF_MEMORY.
    """
    c, t, n = isl.clock[0], isl.tenants[0], isl.counts[0]
    unit = isl.units[u]
    q, copied = -1, 0
    if unit.brought:
        prefetches.give_up(isl, pol, u)
    if unit.tier or not unit.data:
        n.clean_drops += 1
        isl.memories[unit.tier].spare -= unit.stored
        isl.flags[SPARE, u] = 0
        queues.record(isl, pol, log.DROP, u, 0, unit.addr, unit.block)
    else:
        m = memory_for(isl, pol, u, to)
        if m == 0:
            return HOST_OUT_OF_MEMORY
        tier = isl.memories[m]
        host_memory.take(isl, m, unit.stored)
        lending.take(isl, u, m, unit.stored)
        q = tier.q_late if late else tier.q_out
        row = queues.submit(isl, q, SWAP, tier.way_out, u, unit.wire, 0, c.now + h.had)
        isl.activities[row].due = NEVER if late else n.op
        queues.wait_for(isl, row, isl.use[u])
        queues.wait_for(isl, row, isl.after[u])
        copied = isl.queues[q].submitted
        unit.sent, unit.sent_by, unit.sent_as, unit.fetched = copied, q, isl.activities[row].number, 0
        h.time += h.submit_ns
        isl.use[u, q] = copied
        unit.tier = m
        tier.used += unit.stored
        tier.peak = max(tier.peak, tier.used)
        tier.out += unit.wire
        t.below += unit.stored
        n.swap_outs += 1
        n.d2h_bytes += unit.wire
        queues.stage(isl, h, m, q, copied)
        queues.record(isl, pol, log.PLACE, u, m, -1, unit.stored)
        queues.record(isl, pol, log.COPY, u, rank_of(isl, late) | m, isl.activities[row].number, unit.wire)
    choice.tell(isl, pol, N_EVICT, u)
    blocks.give_back(isl, pol, h, u, isl.units[u].stream)
    isl.flags[WHERE, u] = HOST
    for k in range(c.queues):
        isl.use[u, k] = 0
        if isl.queues[k].role != FROM_DEVICE:
            isl.after[u, k] = 0
    if copied:
        isl.after[u, q] = copied  # it can come back only when it has arrived there
    return 0


@outlined
def settle(isl: Island, pol: PolicyTables, u: int) -> int:
    """The unit begins in the nearest tier, where it stays.  Returns 0 or HOST_OUT_OF_MEMORY."""
    t, unit, tier = isl.tenants[0], isl.units[u], isl.memories[1]
    if not has_room(isl, pol, 1, unit.stored):
        t.full, t.request, t.request_bytes = 1, u, unit.stored
        return HOST_OUT_OF_MEMORY
    host_memory.take(isl, 1, unit.stored)
    unit.tier = 1
    tier.used += unit.stored
    tier.peak = max(tier.peak, tier.used)
    t.below += unit.stored
    isl.flags[WHERE, u] = REMOTE
    queues.record(isl, pol, log.PLACE, u, 1, -1, unit.stored)
    return 0


@outlined
def send_away(isl: Island, pol: PolicyTables, h: Any, u: int, to: int) -> int:
    """Evict a unit whose block nothing waits for yet."""
    return evict(isl, pol, h, u, to, 1)


@kernel
def fetch(isl: Island, pol: PolicyTables, h: Any, u: int, early: int) -> None:
    """Copy a unit that has just been placed in from the tier that holds it; early: no kernel has asked for it yet."""
    c, n = isl.clock[0], isl.counts[0]
    unit = isl.units[u]
    m = int(unit.tier)  # a byte would lose what is shifted out of it
    tier = isl.memories[m]
    q = tier.q_early if early else tier.q_in
    row = queues.submit(isl, q, SWAP, tier.way_in, u, unit.wire, 0, c.now + h.had)
    isl.activities[row].due = NEVER if early else n.op
    queues.wait_for(isl, row, isl.after[u])
    count = isl.queues[q].submitted
    isl.after[u, q] = count
    isl.use[u, q] = count
    unit.fetched, unit.fetched_by = count, q
    h.time += h.submit_ns
    tier.into += unit.wire
    tier.spare += unit.stored
    isl.flags[SPARE, u] = m
    n.swap_ins += 1
    n.h2d_bytes += unit.wire
    queues.stage(isl, h, m, q, count)
    queues.record(isl, pol, log.COPY, u, rank_of(isl, early) | m << 8, isl.activities[row].number, unit.wire)
    if early:
        n.prefetches += 1
        unit.brought, unit.brought_by = count, q
