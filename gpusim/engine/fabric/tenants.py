"""Programs that have one device together: whose turn it is on its multiprocessors, and what part of their time each has.

All that happens at one tick has happened when this is asked.  See `machine.tenancy` for the rules.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import links, sharing, sms
from gpusim.engine.fabric import limits, memory
from gpusim.engine.fabric.dividing import divide, hand, look_at, waits_in_line
from gpusim.engine.fabric.tables import COMES, ENDED, LEAVES, MOVES, NOTHING_MOVES, SEAT_OF, SHEDS, WANTS, Fabric
from gpusim.engine.host.island import island_at
from gpusim.engine.state import BY_TURNS, NEVER, WAITS, Island, Processes
from gpusim.trace.trace import COPY_IN, COPY_OUT, KERNEL


@kernel
def is_due(fabric: Fabric, now: int) -> bool:
    """What runs on the device has changed, or a turn is over."""
    return fabric.gpu[0].mode != 0 and (fabric.gpu[0].changed != 0 or fabric.gpu[0].next <= now)


@kernel
def next_change(fabric: Fabric, now: int) -> int:
    """When the multiprocessors may pass to others next: at once where something has changed that was not looked at, ns."""
    g = fabric.gpu[0]
    return now if g.mode != 0 and g.changed != 0 else int(g.next)


@kernel
def note_change(fabric: Fabric, many: Processes, p: int, now: int) -> None:
    """What the p-th program runs or wants has changed."""
    g = fabric.gpu[0]
    g.changed = SEAT_OF + p if g.changed == 0 or g.changed == SEAT_OF + p else 1
    fabric.seats[p].stale = 1
    island_at(many.rows[p].island).tenants[0].changed = 0
    if many.next[p] == NEVER:  # it may have come to its end
        many.next[p] = now


@outlined
def arbitrate(fabric: Fabric, many: Processes, now: int) -> None:
    """The multiprocessors pass to the tenant to which they are due now."""
    g = fabric.gpu[0]
    only = g.changed - SEAT_OF
    g.changed = 0
    if g.mode == BY_TURNS:
        take_turns(fabric, many, now)
    elif only < 0 or now >= g.soon or not waits_in_line(fabric, many, only, now):
        divide(fabric, many, now)


@kernel
def wants_turn(many: Processes, p: int, now: int) -> bool:
    return many.rows[p].ended == 0 and sms.busy(island_at(many.rows[p].island), now)


@kernel
def stands(many: Processes, p: int) -> bool:
    """A kernel of the p-th program waits for page faults."""
    found = False
    if many.rows[p].ended == 0:
        isl = island_at(many.rows[p].island)
        for i in range(isl.clock[0].running):
            found = found or isl.running[i].work == WAITS
    return found


@kernel
def next_turn(fabric: Fabric, many: Processes, now: int) -> int:
    """The next place in the runlist whose program has something to run, the present one at last; -1: none has."""
    turns = fabric.turns.size
    for step in range(1, turns + 1):
        at = (fabric.gpu[0].turn + step) % turns
        if wants_turn(many, fabric.turns[at], now):
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
    if g.asks:
        if g.moving == NOTHING_MOVES:
            look(fabric, many, now)
        elif g.moving == SHEDS:
            shed(fabric, many, now)
        return
    p = fabric.turns[g.turn] if g.turn >= 0 else -1
    if p >= 0 and now < g.next < NEVER and wants_turn(many, p, now):
        return
    turn = next_turn(fabric, many, now)
    if turn < 0:
        g.next = NEVER  # it stays where it is
        return
    if p >= 0 and fabric.turns[turn] != p and stands(many, p):
        hand(many, p, 0.0, now)  # nothing new faults; what has is served before the state can be saved
        g.next = NEVER
        return
    give(fabric, many, turn, now)


@kernel
def look(fabric: Fabric, many: Processes, now: int) -> None:
    """The policy is asked when the turn is over, when another set of programs has something to run, and when one has ended."""
    g = fabric.gpu[0]
    p = fabric.turns[g.turn] if g.turn >= 0 else -1
    over, some, other = p >= 0 and (now >= g.next or passes(fabric.seats[p].stop, many, p)), False, False
    for q in range(many.rows.size):
        is_now = state_of(many, q, now)
        some = some or is_now == WANTS
        other = other or is_now != fabric.seats[q].wanted
    if over:
        g.next = NEVER
        g.over = 1
    if some and (over or other):
        g.asking = 1
    if g.asking or not some:
        for q in range(many.rows.size):
            fabric.seats[q].wanted = state_of(many, q, now)


@kernel
def state_of(many: Processes, p: int, now: int) -> int:
    """Whether the p-th program has something to run."""
    return ENDED if many.rows[p].ended else int(wants_turn(many, p, now))


@kernel
def passes(stop: int, many: Processes, p: int) -> bool:
    """A kernel of the p-th program runs that is this operator or a later one; stop: 0, there is none."""
    found = False
    if stop > 0 and many.rows[p].ended == 0:
        isl = island_at(many.rows[p].island)
        for i in range(isl.clock[0].running):
            a = isl.activities[isl.running[i].activity]
            found = found or (a.kind == KERNEL and a.arg >= stop)
    return found


@outlined
def order(fabric: Fabric, many: Processes, now: int) -> None:
    """The policy has given the GPU to a program: others come down to new limits, memory leaves, its own comes back."""
    g = fabric.gpu[0]
    g.to, g.ordered = g.ordered - 1, 0
    g.next, g.moving = NEVER, SHEDS
    limits.lower(fabric, many)
    shed(fabric, many, now)


@outlined
def shed(fabric: Fabric, many: Processes, now: int) -> None:
    """Programs above their limits have the GPU, as what they evict waits for their kernels; then memory moves as a whole."""
    g = fabric.gpu[0]
    to, q = g.to, limits.shedding(fabric, many)
    if q >= 0:
        if g.turn != q:
            give(fabric, many, q, now)
        return
    limits.grow(fabric, many)
    if g.turn == to and fabric.seats[to].come == 0:
        g.moving = NOTHING_MOVES
        g.over = 0
        g.next = now + fabric.seats[to].slice
        hand(many, to, 1.0, now)
        return
    if g.turn >= 0 and many.rows[g.turn].ended == 0:
        hand(many, g.turn, 0.0, now)
        if g.turn != to and stands(many, g.turn):
            return
    g.moving = LEAVES
    move(fabric, many, to, now)


@kernel
def move(fabric: Fabric, many: Processes, to: int, now: int) -> None:
    """All that leaves at once, or what comes back, as one copy over the link of the device; then the turn begins."""
    g, size = fabric.gpu[0], 0
    one = island_at(many.rows[to].island)
    if g.moving == LEAVES:
        for q in range(many.rows.size):
            size += fabric.seats[q].leave
            fabric.seats[q].leave = 0
        if size == 0:
            g.moving = COMES
    if g.moving == COMES:
        size = fabric.seats[to].come
        fabric.seats[to].come = 0
    if size == 0:
        g.moving = NOTHING_MOVES
        give(fabric, many, to, now)
        return
    way = one.ways[COPY_OUT if g.moving == LEAVES else COPY_IN]
    links.catch_up_to(one, now)
    x = links.put(one, -1, to, MOVES, float(size), way.rate)
    x.route, x.route_end, x.passes = way.route, way.route_end, 0


@kernel
def moved(fabric: Fabric, many: Processes, to: int, now: int) -> None:
    """Memory has left, or has come back, for the turn of this program."""
    g = fabric.gpu[0]
    g.moving = COMES if g.moving == LEAVES else NOTHING_MOVES
    move(fabric, many, to, now)


@kernel
def give(fabric: Fabric, many: Processes, turn: int, now: int) -> None:
    """The multiprocessors pass to the program at this place of the runlist."""
    g = fabric.gpu[0]
    p = fabric.turns[g.turn] if g.turn >= 0 else -1
    to = fabric.turns[turn]
    g.turn = turn
    g.over = 0
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
    g.next = now + fabric.seats[p].slice if g.moving != SHEDS else NEVER
    fabric.seats[p].began = now
    for step in range(fabric.turns.size - 1, -1, -1):
        fabric.away[fabric.turns[(g.turn + step) % fabric.turns.size]] = step
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
def needs(fabric: Fabric, many: Processes) -> float:
    """What kernels that are no flows take of the memory's bandwidth, bytes/ns."""
    rows, total = many.rows, 0.0
    for p in range(rows.size):
        if rows[p].ended == 0:
            look_at(fabric.seats[p], island_at(rows[p].island))
            total += fabric.seats[p].needs
    return total


@kernel
def share_memory(fabric: Fabric, many: Processes) -> None:
    """All that run on the device share the bandwidth of its memory, where that does not suffice."""
    rows = many.rows
    first = island_at(rows[0].island)
    if first.devices[0].shares_memory == 0:
        return
    total = needs(fabric, many)
    for f in range(first.fluid[0].flows):
        x = first.flow[f]
        if x.process >= 0 and rows[x.process].ended == 0:
            total += x.rate * x.passes
    if fabric.gpu[0].tight == 0 and total > first.devices[0].bandwidth:
        fabric.gpu[0].tight = 1
        for p in range(rows.size):
            if rows[p].ended == 0:
                fabric.seats[p].seen = 0
                sharing.slow_down(island_at(rows[p].island))
        memory.pass_memory(many)
        first.fluid[0].reshare = 1
