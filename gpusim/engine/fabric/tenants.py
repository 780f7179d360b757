"""Programs that have one device together: whose turn it is on its multiprocessors, and what part of their time each has.

All that happens at one tick has happened when this is asked.  See `machine.tenancy` for the rules.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import sharing, sms
from gpusim.engine.fabric.tables import BY_TURNS, Fabric
from gpusim.engine.host.island import island_at
from gpusim.engine.state import NEVER, Island, Processes
from gpusim.trace.trace import KERNEL


@kernel
def is_due(fabric: Fabric, now: int) -> bool:
    """What runs on the device has changed, or a turn is over."""
    return fabric.gpu[0].mode != 0 and (fabric.gpu[0].changed != 0 or fabric.gpu[0].next <= now)


@outlined
def arbitrate(fabric: Fabric, many: Processes, now: int) -> None:
    """The multiprocessors pass to whom they are due now."""
    g = fabric.gpu[0]
    g.changed = 0
    for p in range(many.rows.size):
        if many.rows[p].ended == 0:
            isl = island_at(many.rows[p].island)
            if isl.tenants[0].changed and many.next[p] == NEVER:  # it may have come to its end
                many.next[p] = now
            isl.tenants[0].changed = 0
            isl.clock[0].now = max(isl.clock[0].now, now)
    if g.mode == BY_TURNS:
        take_turns(fabric, many, now)
    else:
        divide(fabric, many, now)


@kernel
def hand(many: Processes, p: int, part: float, now: int) -> None:
    """The p-th program has this part of the time of its multiprocessors from now on."""
    isl = island_at(many.rows[p].island)
    if isl.tenants[0].part != part:
        sms.take_part(isl, part)
        many.next[p] = now


@kernel
def wants_turn(many: Processes, p: int) -> bool:
    return many.rows[p].ended == 0 and sms.busy(island_at(many.rows[p].island))


@kernel
def next_turn(fabric: Fabric, many: Processes) -> int:
    """The next place in the runlist whose program has something to run, the present one at last; -1: none has."""
    turns = fabric.turns.size
    for step in range(1, turns + 1):
        at = (fabric.gpu[0].turn + step) % turns
        if wants_turn(many, fabric.turns[at]):
            return at
    return -1


@kernel
def take_turns(fabric: Fabric, many: Processes, now: int) -> None:
    """Time slices: one program has the multiprocessors, or none while they pass to the next."""
    g = fabric.gpu[0]
    if g.switching:
        if now >= g.next:
            g.switching = 0
            begin_turn(fabric, many, now)
        return
    p = fabric.turns[g.turn] if g.turn >= 0 else -1
    if p >= 0 and now < g.next < NEVER and wants_turn(many, p):
        return
    turn = next_turn(fabric, many)
    if turn < 0:
        g.next = NEVER  # it stays where it is
        return
    to = fabric.turns[turn]
    g.turn = turn
    if p < 0 or to == p:
        begin_turn(fabric, many, now)
        return
    left = 0 if many.rows[p].ended else processors(island_at(many.rows[p].island))
    cost = g.fixed + g.of_a_processor * (left + processors(island_at(many.rows[to].island)))
    if many.rows[p].ended == 0:
        hand(many, p, 0.0, now)
    g.switches += 1
    g.switched += round(cost)
    if round(cost) > 0:
        g.switching, g.next = 1, now + round(cost)
    else:
        begin_turn(fabric, many, now)


@kernel
def begin_turn(fabric: Fabric, many: Processes, now: int) -> None:
    g = fabric.gpu[0]
    p = fabric.turns[g.turn]
    g.next = now + fabric.seats[p].slice
    if many.rows[p].ended == 0:
        hand(many, p, 1.0, now)


@kernel
def processors(isl: Island) -> int:
    """Multiprocessors that the program's kernels have."""
    total = 0
    for i in range(isl.clock[0].running):
        if isl.activities[isl.running[i].activity].kind == KERNEL:
            total += isl.running[i].granted
    return total


@kernel
def divide(fabric: Fabric, many: Processes, now: int) -> None:
    """MPS: all programs begin with the same multiprocessors; of each every program of the best priority has an equal part."""
    for p in range(many.rows.size):
        seat = fabric.seats[p]
        seat.has, seat.rank = 0, NEVER
        if many.rows[p].ended == 0:
            isl = island_at(many.rows[p].island)
            seat.has = processors(isl)
            for i in range(isl.clock[0].running):
                seat.rank = min(seat.rank, isl.running[i].priority)
            seat.rank += seat.priority
    for p in range(many.rows.size):
        if many.rows[p].ended == 0:
            hand(many, p, part_of(fabric, p), now)


@kernel
def part_of(fabric: Fabric, p: int) -> float:
    """Over the p-th program's multiprocessors the mean of 1 / programs there; those where a better one is count nothing."""
    mine, at, total = fabric.seats[p], 0, 0.0
    if mine.has == 0:
        return 1.0
    while at < mine.has:
        until, equal, better = mine.has, 0, 0
        for q in range(fabric.seats.size):
            s = fabric.seats[q]
            if s.has > at:
                until = min(until, s.has)
                equal += s.rank == mine.rank
                better += s.rank < mine.rank
        if better == 0:
            total += (until - at) / equal
        at = until
    return total / mine.has


@kernel
def share_memory(many: Processes) -> None:
    """All that run on the device share the bandwidth of its memory, where that does not suffice."""
    rows, total, tight = many.rows, 0.0, True
    for p in range(rows.size):
        if rows[p].ended == 0:
            isl = island_at(rows[p].island)
            total += sharing.demanded(isl)
            tight = tight and isl.clock[0].tight != 0
    first = island_at(rows[0].island)
    if first.devices[0].shares_memory and not tight and total > first.devices[0].bandwidth:
        for p in range(rows.size):
            if rows[p].ended == 0:
                sharing.slow_down(island_at(rows[p].island))
        first.fluid[0].reshare = 1
