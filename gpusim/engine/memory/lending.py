"""Memory of other devices: what it has room for, which of it takes a unit in, and when its bytes are free again.

A lender's account is one table for all programs of a machine, so that each reads at its own time what is free at that time.
Bytes are lent from the moment on at which a copy there is promised, and free when the last copy under way to or from them ends.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import lent
from gpusim.engine.clock.records import record
from gpusim.engine.state import CALLING, Island, PolicyTables
from gpusim.engine.verbs import V_FREE, V_LARGEST, V_POOL, as_free, as_largest, as_pool
from gpusim.policies.contract import CALLS, CAPACITY
from gpusim.results import log


@kernel
def room(isl: Island, m: int) -> int:
    """Bytes of lent memory m that are free now."""
    a = isl.accounts[isl.memories[m].account]
    return min(a.lends - a.lent, a.capacity - a.held - a.lent)


@kernel
def take(isl: Island, u: int, m: int, size: int) -> None:
    """Memory m takes a copy of the unit in; where others use it, too, its lender is told."""
    tier = isl.memories[m]
    if tier.account >= 0:
        a = isl.accounts[tier.account]
        a.lent += size
        a.peak = max(a.peak, a.lent)
        tier.given += 1
        isl.units[u].lent = isl.clock[0].now


@outlined
def give_back(isl: Island, u: int, m: int, size: int) -> int:
    """The copy in a lender's memory is given up; returns 0, or 1 + the row of the copy under way after which it is free."""
    unit, tier, account = isl.units[u], isl.memories[m], isl.memories[m].account
    row = pending(isl, unit.fetched_by, unit.fetched)
    if row < 0 or isl.activities[row].cancelled:
        row = max(moving(isl, tier.q_in, u), moving(isl, tier.q_early, u))
    if row < 0:
        row = pending(isl, unit.sent_by, unit.sent)
    if row < 0:
        lent.returned(isl, account, size)
        return 0
    isl.activities[row].gives, isl.activities[row].gives_to = size, account
    return row + 1


@kernel
def pending(isl: Island, q: int, count: int) -> int:
    """The row of the copy that is the count-th of queue q, while it has not ended; else -1."""
    queue = isl.queues[q]
    return queue.base + ((count - 1) & queue.mask) if queue.done < count else -1


@kernel
def moving(isl: Island, q: int, u: int) -> int:
    """The row of a copy in queue q that brings back what the unit has in a lent memory, while it moves; else -1."""
    queue, row = isl.queues[q], -1
    for i in range(queue.done, queue.started):
        x = isl.activities[queue.base + (i & queue.mask)]
        if x.arg == u and x.done == 0 and x.number > isl.units[u].sent_as:
            row = queue.base + (i & queue.mask)
    return row


@kernel
def book(isl: Island, held: int) -> None:
    """What the allocator of this device holds now; what it gives back is in use until the device is idle."""
    t = isl.tenants[0]
    a = isl.accounts[t.account]
    a.booked = held
    a.held = max(a.held, held) if t.drain else held


@kernel
def of_device(size: int) -> int:
    """Bytes that an allocator takes from the device at least for a block."""
    return (size + 511) // 512 * 512


@outlined
def lacks(isl: Island, pol: PolicyTables, u: int) -> bool:
    """The allocator would have to take memory that is lent for the unit's block; it knows how much is not."""
    t, size = isl.tenants[0], of_device(isl.units[u].size)
    a = isl.accounts[t.account]
    a.program = t.program
    pol.place[CAPACITY] = a.capacity - a.lent
    if a.lent == 0 or size <= a.capacity - a.lent - a.booked:
        return False
    return size > as_largest(pol.verbs[V_LARGEST, 0], pol.verbs[V_LARGEST, 1])(pol.place)


@outlined
def undo(pol: PolicyTables, u: int, stream: int) -> int:
    """Of an allocator that goes by addresses, the block that it has taken is one too many; returns -1, as of no block."""
    as_free(pol.verbs[V_FREE, 0], pol.verbs[V_FREE, 1])(pol.place, u, stream)
    pol.place[CALLS] = 0
    return -1


@outlined
def calls(isl: Island, pol: PolicyTables, h: Any, u: int) -> bool:
    """What others have of this device's memory has to leave for the unit's block: True when the host waits for that."""
    t, size = isl.tenants[0], of_device(isl.units[u].size)
    a = isl.accounts[t.account]
    left = a.capacity - a.lent - a.booked
    if a.lent == 0 or h.unlent:
        return False
    a.wanted = max(size, left + 1)
    a.asked = isl.fluid[0].calls = isl.fluid[0].reshare = 1
    h.state, t.request = CALLING, u
    record(isl, pol, log.DECIDE, u, log.WANTS, -1, a.wanted)
    return True


@outlined
def choose(isl: Island, pol: PolicyTables, u: int) -> int:
    """The memory with room for the unit that the pool policy scores lowest, of equal ones the nearest; 0: none."""
    best, least, size = 0, math.inf, isl.units[u].stored
    for m in range(1, isl.memories.size):
        tier = isl.memories[m]
        free = room(isl, m) if tier.account >= 0 else tier.capacity - tier.used + tier.spare
        if free >= size:
            score = score_of(isl, pol, u, m, free)
            if score < least:
                best, least = m, score
    return best


@kernel
def score_of(isl: Island, pol: PolicyTables, u: int, m: int, free: int) -> float:
    """How little the pool policy wants the unit in memory m, `free` bytes of which are; facts in the order of POOL_FACTS."""
    unit, tier, t = isl.units[u], isl.memories[m], isl.tenants[0]
    into, out = isl.ways[tier.way_in], isl.ways[tier.way_out]
    facts = pol.pool_facts
    facts[0] = unit.stored
    facts[1] = unit.next - t.program
    facts[2] = tier.place
    facts[3] = free
    facts[4] = tier.capacity if tier.account < 0 else isl.accounts[tier.account].capacity
    facts[5] = tier.used
    facts[6] = tier.given
    facts[7] = out.latency + unit.wire / out.rate
    facts[8] = into.latency + unit.wire / into.rate
    facts[9] = tier.far
    facts[10] = 1.0 if tier.account >= 0 else 0.0
    facts[11] = coming_room(isl, m, unit.next - t.program) if tier.account >= 0 else float(free)
    return as_pool(pol.verbs[V_POOL, 0], pol.verbs[V_POOL, 1])(facts, pol.pool_params)


@kernel
def coming_room(isl: Island, m: int, span: float) -> float:
    """Bytes that a lender's own program leaves at least in the next so many ns of program time, others' bytes aside."""
    k = isl.memories[m].account
    a, most = isl.accounts[k], 0
    if a.process < 0:
        return float(room(isl, m))
    first, columns = int(a.program / a.bucket), isl.ahead.shape[1]
    last = columns - 1 if (a.program + span) / a.bucket >= columns else int((a.program + span) / a.bucket)
    for i in range(min(first, columns - 1), last + 1):
        most = max(most, isl.ahead[k, i])
    return float(min(a.lends - a.lent, a.capacity - most - a.lent))
