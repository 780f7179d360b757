"""Blocks of the device's memory: waits for addresses in use, costs of the allocator's calls, defragmentation."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import queues
from gpusim.engine.memory import lending
from gpusim.engine.state import RECENTLY_FREED, RESIDENTS, SLIDE, Island, PolicyTables
from gpusim.engine.verbs import (
    V_COMPACT,
    V_DUE,
    V_FREE,
    V_LARGEST,
    V_REMAP,
    as_compact,
    as_due,
    as_free,
    as_largest,
    as_remap,
)
from gpusim.policies import contract
from gpusim.policies.contract import CALL_LIST, CALLS, CAPACITY, HELD, MOVES, ROUNDED
from gpusim.results import log


@kernel
def remember_freed(isl: Island, u: int) -> None:
    """The next block at the unit's addresses must wait for the activities that still use them."""
    c, t = isl.clock[0], isl.tenants[0]
    slot = t.freed % RECENTLY_FREED
    unit, range_ = isl.units[u], isl.freed[slot]
    for k in range(c.queues):
        older = isl.freed_use[slot, k]
        isl.freed_use[RECENTLY_FREED, k] = max(isl.freed_use[RECENTLY_FREED, k], older)
        isl.freed_use[slot, k] = isl.use[u, k]
    range_.start, range_.end = unit.addr, unit.addr + unit.block
    t.freed += 1


@kernel
def inherit_waits(isl: Island, u: int) -> None:
    """The unit's new block waits for its former users: recent ones by address, older ones as if they all had been here."""
    c = isl.clock[0]
    unit = isl.units[u]
    start, end = unit.addr, unit.addr + unit.block
    for k in range(c.queues):
        isl.after[u, k] = max(isl.after[u, k], isl.freed_use[RECENTLY_FREED, k])
    for slot in range(RECENTLY_FREED):
        if isl.freed[slot].start < end and start < isl.freed[slot].end:
            for k in range(c.queues):
                isl.after[u, k] = max(isl.after[u, k], isl.freed_use[slot, k])


@outlined
def pay_device_calls(isl: Island, pol: PolicyTables, h: Any) -> None:
    """The host pays for the device calls of the latest allocator verb.

    Giving memory back (cudaFree) first waits for the device: then the calls are owed until it is idle.
    """
    d, t, n = isl.devices[0], isl.tenants[0], isl.counts[0]
    calls = pol.place[CALLS]
    if calls == 0:
        return
    at = pol.place[CALL_LIST]
    spent = 0.0
    for i in range(calls):
        addr, size = pol.place[at + 2 * i], pol.place[at + 2 * i + 1]
        paid = i >= pol.place[MOVES]
        if size > 0:
            n.device_allocs += 1
            queues.record(isl, pol, log.RESERVE, 1 - paid, 0, addr, size)
            if paid:
                spent += d.malloc_ns + d.malloc_per_byte * size
        elif size < 0:
            n.device_frees += 1
            queues.record(isl, pol, log.RELEASE, 1 - paid, 0, addr, -size)
            if paid:
                spent += d.free_ns - d.free_per_byte * size
                t.drain = 1
    lending.book(isl, pol.place[HELD])
    if t.drain:
        t.owed += int(spent)
    else:
        h.time += int(spent)
        h.alloc_ns += int(spent)
    pol.place[CALLS] = 0


@kernel
def update_peaks(isl: Island, pol: PolicyTables) -> None:
    """Keep the maxima, and the fragmentation at them (definitions: fragmentation.py)."""
    n = isl.counts[0]
    rounded, held = pol.place[ROUNDED], pol.place[HELD]
    n.requested_peak = max(n.requested_peak, n.requested)
    if rounded > n.allocated_peak:
        n.allocated_peak = rounded
        n.internal_at_peak = 1.0 - n.requested / rounded
    n.reserved_peak = max(n.reserved_peak, held)


@kernel
def external(isl: Island, pol: PolicyTables) -> float:
    """1 - largest free block / free bytes, of what is held; 0 when nothing is free."""
    free = pol.place[HELD] - pol.place[ROUNDED]
    if free <= 0:
        return 0.0
    largest = as_largest(pol.verbs[V_LARGEST, 0], pol.verbs[V_LARGEST, 1])(pol.place)
    return max(0.0, 1.0 - largest / free)


@outlined
def is_due(isl: Island, pol: PolicyTables, when: int, size: int) -> bool:
    """The defrag policy wants the memory rearranged; at most once in an instruction."""
    t = isl.tenants[0]
    held, rounded = pol.place[HELD], pol.place[ROUNDED]
    free = pol.place[CAPACITY] - rounded if when == contract.REFUSED else held - rounded
    if t.defragged == t.instructions + 1 or (when == contract.REFUSED and free < size):
        return False
    largest = as_largest(pol.verbs[V_LARGEST, 0], pol.verbs[V_LARGEST, 1])(pol.place)
    due = as_due(pol.verbs[V_DUE, 0], pol.verbs[V_DUE, 1])
    return due(pol.defrag, when, t.allocs, held, free, largest, size) != 0


@kernel
def device_calls(pol: PolicyTables) -> int:
    """How many of the latest allocator verb's calls say something: those of a size."""
    calls, at = 0, pol.place[CALL_LIST]
    for i in range(pol.place[CALLS]):
        calls += pol.place[at + 2 * i + 1] != 0
    return calls


@outlined
def defragment(isl: Island, pol: PolicyTables, h: Any) -> None:
    """Rearrange the memory while the device is idle.  The host pays for the copies, or for the device calls."""
    d, t, rules, n = isl.devices[0], isl.tenants[0], pol.rules[0], isl.counts[0]
    t.due, t.defragged = 0, t.instructions + 1
    n.defrags += 1
    if rules.defrag == SLIDE:
        spent = 0.0
        moves = as_compact(pol.verbs[V_COMPACT, 0], pol.verbs[V_COMPACT, 1])(pol.place, pol.moved)
        queues.record(isl, pol, log.DEFRAG, moves, h.paid + 2 * t.failing, t.instructions, 0)
        for i in range(moves):
            u, addr, block = pol.moved[4 * i], pol.moved[4 * i + 2], pol.moved[4 * i + 3]
            isl.units[u].addr = addr
            n.moved_bytes += block
            spent += h.submit_ns + d.move_per_byte * block
            queues.record(isl, pol, log.MOVE, u, 0, addr, block)
        t.owed += int(spent)
    else:
        as_remap(pol.verbs[V_REMAP, 0], pol.verbs[V_REMAP, 1])(pol.place)
        queues.record(isl, pol, log.DEFRAG, device_calls(pol), h.paid + 2 * t.failing, t.instructions, 0)
        pay_device_calls(isl, pol, h)
    queues.settle(isl, h)


@kernel
def give_back(isl: Island, pol: PolicyTables, h: Any, u: int, stream: int) -> None:
    """The unit's block, freed on this stream, is free for the next in program order."""
    t, n = isl.tenants[0], isl.counts[0]
    unit = isl.units[u]
    remember_freed(isl, u)
    queues.record(isl, pol, log.UNPLACE, u, 0, unit.addr, unit.block)
    as_free(pol.verbs[V_FREE, 0], pol.verbs[V_FREE, 1])(pol.place, u, stream)
    pay_device_calls(isl, pol, h)
    n.requested -= unit.size
    last = isl.lists[RESIDENTS, t.residents - 1]
    isl.lists[RESIDENTS, unit.slot] = last
    isl.units[last].slot = unit.slot
    unit.slot = -1
    t.residents -= 1
