"""What the evict policy hears and says."""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.state import (
    ASKED,
    LOCKED,
    N_EVICT,
    N_INSERT,
    N_TOUCH,
    NO_EVICTION,
    RESIDENTS,
    SCORE,
    SCORE_NOW,
    VICTIM,
    VICTIMS,
    Island,
    PolicyTables,
)
from gpusim.engine.verbs import (
    V_INSERT,
    V_REMOVE,
    V_SCORE,
    V_TOUCH,
    V_VICTIM,
    as_insert,
    as_remove,
    as_score,
    as_touch,
    as_victim,
)


@kernel
def state_facts(isl: Island, u: int, now: float, facts: Any) -> None:
    """Write the facts about a unit at program time `now`, in the order of contract.FACTS."""
    unit = isl.units[u]
    facts[0] = unit.size
    facts[1] = unit.last
    facts[2] = unit.next
    facts[3] = unit.uses
    tier = isl.memories[max(1, unit.tier)]
    into, out = isl.ways[tier.way_in], isl.ways[tier.way_out]
    facts[4] = into.latency + unit.wire / into.rate
    facts[5] = 0.0 if unit.tier else out.latency + unit.wire / out.rate
    facts[6] = 0.0 if unit.tier else 1.0
    facts[7] = unit.arrived
    facts[8] = unit.born
    facts[9] = now
    facts[10] = unit.stage


@kernel
def score_of(isl: Island, pol: PolicyTables, u: int, now: float) -> float:
    """The policy's score of a unit at program time `now`."""
    state_facts(isl, u, now, pol.facts)
    return as_score(pol.verbs[V_SCORE, 0], pol.verbs[V_SCORE, 1])(pol.facts, pol.params)


@outlined
def key_of(isl: Island, pol: PolicyTables, u: int, now: float) -> float:
    """The same for tables of keys, which all that `tell` is told of calls."""
    return float(score_of(isl, pol, u, now))


@kernel
def tell(isl: Island, pol: PolicyTables, kind: int, u: int) -> None:
    """The evict policy learns that a unit became resident, was used, was evicted or was freed."""
    t, rules, buffers = isl.tenants[0], pol.rules[0], pol.buffers[0]
    size = isl.units[u].size
    if rules.form == NO_EVICTION or size == 0:
        return
    if rules.form == ASKED:
        if rules.asks:
            note = pol.notes[buffers.notes]
            buffers.notes += 1
            note.kind, note.unit, note.size = kind, u, size
        return
    if rules.form == SCORE_NOW:
        return
    if kind == N_TOUCH:
        if rules.touches:
            key = key_of(isl, pol, u, t.program) if rules.form == SCORE else 0.0
            as_touch(pol.verbs[V_TOUCH, 0], pol.verbs[V_TOUCH, 1])(pol.evict, pol.evict_keys, u, size, key)
    elif kind == N_INSERT:
        key = key_of(isl, pol, u, t.program) if rules.form == SCORE else 0.0
        as_insert(pol.verbs[V_INSERT, 0], pol.verbs[V_INSERT, 1])(pol.evict, pol.evict_keys, u, size, key)
    else:
        key = 1.0 if kind == N_EVICT else 0.0
        as_remove(pol.verbs[V_REMOVE, 0], pol.verbs[V_REMOVE, 1])(pol.evict, pol.evict_keys, u, size, key)


@kernel
def lowest_score(isl: Island, pol: PolicyTables) -> int:
    """The resident unit with the lowest score now (ties: lowest id), among all or among `sample` drawn ones; -1 if none."""
    t, rules = isl.tenants[0], pol.rules[0]
    best, lowest = -1, math.inf
    n = t.residents
    draws = n if rules.sample == 0 else min(n, rules.sample)
    for i in range(draws):
        at = i
        if rules.sample:
            x = rules.random  # xorshift64 (Marsaglia 2003), kept below 2^62 so that plain Python integers agree
            x ^= (x << 13) & 0x3FFFFFFFFFFFFFFF
            x ^= x >> 7
            x ^= (x << 17) & 0x3FFFFFFFFFFFFFFF
            rules.random = x
            at = x % n
        u = isl.lists[RESIDENTS, at]
        if isl.flags[LOCKED, u] == 0:
            key = score_of(isl, pol, u, t.program)
            if key < lowest or (key == lowest and u < best) or best < 0:
                best, lowest = u, key
    return best


@kernel
def may_leave(isl: Island, u: int) -> bool:
    """Whether a policy may name this unit as a victim."""
    return u < isl.units.size and isl.units[u].slot >= 0 and isl.flags[LOCKED, u] == 0


@kernel
def choose(isl: Island, pol: PolicyTables, incoming: int) -> int:
    """A unit to evict, -1 when there is none, -2 when Python has to be asked: the policy, or what decides in its place."""
    rules = pol.rules[0]
    if rules.decides != VICTIM:
        return named(isl, pol, incoming)
    if rules.asked_at < rules.asked:
        rules.asked_at += 1
        return isl.lists[VICTIMS, 0]
    isl.lists[VICTIMS, 0] = named(isl, pol, incoming)
    return -2 if isl.lists[VICTIMS, 0] >= 0 else -1


@outlined
def named(isl: Island, pol: PolicyTables, incoming: int) -> int:
    """The unit that the policy names, -1 when there is none, -2 when it is in plain Python and has to be asked."""
    rules = pol.rules[0]
    if rules.form == NO_EVICTION:
        return -1
    if rules.form == ASKED:
        while rules.asked_at < rules.asked:
            u = isl.lists[VICTIMS, rules.asked_at]
            rules.asked_at += 1
            # A victim that has been used since the answer is no longer one.
            if isl.units[u].slot >= 0 and isl.flags[LOCKED, u] == 0 and isl.units[u].last <= rules.asked_time:
                return u
        return -2
    if rules.form == SCORE_NOW:
        u = lowest_score(isl, pol)
        if u < 0 and rules.sample:  # the draw hit only locked units
            sample, rules.sample = rules.sample, 0
            u = lowest_score(isl, pol)
            rules.sample = sample
        return u
    size = isl.units[incoming].size
    return as_victim(pol.verbs[V_VICTIM, 0], pol.verbs[V_VICTIM, 1])(
        pol.evict, pol.evict_keys, incoming, size, isl.flags[LOCKED]
    )
