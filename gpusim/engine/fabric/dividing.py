"""MPS: which part of the time of the multiprocessors each program has.  See `machine.tenancy` for the rules."""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import links, sharing, sms
from gpusim.engine.fabric.tables import ALWAYS, TO_LAST_BLOCKS, Fabric
from gpusim.engine.host.island import island_at
from gpusim.engine.state import FLOWS, NEVER, Island, Processes
from gpusim.trace.trace import KERNEL

NOT_SOON = 1e18  # ns
NOTHING = 1e-9  # of a multiprocessor: what floats leave of it where all is given


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
        level = max(last, left / sharing_it) if sharing_it > 0 else 1.0  # floats could go round in a circle
    return level
