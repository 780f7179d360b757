"""Programs that have one device together: whose turn it is on its multiprocessors, and what part of their time each has.

All that happens at one tick has happened when this is asked.  See `machine.tenancy` for the rules.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import links, sharing, sms
from gpusim.engine.fabric import limits, memory
from gpusim.engine.fabric.tables import ALWAYS, COMES, ENDED, LEAVES, MOVES, NOTHING_MOVES, SHEDS, TO_LAST_BLOCKS, WANTS, Fabric
from gpusim.engine.host.island import island_at
from gpusim.engine.state import BY_TURNS, FLOWS, NEVER, NO_WAY, WAITS, Island, Processes
from gpusim.trace.trace import COPY_IN, COPY_OUT, KERNEL

NOT_SOON = 1e18  # ns
NOTHING = 1e-9  # of a multiprocessor: what floats leave of it where all is given


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
    fabric.gpu[0].changed = 1
    fabric.seats[p].stale = 1
    island_at(many.rows[p].island).tenants[0].changed = 0
    if many.next[p] == NEVER:  # it may have come to its end
        many.next[p] = now


@outlined
def arbitrate(fabric: Fabric, many: Processes, now: int) -> None:
    """The multiprocessors pass to whom they are due now."""
    g = fabric.gpu[0]
    g.changed = 0
    if g.mode == BY_TURNS:
        take_turns(fabric, many, now)
    else:
        divide(fabric, many, now)


@outlined
def hand(many: Processes, p: int, part: float, now: int) -> None:
    """The p-th program has this part of the time of its multiprocessors from now on."""
    isl = island_at(many.rows[p].island)
    if isl.tenants[0].part != part:
        isl.clock[0].now = max(isl.clock[0].now, now)
        sms.take_part(isl, part)
        if isl.clock[0].unsettled:
            many.next[p] = now


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
def divide(fabric: Fabric, many: Processes, now: int) -> None:
    """MPS: each program's kernels lie evenly over the multiprocessors that its cap leaves it, the first ones."""
    best, equal, keeps, rank, since = NEVER, True, fabric.gpu[0].keeps, NEVER, NEVER
    for p in range(many.rows.size):
        seat = fabric.seats[p]
        if keeps == TO_LAST_BLOCKS:
            grow_older(seat, now)
        if many.rows[p].ended:
            seat.dense, seat.held, seat.kept, seat.rank = 0.0, 0.0, 0.0, NEVER
        elif seat.stale:
            weigh(seat, island_at(many.rows[p].island), keeps, now)
        if seat.dense > 0.0:
            best = min(best, seat.rank)
            if seat.came < NEVER and (seat.own < rank or (seat.own == rank and seat.came < since)):
                rank, since = seat.own, seat.came
        equal = equal and (seat.cap == fabric.seats[0].cap)
    before, level, paced = -1, 1.0, 0
    rank, since = line_up(fabric, rank, since)
    for p in range(many.rows.size):
        seat = fabric.seats[p]
        part = 1.0
        if many.rows[p].ended:
            continue
        if fabric.gpu[0].apart:
            seat.first = seat.dense
        elif seat.dense > 0.0 and not equal:
            kept = seat.kept if seat.rank > best or keeps else 0.0
            seat.first = max(kept, fair(fabric, 0, seat.rank, seat.since))
            part = part_of(fabric, p, kept)
        elif seat.dense > 0.0:  # there is one level for all of a rank
            if seat.rank > rank or (seat.rank == rank and seat.since > since):
                before, level = p, 0.0
            elif before < 0 or fabric.seats[before].rank != seat.rank or fabric.seats[before].since != seat.since:
                before, level = p, fair(fabric, 0, seat.rank, seat.since)
            seat.first = max(level, seat.kept) if seat.rank > best or keeps else level
            part = min(1.0, seat.first / seat.dense) if seat.first > 0.0 else 0.0
        if part != seat.part:
            look_at(seat, island_at(many.rows[p].island))
            if seat.flows and seat.part > 0.0 and part > 0.0:  # its kernels flow on, at another pace
                island_at(many.rows[p].island).tenants[0].part = part
            else:
                hand(many, p, part, now)
                seat.seen = 0
            seat.part = part
            paced = 1
    fabric.gpu[0].next = next_to_begin(fabric, now)
    if paced:
        fabric.gpu[0].paced = 1
        island_at(many.rows[0].island).fluid[0].reshare = 1


@kernel
def look_at(seat: Any, isl: Island) -> None:
    """What the program's kernels do."""
    if seat.seen == 0:
        seat.seen, seat.flows, seat.needs = 1, 1, sharing.needs(isl)
        for i in range(isl.clock[0].running):
            if isl.running[i].work != FLOWS:
                seat.flows = 0


@kernel
def weigh(seat: Any, isl: Island, keeps: int, now: int) -> None:
    """How much of each multiprocessor the program's kernels want, the rank of the best, and what those from before now keep."""
    seat.stale = 0
    seat.cap, seat.rank, seat.since, seat.gives = isl.devices[0].sms, NEVER, NEVER if keeps else 0, NOT_SOON
    wanted, held, older = 0, 0, 0
    for i in range(isl.clock[0].running):
        r = isl.running[i]
        seat.rank = min(seat.rank, r.priority)
        a = isl.activities[r.activity]
        if a.kind == KERNEL:
            mine = r.sms * (r.whole != 0 or keeps == ALWAYS or (keeps == TO_LAST_BLOCKS and has_to_begin(seat, r)))
            wanted += r.granted
            held += mine
            older += mine * (a.start < now)
            if mine > 0:
                seat.since = min(seat.since, a.start)
    seat.rank += seat.priority
    seat.own, seat.came = seat.rank, seat.since
    seat.dense, seat.held = wanted / seat.cap, min(held, seat.cap) / seat.cap
    seat.kept = min(seat.kept, older / seat.cap)


@kernel
def has_to_begin(seat: Any, r: Any) -> bool:
    """Blocks of the kernel have still to begin, which will be when its program has had so much more of the time."""
    if r.until < 0.0:
        r.until = seat.had + r.begins
    if r.until - seat.had <= links.SAME_INSTANT:
        return False
    seat.gives = min(seat.gives, r.until)
    return True


@kernel
def grow_older(seat: Any, now: int) -> None:
    """What the program has had of the time until now, by which the last blocks of a kernel may have begun."""
    seat.had += seat.part * (now - seat.at)
    seat.at = now
    if seat.gives - seat.had <= links.SAME_INSTANT:
        seat.stale = 1


@kernel
def line_up(fabric: Fabric, rank: int, since: int) -> Any:
    """Programs whose blocks have all begun share with the first of those that have blocks to begin, of this rank and arrival.

    Returns rank and arrival of the first program that wants all of each multiprocessor: nothing is left for those behind it.
    """
    fills, filled_at = NEVER, NEVER
    for p in range(fabric.seats.size):
        seat = fabric.seats[p]
        all_began = seat.came == NEVER
        seat.rank, seat.since = rank if all_began else seat.own, since if all_began else seat.came
        if seat.dense >= 1.0 and (seat.rank < fills or (seat.rank == fills and seat.since < filled_at)):
            fills, filled_at = seat.rank, seat.since
    return fills, filled_at


@kernel
def next_to_begin(fabric: Fabric, now: int) -> int:
    """When the last blocks of a kernel will have begun, while others wait; NEVER: none waits.  Notes what kernels keep."""
    soon, waits = NEVER, False
    for p in range(fabric.seats.size):
        seat = fabric.seats[p]
        seat.kept = min(seat.held, seat.first)
        if seat.dense > 0.0:
            waits = waits or seat.part < 1.0
            if seat.gives < NOT_SOON and seat.part > 0.0:
                soon = min(soon, now + max(1, math.ceil((seat.gives - seat.had) / seat.part - links.SAME_INSTANT)))
    return soon if waits else NEVER


@kernel
def part_of(fabric: Fabric, p: int, kept: float) -> float:
    """What the p-th program, whose kernels want something, gets of that over all multiprocessors of its cap.

    kept  share of each that better ones do not take
    """
    mine, at, total = fabric.seats[p], 0, 0.0
    while at < mine.cap:
        until = mine.cap
        for q in range(fabric.seats.size):
            if fabric.seats[q].cap > at:
                until = min(until, fabric.seats[q].cap)
        total += (until - at) * min(mine.dense, max(kept, fair(fabric, at, mine.rank, mine.since)))
        at = until
    return min(1.0, total / (mine.dense * mine.cap))


@kernel
def fair(fabric: Fabric, at: int, rank: int, since: int) -> float:
    """Of one multiprocessor what a program of this rank gets at most: better ones come first, equal ones share max-min.

    Worse ones leave only what their kernels do not keep.  Where kernels give way at their ends, those of a rank come in order
    of arrival: `since` is when the program's oldest kernel came.
    """
    room, wanting = 1.0, 0
    for q in range(fabric.seats.size):
        s = fabric.seats[q]
        if s.cap > at and s.dense > 0.0:
            before = s.rank < rank or (s.rank == rank and s.since < since)
            beside = s.rank == rank and s.since == since
            room -= s.dense if before else 0.0 if beside else s.kept
            wanting += beside
            if room <= NOTHING:
                return 0.0
    level, last = room / wanting if wanting > 0 else 1.0, 2.0
    while level != last:  # those that want less than the level have what they want
        last, left, sharing_it = level, room, wanting
        for q in range(fabric.seats.size):
            s = fabric.seats[q]
            beside = s.rank == rank and s.since == since
            if s.cap > at and s.dense > 0.0 and beside and s.dense < level:
                left -= s.dense
                sharing_it -= 1
        level = left / sharing_it if sharing_it > 0 else 1.0
    return level


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
