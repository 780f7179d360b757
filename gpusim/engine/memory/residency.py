"""Where units are: placed and brought in, room made, given up.  The one place where a swap is decided.

All of it is done by the host in program order; the waiting is left to the activities through `after` and `use`.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import queues
from gpusim.engine.memory import blocks, lending, prefetches, release, swaps
from gpusim.engine.memory import evicting as choice
from gpusim.engine.state import (
    AGAIN,
    ASK,
    BAD_ANSWER,
    N_FREE,
    N_INSERT,
    NO_DEFRAG,
    OUT_OF_MEMORY,
    RESIDENTS,
    WHERE,
    Island,
    PolicyTables,
)
from gpusim.engine.verbs import V_ALLOC, as_alloc
from gpusim.policies import contract
from gpusim.policies.contract import ABSENT, BLOCK, CAPACITY, DEVICE, HELD, ROUNDED
from gpusim.results import log

# Why a unit comes to the device.
CREATED, DEMANDED, PREFETCH, PLANNED = range(4)


@kernel
def take_block(isl: Island, pol: PolicyTables, h: Any, u: int, stream: int, may_evict: bool, waits: bool) -> int:
    """Place a unit, evicting until there is room: the only eviction loop.  Returns 0 or the reason to stop.

    waits: an operator wants it, for which others have to leave this device's memory if they have some of it.

    May be called again for the same unit after a stop; what was evicted stays so.
    """
    t, rules, n = isl.tenants[0], pol.rules[0], isl.counts[0]
    unit = isl.units[u]
    while True:
        if t.lends and lending.lacks(isl, pol, u) and waits and lending.calls(isl, pol, h, u):
            return AGAIN
        addr = -1
        if t.limit == 0 or pol.place[ROUNDED] + unit.size <= t.limit:
            addr = as_alloc(pol.verbs[V_ALLOC, 0], pol.verbs[V_ALLOC, 1])(pol.place, u, unit.size, stream)
        if t.lends and addr >= 0 and pol.place[HELD] > pol.place[CAPACITY]:
            addr = lending.undo(pol, u, stream)
        if t.limit and addr >= 0 and pol.place[ROUNDED] > t.limit:
            blocks.pay_device_calls(isl, pol, h)
            addr = lending.undo(pol, u, stream)
        blocks.pay_device_calls(isl, pol, h)
        if addr >= 0:
            break
        if t.lends and waits and lending.calls(isl, pol, h, u):
            return AGAIN
        if t.failing == 0:
            t.failing = 1
            if pol.place[CAPACITY] - pol.place[ROUNDED] >= unit.size:
                n.failures += 1  # enough bytes are free, but not in one piece
            if rules.defrag != NO_DEFRAG and blocks.is_due(isl, pol, contract.REFUSED, unit.size):
                t.due = 1
                return AGAIN
        v = choice.choose(isl, pol, u) if may_evict else -1
        if v < 0:
            t.request, t.request_bytes = u, unit.size
            return ASK if v == -2 else OUT_OF_MEMORY
        if not choice.may_leave(isl, v):
            t.request = v
            return BAD_ANSWER
        reason = swaps.evict(isl, pol, h, v, 0, 0)
        if reason:
            t.request, t.request_bytes = v, isl.units[v].stored
            return reason
    t.failing, h.unlent = 0, 0
    t.allocs += 1
    unit.addr, unit.block, unit.stream = addr, pol.place[BLOCK], stream
    blocks.inherit_waits(isl, u)
    isl.flags[WHERE, u] = DEVICE
    unit.slot = t.residents
    isl.lists[RESIDENTS, t.residents] = u
    t.residents += 1
    n.requested += unit.size
    n.requested_total += unit.size
    n.allocated_total += unit.block
    unit.arrived = t.program
    queues.record(isl, pol, log.PLACE, u, 0, addr, unit.block)
    blocks.update_peaks(isl, pol)
    if rules.defrag != NO_DEFRAG and blocks.is_due(isl, pol, contract.PLACED, unit.size):
        t.due = 1
    if rules.release:
        return release.ask(isl, pol, u)
    return 0


@outlined
def bring_in(isl: Island, pol: PolicyTables, h: Any, u: int, stream: int, why: int) -> int:
    """Make a unit resident: place it, and copy it in if a tier below has its data.  Returns 0 or the reason to stop."""
    rules, unit = pol.rules[0], isl.units[u]
    if unit.stays:
        return swaps.settle(isl, pol, u)
    may_evict = why < PREFETCH or (why == PREFETCH and rules.may_evict != 0)
    reason = take_block(isl, pol, h, u, stream, may_evict, why < PREFETCH)
    if reason:
        return reason
    if unit.tier:
        swaps.fetch(isl, pol, h, u, 1 if why >= PREFETCH else 0)
    choice.tell(isl, pol, N_INSERT, u)
    return 0


@kernel
def destroy(isl: Island, pol: PolicyTables, h: Any, u: int, stream: int) -> None:
    """The tensor ends on this stream: its block and its copy below are free."""
    unit = isl.units[u]
    if unit.brought:
        prefetches.give_up(isl, pol, u)
    if isl.flags[WHERE, u] == DEVICE:
        choice.tell(isl, pol, N_FREE, u)
        blocks.give_back(isl, pol, h, u, stream)
    if unit.tier:
        swaps.drop_copy(isl, pol, u)
    isl.flags[WHERE, u] = ABSENT
    unit.live = 0
    queues.record(isl, pol, log.DESTROY, u, 0, -1, unit.size)
