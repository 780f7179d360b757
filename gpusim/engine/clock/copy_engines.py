"""Copy engines: swaps and the program's own copies take turns in their slots, in the order in which they come.

An activity comes when it is the first of its queue and all that it waits for is done; of several at one time the one that was
submitted first.  A slot is given when everything else of that time has happened, and is held from start to end.  Swaps that
operators wait for and those that none does have queues of their own: both stand in line, and whenever it is the turn of one
of the two, the one that is due earlier goes.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.state import FROM_DEVICE, SWAP, TO_DEVICE, Island
from gpusim.trace.trace import COPY_IN, COPY_OUT


@kernel
def engine_of(queue: Any, a: Any) -> int:
    """The engine, by direction, in which the activity takes its turn; 0: none."""
    if a.kind == SWAP:
        return int(queue.engine)
    if a.kind == COPY_IN:
        return TO_DEVICE
    if a.kind == COPY_OUT:
        return FROM_DEVICE
    return 0


@kernel
def first_of(isl: Island, q: int) -> Any:
    """The first activity of a queue."""
    queue = isl.queues[q]
    return isl.activities[queue.base + (queue.started & queue.mask)]


@kernel
def may_start(isl: Island, q: int, a: Any) -> bool:
    """The first of queue q needs no slot, or has one; otherwise it stands in line from now on."""
    queue = isl.queues[q]
    direction = engine_of(queue, a)
    if direction and queue.granted == 0:
        if queue.line == 0:
            stand(isl, q, direction)
        return False
    return True


@outlined
def stand(isl: Island, q: int, direction: int) -> None:
    """Queue q comes: it stands in line behind all but those that came now and were submitted later."""
    c, queue, engine = isl.clock[0], isl.queues[q], isl.engines[direction]
    number, before = first_of(isl, q).number, engine.last
    while before and isl.queues[before - 1].came == c.now and first_of(isl, before - 1).number > number:
        before = isl.queues[before - 1].ahead
    queue.came = c.now
    enter(isl, q, direction, before)
    c.dealing |= engine.running < engine.slots


@outlined
def enter(isl: Island, q: int, direction: int, before: int) -> None:
    """Queue q stands in line behind queue `before - 1`, 0: in front of all."""
    queue, engine = isl.queues[q], isl.engines[direction]
    queue.line, queue.ahead = direction, before
    queue.next_in_line = isl.queues[before - 1].next_in_line if before else engine.first
    if queue.ahead:
        isl.queues[queue.ahead - 1].next_in_line = q + 1
    else:
        engine.first = q + 1
    if queue.next_in_line:
        isl.queues[queue.next_in_line - 1].ahead = q + 1
    else:
        engine.last = q + 1


@outlined
def leave(isl: Island, q: int) -> None:
    """Queue q stands in line no more."""
    queue = isl.queues[q]
    engine = isl.engines[queue.line]
    if queue.ahead:
        isl.queues[queue.ahead - 1].next_in_line = queue.next_in_line
    else:
        engine.first = queue.next_in_line
    if queue.next_in_line:
        isl.queues[queue.next_in_line - 1].ahead = queue.ahead
    else:
        engine.last = queue.ahead
    queue.line = 0


@outlined
def deal(isl: Island) -> None:
    """Each engine with a free slot gives it to the first in its line; those behind come before the next slot is given."""
    c = isl.clock[0]
    c.dealing = 0
    for direction in (TO_DEVICE, FROM_DEVICE):
        engine = isl.engines[direction]
        if engine.first and engine.running < engine.slots:
            q = to_go(isl, engine.first - 1)
            leave(isl, q)
            engine.running += 1
            isl.queues[q].granted = 1
            isl.look[q] = c.woken = c.dealing = 1


@outlined
def to_go(isl: Island, first: int) -> int:
    """The queue that goes when it is the turn of this one: itself, or the other of its pair, which leaves it its own place."""
    queue = isl.queues[first]
    if queue.mate < 0:
        return first
    other = isl.queues[queue.mate]
    mine, its = first_of(isl, first).due, first_of(isl, queue.mate).due
    if other.line == 0 or mine < its or (mine == its and first < queue.mate):
        return first
    direction = queue.line
    leave(isl, first)
    queue.came = other.came
    enter(isl, first, direction, queue.mate + 1)
    return int(queue.mate)


@kernel
def give_back(isl: Island, direction: int) -> None:
    """An activity in a slot of this engine ends; direction 0: in none."""
    if direction:
        engine = isl.engines[direction]
        engine.running -= 1
        isl.clock[0].dealing |= engine.first > 0
