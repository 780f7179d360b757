"""Hosts that wait for memory which their devices have lent: whose bytes leave, and when the host goes on."""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock import queues
from gpusim.engine.host.island import island_at, policies_at
from gpusim.engine.memory import lending, recalls
from gpusim.engine.state import RUNNING, SPARE, Island, PolicyTables, Processes
from gpusim.results import log


@outlined
def answer(many: Processes, now: int) -> None:
    """Lenders have begun to wait, or bytes have come back to them."""
    one = island_at(many.rows[0].island)
    one.fluid[0].calls = 0
    for k in range(one.accounts.size):
        a = one.accounts[k]
        if a.wanted and a.asked:
            a.asked = 0
            call_back(many, k, now)
        if a.wanted and (free(a) >= a.wanted or a.coming == 0):
            go_on(many, k, now)


@kernel
def free(a: Any) -> int:
    """Bytes that the lender's own program may take, and will when copies have ended that have been called."""
    return int(a.capacity - a.booked - a.lent)


@kernel
def call_back(many: Processes, k: int, now: int) -> None:
    """Units leave the lender's memory, one after the other, until there will be as much as it wants."""
    a = island_at(many.rows[0].island).accounts[k]
    for p in range(many.rows.size):
        many.rows[p].stuck = 0
    while free(a) + a.coming < a.wanted:
        p, u = next_to_leave(many, k)
        if p < 0:
            return
        isl = island_at(many.rows[p].island)
        isl.clock[0].now = now
        many.next[p] = now
        many.rows[p].stuck = not recalls.call_back(isl, policies_at(many.rows[p].policies), u)


@kernel
def next_to_leave(many: Processes, k: int) -> Any:
    """(program, unit): one that is on its device too, else the one that its pool policy least wants there, the oldest first."""
    program, which, worst, oldest = -1, -1, -math.inf, 0
    for p in range(many.rows.size):
        isl, m = island_at(many.rows[p].island), 1
        while m < isl.memories.size and isl.memories[m].account != k:
            m += 1
        if many.rows[p].ended or many.rows[p].stuck or m == isl.memories.size or isl.memories[m].used == 0:
            continue
        for u in range(isl.units.size):
            unit = isl.units[u]
            if unit.tier == m:
                score = badness(isl, policies_at(many.rows[p].policies), u, m)
                if score > worst or (score == worst and unit.lent < oldest) or program < 0:
                    program, which, worst, oldest = p, u, score, unit.lent
    return program, which


@kernel
def badness(isl: Island, pol: PolicyTables, u: int, m: int) -> float:
    if isl.flags[SPARE, u] == m and recalls.unstarted(isl, isl.units[u].fetched_by, isl.units[u].fetched) < 0:
        return math.inf
    return lending.score_of(isl, pol, u, m, lending.room(isl, m)) if pol.rules[0].pool else 0.0


@kernel
def go_on(many: Processes, k: int, now: int) -> None:
    """The lender's host has its memory, or all of it that will come."""
    a = island_at(many.rows[0].island).accounts[k]
    row = many.rows[a.process]
    isl = island_at(row.island)
    h, t = isl.hosts[0], isl.tenants[0]
    h.unlent = free(a) < a.wanted
    a.wanted = 0
    isl.clock[0].now = now
    waited = max(0, now - h.time)
    h.time += waited
    h.alloc_ns += waited
    h.state = RUNNING
    isl.counts[0].recall_wait += waited
    queues.record(isl, policies_at(row.policies), log.DECIDE, t.request, log.REGAINED, -1, 0)
    many.next[a.process] = now
