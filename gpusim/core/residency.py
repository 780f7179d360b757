"""Where units are: blocks taken and given back, room made, copies submitted.  The one place where a swap happens.

All of it is done by the host in program order; the waiting is left to the activities through `after` and `use`.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.core import log, queues
from gpusim.core.jit import kernel, outlined, verb
from gpusim.core.state import (
    ASK,
    ASKED,
    BAD_ANSWER,
    DEFRAGMENT,
    HOST_OUT_OF_MEMORY,
    N_EVICT,
    N_FREE,
    N_INSERT,
    N_TOUCH,
    NO_DEFRAG,
    NO_EVICTION,
    OUT_OF_MEMORY,
    RECENTLY_FREED,
    SCORE,
    SCORE_NOW,
    SLIDE,
    SWAP,
    SWAP_IN,
    SWAP_OUT,
    Island,
    Policies,
)
from gpusim.policies import contract
from gpusim.policies.contract import ABSENT, BLOCK, CALL_LIST, CALLS, CAPACITY, DEVICE, HELD, HOST, MOVES, ROUNDED

as_alloc, as_free, as_largest = verb(contract.ALLOC), verb(contract.FREE), verb(contract.LARGEST)
as_insert, as_touch, as_remove = verb(contract.INSERT), verb(contract.TOUCH), verb(contract.REMOVE)
as_victim, as_score = verb(contract.VICTIM), verb(contract.SCORE)
as_compact, as_remap, as_due = verb(contract.COMPACT), verb(contract.REMAP), verb(contract.DUE)
V_ALLOC, V_FREE, V_LARGEST, V_INSERT, V_TOUCH, V_REMOVE, V_VICTIM, V_SCORE, V_PROPOSE, V_NOTE = range(10)
V_COMPACT, V_REMAP, V_DUE = range(10, 13)

# Why a unit comes to the device.
CREATED, DEMANDED, PREFETCH, PLANNED = range(4)

WHERE, LOCKED = 0, 1                                # rows of Island.flags
RESIDENTS, VICTIMS, PROPOSED, IN_USE = 0, 1, 2, 3   # rows of Island.lists


# --- what the evict policy hears and says -----------------------------------------------------------------------------


@kernel
def score_of(isl: Island, pol: Policies, u: int, now: float) -> float:
    """The policy's score of a unit at program time `now`; the facts stand in the order of contract.FACTS."""
    unit = isl.units[u]
    facts = pol.facts
    facts[0] = unit.size
    facts[1] = unit.last
    facts[2] = unit.next
    facts[3] = unit.uses
    facts[4] = isl.ways[SWAP_IN].latency + unit.wire / isl.ways[SWAP_IN].rate
    facts[5] = 0.0 if unit.host_copy else isl.ways[SWAP_OUT].latency + unit.wire / isl.ways[SWAP_OUT].rate
    facts[6] = 0.0 if unit.host_copy else 1.0
    facts[7] = unit.arrived
    facts[8] = unit.born
    facts[9] = now
    return as_score(pol.verbs[V_SCORE, 0], pol.verbs[V_SCORE, 1])(facts, pol.params)


@kernel
def tell(isl: Island, pol: Policies, kind: int, u: int) -> None:
    """The evict policy learns that a unit became resident, was used, was evicted or was freed."""
    c = isl.control[0]
    size = isl.units[u].size
    if c.form == NO_EVICTION or size == 0:
        return
    if c.form == ASKED:
        if c.asks:
            note = pol.notes[c.notes]
            c.notes += 1
            note.kind, note.unit, note.size = kind, u, size
        return
    if c.form == SCORE_NOW:
        return
    if kind == N_TOUCH:
        if c.touches:
            key = score_of(isl, pol, u, c.program) if c.form == SCORE else 0.0
            as_touch(pol.verbs[V_TOUCH, 0], pol.verbs[V_TOUCH, 1])(pol.evict, pol.evict_keys, u, size, key)
    elif kind == N_INSERT:
        key = score_of(isl, pol, u, c.program) if c.form == SCORE else 0.0
        as_insert(pol.verbs[V_INSERT, 0], pol.verbs[V_INSERT, 1])(pol.evict, pol.evict_keys, u, size, key)
    else:
        key = 1.0 if kind == N_EVICT else 0.0
        as_remove(pol.verbs[V_REMOVE, 0], pol.verbs[V_REMOVE, 1])(pol.evict, pol.evict_keys, u, size, key)


@kernel
def lowest_score(isl: Island, pol: Policies) -> int:
    """The resident unit with the lowest score now (ties: lowest id), among all or among `sample` drawn ones; -1 if none."""
    c = isl.control[0]
    best, lowest = -1, math.inf
    n = c.residents
    draws = n if c.sample == 0 else min(n, c.sample)
    for i in range(draws):
        at = i
        if c.sample:
            x = c.random  # xorshift64 (Marsaglia 2003), kept below 2^62 so that plain Python integers agree
            x ^= (x << 13) & 0x3FFFFFFFFFFFFFFF
            x ^= x >> 7
            x ^= (x << 17) & 0x3FFFFFFFFFFFFFFF
            c.random = x
            at = x % n
        u = isl.lists[RESIDENTS, at]
        if isl.flags[LOCKED, u] == 0:
            key = score_of(isl, pol, u, c.program)
            if key < lowest or (key == lowest and u < best) or best < 0:
                best, lowest = u, key
    return best


@kernel
def choose(isl: Island, pol: Policies, incoming: int) -> int:
    """A unit to evict, -1 when there is none, -2 when the policy in plain Python has to be asked."""
    c = isl.control[0]
    if c.form == NO_EVICTION:
        return -1
    if c.form == ASKED:
        while c.asked_at < c.asked:
            u = isl.lists[VICTIMS, c.asked_at]
            c.asked_at += 1
            # A victim that has been used since the answer is no longer one.
            if isl.units[u].slot >= 0 and isl.flags[LOCKED, u] == 0 and isl.units[u].last <= c.asked_time:
                return u
        return -2
    if c.form == SCORE_NOW:
        u = lowest_score(isl, pol)
        if u < 0 and c.sample:  # the draw hit only locked units
            sample, c.sample = c.sample, 0
            u = lowest_score(isl, pol)
            c.sample = sample
        return u
    size = isl.units[incoming].size
    return as_victim(pol.verbs[V_VICTIM, 0], pol.verbs[V_VICTIM, 1])(
        pol.evict, pol.evict_keys, incoming, size, isl.flags[LOCKED]
    )


# --- blocks -------------------------------------------------------------------------------------------------------------


@kernel
def remember_freed(isl: Island, u: int) -> None:
    """Whoever gets the unit's addresses next must wait for the activities that still use them."""
    c = isl.control[0]
    slot = c.freed % RECENTLY_FREED
    unit, range_ = isl.units[u], isl.freed[slot]
    for k in range(c.queues):
        older = isl.freed_use[slot, k]
        isl.freed_use[RECENTLY_FREED, k] = max(isl.freed_use[RECENTLY_FREED, k], older)
        isl.freed_use[slot, k] = isl.use[u, k]
    range_.start, range_.end = unit.addr, unit.addr + unit.block
    c.freed += 1


@kernel
def inherit_waits(isl: Island, u: int) -> None:
    """The unit's new block waits for its former users: recent ones by address, older ones as if they all had been here."""
    c = isl.control[0]
    unit = isl.units[u]
    start, end = unit.addr, unit.addr + unit.block
    for k in range(c.queues):
        isl.after[u, k] = max(isl.after[u, k], isl.freed_use[RECENTLY_FREED, k])
    for slot in range(RECENTLY_FREED):
        if isl.freed[slot].start < end and start < isl.freed[slot].end:
            for k in range(c.queues):
                isl.after[u, k] = max(isl.after[u, k], isl.freed_use[slot, k])


@kernel
def pay_device_calls(isl: Island, pol: Policies, h: Any) -> None:
    """The host pays for the device calls of the latest allocator verb.

    Giving memory back (cudaFree) first waits for the device: then the calls are owed until it is idle.
    """
    c, n = isl.control[0], isl.counts[0]
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
            queues.record(isl, pol, log.RESERVE, 0, 0, addr, size)
            if paid:
                spent += c.malloc_ns + c.malloc_per_byte * size
        elif size < 0:
            n.device_frees += 1
            queues.record(isl, pol, log.RELEASE, 0, 0, addr, -size)
            if paid:
                spent += c.free_ns - c.free_per_byte * size
                c.drain = 1
    if c.drain:
        c.owed += int(spent)
    else:
        h.time += int(spent)
        h.alloc_ns += int(spent)
    pol.place[CALLS] = 0


@kernel
def update_peaks(isl: Island, pol: Policies) -> None:
    """Keep the maxima, and the fragmentation at them (definitions: fragmentation.py)."""
    n = isl.counts[0]
    rounded, held = pol.place[ROUNDED], pol.place[HELD]
    n.requested_peak = max(n.requested_peak, n.requested)
    if rounded > n.allocated_peak:
        n.allocated_peak = rounded
        n.internal_at_peak = 1.0 - n.requested / rounded
    n.reserved_peak = max(n.reserved_peak, held)


@kernel
def external(isl: Island, pol: Policies) -> float:
    """1 - largest free block / free bytes, of what is held; 0 when nothing is free."""
    free = pol.place[HELD] - pol.place[ROUNDED]
    if free <= 0:
        return 0.0
    largest = as_largest(pol.verbs[V_LARGEST, 0], pol.verbs[V_LARGEST, 1])(pol.place)
    return max(0.0, 1.0 - largest / free)


@outlined
def is_due(isl: Island, pol: Policies, when: int, size: int) -> bool:
    """The defrag policy wants the memory rearranged; at most once in an instruction."""
    c = isl.control[0]
    held, rounded = pol.place[HELD], pol.place[ROUNDED]
    free = pol.place[CAPACITY] - rounded if when == contract.REFUSED else held - rounded
    if c.defragged == c.instructions + 1 or (when == contract.REFUSED and free < size):
        return False
    largest = as_largest(pol.verbs[V_LARGEST, 0], pol.verbs[V_LARGEST, 1])(pol.place)
    due = as_due(pol.verbs[V_DUE, 0], pol.verbs[V_DUE, 1])
    return due(pol.defrag, when, c.allocs, held, free, largest, size) != 0


@outlined
def defragment(isl: Island, pol: Policies, h: Any) -> None:
    """Rearrange the memory while the device is idle.  The host pays for the copies, or for the device calls."""
    c, n = isl.control[0], isl.counts[0]
    c.due, c.defragged = 0, c.instructions + 1
    n.defrags += 1
    if c.defrag == SLIDE:
        spent = 0.0
        for i in range(as_compact(pol.verbs[V_COMPACT, 0], pol.verbs[V_COMPACT, 1])(pol.place, pol.moved)):
            u, addr, block = pol.moved[4 * i], pol.moved[4 * i + 2], pol.moved[4 * i + 3]
            isl.units[u].addr = addr
            n.moved_bytes += block
            spent += c.submit_ns + c.move_per_byte * block
            queues.record(isl, pol, log.MOVE, u, 0, addr, block)
        c.owed += int(spent)
    else:
        as_remap(pol.verbs[V_REMAP, 0], pol.verbs[V_REMAP, 1])(pol.place)
        pay_device_calls(isl, pol, h)
    queues.settle(isl, h)


@kernel
def take_block(isl: Island, pol: Policies, h: Any, u: int, stream: int, may_evict: bool) -> int:
    """Place a unit, evicting until there is room: the only eviction loop.  Returns 0 or the reason to stop.

    May be called again for the same unit after a stop; what was evicted stays so.
    """
    c, n = isl.control[0], isl.counts[0]
    unit = isl.units[u]
    while True:
        addr = as_alloc(pol.verbs[V_ALLOC, 0], pol.verbs[V_ALLOC, 1])(pol.place, u, unit.size, stream)
        pay_device_calls(isl, pol, h)
        if addr >= 0:
            break
        if c.failing == 0:
            c.failing = 1
            if pol.place[CAPACITY] - pol.place[ROUNDED] >= unit.size:
                n.failures += 1  # enough bytes are free, but not in one piece
            if c.defrag != NO_DEFRAG and is_due(isl, pol, contract.REFUSED, unit.size):
                c.due = 1
                return DEFRAGMENT
        v = choose(isl, pol, u) if may_evict else -1
        if v < 0:
            c.request, c.request_bytes = u, unit.size
            return ASK if v == -2 else OUT_OF_MEMORY
        if v >= isl.units.size or isl.units[v].slot < 0 or isl.flags[LOCKED, v]:
            c.request = v
            return BAD_ANSWER
        reason = evict(isl, pol, h, v)
        if reason:
            c.request, c.request_bytes = v, isl.units[v].stored
            return reason
    c.failing = 0
    c.allocs += 1
    unit.addr, unit.block, unit.stream = addr, pol.place[BLOCK], stream
    inherit_waits(isl, u)
    isl.flags[WHERE, u] = DEVICE
    unit.slot = c.residents
    isl.lists[RESIDENTS, c.residents] = u
    c.residents += 1
    n.requested += unit.size
    n.requested_total += unit.size
    n.allocated_total += unit.block
    unit.arrived = c.program
    queues.record(isl, pol, log.PLACE, u, 0, addr, unit.block)
    update_peaks(isl, pol)
    if c.defrag != NO_DEFRAG and is_due(isl, pol, contract.PLACED, unit.size):
        c.due = 1
    return 0


@kernel
def give_block_back(isl: Island, pol: Policies, h: Any, u: int, stream: int) -> None:
    """The unit's block, freed on this stream, is free for the next in program order."""
    c, n = isl.control[0], isl.counts[0]
    unit = isl.units[u]
    remember_freed(isl, u)
    queues.record(isl, pol, log.UNPLACE, u, 0, unit.addr, unit.block)
    as_free(pol.verbs[V_FREE, 0], pol.verbs[V_FREE, 1])(pol.place, u, stream)
    pay_device_calls(isl, pol, h)
    n.requested -= unit.size
    last = isl.lists[RESIDENTS, c.residents - 1]
    isl.lists[RESIDENTS, unit.slot] = last
    isl.units[last].slot = unit.slot
    unit.slot = -1
    c.residents -= 1


# --- moves --------------------------------------------------------------------------------------------------------------


@kernel
def drop_host_copy(isl: Island, pol: Policies, u: int) -> None:
    """The host gives up its copy of a unit."""
    unit, c = isl.units[u], isl.control[0]
    unit.host_copy = 0
    c.host_used -= unit.stored
    queues.record(isl, pol, log.UNPLACE, u, 1, -1, unit.stored)


@kernel
def host_room(isl: Island, pol: Policies, size: int) -> bool:
    """Make room in host memory by dropping copies of units that are on the device too; clock order, amortised O(1)."""
    c = isl.control[0]
    looked = 0
    while c.host_used + size > c.host_capacity and looked < isl.units.size:
        u = c.hand
        c.hand = (c.hand + 1) % isl.units.size
        looked += 1
        if isl.units[u].host_copy and isl.flags[WHERE, u] == DEVICE:
            drop_host_copy(isl, pol, u)
    return c.host_used + size <= c.host_capacity


@kernel
def evict(isl: Island, pol: Policies, h: Any, u: int) -> int:
    """Swap a unit out: copy it to the host unless a valid copy is there.  Returns 0 or HOST_OUT_OF_MEMORY."""
    c, n = isl.control[0], isl.counts[0]
    unit = isl.units[u]
    copied = 0
    if unit.host_copy or not unit.data:
        n.clean_drops += 1
        queues.record(isl, pol, log.DROP, u, 0, unit.addr, unit.block)
    else:
        if not host_room(isl, pol, unit.stored):
            return HOST_OUT_OF_MEMORY
        row = queues.submit(isl, c.q_out, SWAP, SWAP_OUT, u, unit.wire, 0, c.now)
        queues.wait_for(isl, row, isl.use[u])
        queues.wait_for(isl, row, isl.after[u])
        copied = isl.queues[c.q_out].submitted
        h.time += c.submit_ns
        isl.use[u, c.q_out] = copied
        unit.host_copy = 1
        c.host_used += unit.stored
        n.host_peak = max(n.host_peak, c.host_used)
        n.swap_outs += 1
        n.d2h_bytes += unit.wire
        queues.record(isl, pol, log.PLACE, u, 1, -1, unit.stored)
        queues.record(isl, pol, log.COPY, u, 0 << 8 | 1, isl.activities[row].number, unit.wire)
    if unit.brought:
        unit.brought = 0
        n.prefetch_wasted += 1
    tell(isl, pol, N_EVICT, u)
    give_block_back(isl, pol, h, u, isl.units[u].stream)
    isl.flags[WHERE, u] = HOST
    out = max(copied, isl.after[u, c.q_out])
    for k in range(c.queues):
        isl.use[u, k] = 0
        isl.after[u, k] = 0
    isl.after[u, c.q_out] = out  # it can come back only when it has arrived there
    return 0


@kernel
def bring_in(isl: Island, pol: Policies, h: Any, u: int, stream: int, why: int) -> int:
    """Make a unit resident: place it, and copy it in if the host has its data.  Returns 0 or the reason to stop."""
    c, n = isl.control[0], isl.counts[0]
    unit = isl.units[u]
    reason = take_block(isl, pol, h, u, stream, why < PREFETCH or (why == PREFETCH and c.may_evict != 0))
    if reason:
        return reason
    if unit.host_copy:
        row = queues.submit(isl, c.q_in, SWAP, SWAP_IN, u, unit.wire, 0, c.now)
        queues.wait_for(isl, row, isl.after[u])
        count = isl.queues[c.q_in].submitted
        isl.after[u, c.q_in] = count
        isl.use[u, c.q_in] = count
        h.time += c.submit_ns
        n.swap_ins += 1
        n.h2d_bytes += unit.wire
        if why >= PREFETCH:
            n.prefetches += 1
            unit.brought = count
        queues.record(isl, pol, log.COPY, u, 1 << 8 | 0, isl.activities[row].number, unit.wire)
    tell(isl, pol, N_INSERT, u)
    return 0


@kernel
def destroy(isl: Island, pol: Policies, h: Any, u: int, stream: int) -> None:
    """The tensor ends on this stream: its block and its host copy are free."""
    n = isl.counts[0]
    unit = isl.units[u]
    if isl.flags[WHERE, u] == DEVICE:
        tell(isl, pol, N_FREE, u)
        give_block_back(isl, pol, h, u, stream)
    if unit.host_copy:
        drop_host_copy(isl, pol, u)
    if unit.brought:
        unit.brought = 0
        n.prefetch_wasted += 1
    isl.flags[WHERE, u] = ABSENT
    unit.live = 0
    queues.record(isl, pol, log.DESTROY, u, 0, -1, unit.size)
