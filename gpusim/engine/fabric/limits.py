"""Limits of programs' memory that a policy moves: what is above a lower one leaves first, then higher ones hold.

A program comes down to its limit by itself: its host evicts tensors, as its evict policy has it, behind the kernels that it has
submitted.  Its bytes are free when all that was submitted up to then is over, the copies included.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.fabric.tables import Fabric
from gpusim.engine.host.island import island_at, policies_at
from gpusim.engine.state import Island, Processes
from gpusim.policies.contract import ROUNDED


@outlined
def lower(fabric: Fabric, many: Processes) -> None:
    """Programs whose new limit is below what they may have now begin to come down to it."""
    for p in range(many.rows.size):
        seat, t = fabric.seats[p], island_at(many.rows[p].island).tenants[0]
        if seat.limit > 0 and (t.limit == 0 or seat.limit < t.limit):
            t.limit = seat.limit
            t.left_by = 0
            seat.limit, seat.sheds = 0, 1


@kernel
def grow(fabric: Fabric, many: Processes) -> None:
    """The others' new limits hold."""
    for p in range(many.rows.size):
        if fabric.seats[p].limit > 0:
            island_at(many.rows[p].island).tenants[0].limit = fabric.seats[p].limit
            fabric.seats[p].limit = 0


@outlined
def shedding(fabric: Fabric, many: Processes) -> int:
    """The first program that is not down to its limit; -1: all are."""
    for p in range(many.rows.size):
        seat, row = fabric.seats[p], many.rows[p]
        if seat.sheds == 0:
            continue
        if row.ended or is_down(seat, island_at(row.island), policies_at(row.policies).place):
            seat.sheds = 0
        else:
            return p
    return -1


@kernel
def is_down(seat: Any, isl: Island, place: Any) -> bool:
    """Its tensors have no more than the limit, and the device is done with the blocks that they had."""
    t = isl.tenants[0]
    if place[ROUNDED] > t.limit:
        seat.sheds = 1
        if t.leaving <= 0:
            t.leaving, t.leaving_for = place[ROUNDED] - t.limit, 0
        return False
    if isl.counts[0].allocated_peak <= t.limit:
        return True
    if seat.sheds == 1:
        seat.sheds = 1 + (t.left_by if t.left_by > 0 else isl.clock[0].number)
    over = True
    for q in range(isl.clock[0].queues):
        queue = isl.queues[q]
        first = isl.activities[queue.base + (queue.done & queue.mask)]
        over = over and (queue.done == queue.submitted or first.number >= seat.sheds - 1)
    return over
