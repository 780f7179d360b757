"""MPS: which part of the time of the multiprocessors each program has.  See `machine.tenancy` for the rules.

Each start and end of a kernel asks for that.  What differs from program to program is chosen without branches, which the
processor could not foresee.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import links, sharing, sms
from gpusim.engine.fabric.tables import ALWAYS, TO_LAST_BLOCKS, Fabric
from gpusim.engine.host.island import island_at
from gpusim.engine.state import FLOWS, NEVER, RUNNING, Island, Processes
from gpusim.trace.trace import KERNEL

NOT_SOON = 1e18  # ns
NOTHING = 1e-9  # of a multiprocessor: what floats leave of it where all is given


@kernel
def divide(fabric: Fabric, many: Processes, now: int) -> None:
    """MPS: each program's kernels lie evenly over the multiprocessors that its cap leaves it, the first ones."""
    g, seats, rows = fabric.gpu[0], fabric.seats, many.rows
    best, equal, keeps, rank, since = NEVER, True, g.keeps, NEVER, NEVER
    for p in range(rows.size):
        seat = seats[p]
        seat.kept = min(seat.held, seat.first)
        if seat.stale or seat.soon <= now:
            seat.stale = 1
            if rows[p].ended:
                seat.dense, seat.held, seat.kept, seat.came, seat.soon = 0.0, 0.0, 0.0, NEVER, NEVER
            else:
                weigh(seat, island_at(rows[p].island), keeps, now)
        own, came, wants = seat.own, seat.came, seat.dense > 0.0
        best = min(best, seat.rank if wants else NEVER)
        first = wants & (came < NEVER) & ((own < rank) | ((own == rank) & (came < since)))
        rank, since = own if first else rank, came if first else since
        equal &= seat.cap == seats[0].cap
    before, level, paced, soon, waits = -1, 1.0, 0, NEVER, False
    rank, since = line_up(fabric, rank, since)
    for p in range(rows.size):
        seat = seats[p]
        part = 1.0
        if rows[p].ended:
            continue
        if g.apart:
            seat.first = seat.dense
        elif seat.dense > 0.0 and not equal:
            kept = seat.kept if seat.rank > best or keeps else 0.0
            seat.first = max(kept, fair(fabric, 0, seat.rank, seat.since))
            part = part_of(fabric, p, kept)
        elif seat.dense > 0.0:  # there is one level for all of a rank
            if seat.rank > rank or (seat.rank == rank and seat.since > since):
                before, level = p, 0.0
            elif before < 0 or seats[before].rank != seat.rank or seats[before].since != seat.since:
                before, level = p, fair(fabric, 0, seat.rank, seat.since)
            seat.first = max(level, seat.kept) if seat.rank > best or keeps else level
            part = min(1.0, seat.first / seat.dense) if seat.first > 0.0 else 0.0
        if seat.stale or part != seat.part:
            grow_older(seat, now)
            seat.stale, seat.soon = 0, last_blocks(seat, part, now)
        soon = min(soon, seat.soon)
        waits |= part < 1.0
        if part != seat.part:
            look_at(seat, island_at(rows[p].island))
            if seat.flows and seat.part > 0.0 and part > 0.0:  # its kernels flow on, at another pace
                island_at(rows[p].island).tenants[0].part = part
            else:
                hand(many, p, part, now)
                seat.seen = 0
            seat.part = part
            paced = 1
    g.soon, g.next = soon, soon if waits else NEVER
    g.fills, g.filled = (rank, since) if equal and not g.apart else (NEVER, NEVER)
    if paced:
        g.paced = 1
        island_at(rows[0].island).fluid[0].reshare = 1


@kernel
def waits_in_line(fabric: Fabric, many: Processes, p: int, now: int) -> bool:
    """The p-th program ran nothing, and its kernel now comes behind one that takes all: it has no part, others keep theirs."""
    g, seat = fabric.gpu[0], fabric.seats[p]
    if many.rows[p].ended or seat.dense > 0.0 or g.fills == NEVER:
        return False
    weigh(seat, island_at(many.rows[p].island), g.keeps, now)
    behind = seat.own > g.fills or (seat.own == g.fills and seat.came > g.filled)
    if seat.dense == 0.0 or seat.came == NEVER or not behind:
        return False
    hand(many, p, 0.0, now)
    seat.first, seat.part, seat.seen, seat.stale, seat.soon = 0.0, 0.0, 0, 0, NEVER
    g.next = g.soon
    return True


@outlined
def hand(many: Processes, p: int, part: float, now: int) -> None:
    """The p-th program has this part of the time of its multiprocessors from now on."""
    isl = island_at(many.rows[p].island)
    if isl.tenants[0].part != part:
        isl.clock[0].now = max(isl.clock[0].now, now)
        sms.take_part(isl, part)
        if isl.clock[0].unsettled:
            many.next[p] = now
        elif now < many.next[p] < NEVER:  # what it was to see next may be no event any more
            many.next[p] = next_step(isl)


@kernel
def next_step(isl: Island) -> int:
    """When the program's device or one of its hosts does something next, but for what flows; NEVER: neither does."""
    at = isl.heap[0].time if isl.clock[0].events > 0 else NEVER
    for i in range(isl.hosts.size):
        if isl.hosts[i].state == RUNNING:
            at = min(at, isl.hosts[i].time)
    return at


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
    grow_older(seat, now)
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
    seat.first = seat.kept = min(seat.kept, older / seat.cap)  # until all is divided


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
    """What the program has had of the time until now."""
    seat.had += seat.part * (now - seat.at)
    seat.at = now


@kernel
def last_blocks(seat: Any, part: float, now: int) -> int:
    """When the last blocks of one of its kernels will have begun that still have to, if it has this part of the time, ns."""
    if seat.gives == NOT_SOON or part == 0.0:
        return NEVER
    return now + max(1, math.ceil((seat.gives - seat.had) / part - links.SAME_INSTANT))


@kernel
def line_up(fabric: Fabric, rank: int, since: int) -> Any:
    """Programs whose blocks have all begun share with the first of those that have blocks to begin, of this rank and arrival.

    Returns rank and arrival of the first program that wants all of each multiprocessor: nothing is left for those behind it.
    """
    seats, fills, filled_at = fabric.seats, NEVER, NEVER
    for p in range(seats.size):
        seat = seats[p]
        all_began = seat.came == NEVER
        own, came = rank if all_began else seat.own, since if all_began else seat.came
        seat.rank, seat.since = own, came
        first = (seat.dense >= 1.0) & ((own < fills) | ((own == fills) & (came < filled_at)))
        fills, filled_at = own if first else fills, came if first else filled_at
    return fills, filled_at


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
    seats, room, wanting, least = fabric.seats, 1.0, 0, 2.0
    for q in range(seats.size):
        s = seats[q]
        dense, kept = s.dense, s.kept
        wants = (s.cap > at) & (dense > 0.0)
        before = (s.rank < rank) | ((s.rank == rank) & (s.since < since))
        beside = wants & (s.rank == rank) & (s.since == since)
        takes = dense if before else kept
        room -= takes if wants and not beside else 0.0
        wanting += beside
        least = min(least, dense if beside else 2.0)
    if room <= NOTHING:
        return 0.0
    level, last = room / wanting if wanting > 0 else 1.0, 2.0
    if level <= least or wanting == 1:  # none of them wants less, or the only one does
        return level if level <= least else 1.0
    while level != last:  # those that want less than the level have what they want
        last, left, sharing_it = level, room, wanting
        for q in range(seats.size):
            s = seats[q]
            beside = s.rank == rank and s.since == since
            if s.cap > at and s.dense > 0.0 and beside and s.dense < level:
                left -= s.dense
                sharing_it -= 1
        level = max(last, left / sharing_it) if sharing_it > 0 else 1.0  # floats could go round in a circle
    return level
