"""The eviction policies of `gpusim.policies.evict`, and users' own, over root chunks: one unit is what lies in a chunk.

A unit has the number of its block, so that a policy knows a block that comes again; a chunk that small allocations share has a
number behind those of all blocks.  Verbs are called at their address, once for each thing that happens to a chunk.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages import asked as in_python
from gpusim.engine.pages.asked import PythonPolicies
from gpusim.engine.pages.bits import count
from gpusim.engine.pages.driver_tables import DIRTY, NONE, PREFETCHED, USED, DriverState, shared
from gpusim.engine.pages.foresight import NEVER, next_use
from gpusim.policies.contract import CHUNK_FACTS, FACTS, INSERT, REMOVE, SCORE, TOUCH, VICTIM
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.verb_table import addresses, called

ORDERED, SCORED, SCORED_NOW = 1, 2, 3  # STATE.own; 0: the driver's order
FORMS = {"ordered": ORDERED, "score": SCORED, "score_now": SCORED_NOW, "ask": ORDERED}


class ChunkVerbs(NamedTuple):
    """The verbs of an eviction policy, as the driver calls them."""

    insert: Annotated[Any, INSERT]
    touch: Annotated[Any, TOUCH]
    remove: Annotated[Any, REMOVE]
    victim: Annotated[Any, VICTIM]
    score: Annotated[Any, SCORE]


as_insert, V_INSERT = called(ChunkVerbs, "insert")
as_touch, V_TOUCH = called(ChunkVerbs, "touch")
as_remove, V_REMOVE = called(ChunkVerbs, "remove")
as_victim, V_VICTIM = called(ChunkVerbs, "victim")
as_score, V_SCORE = called(ChunkVerbs, "score")

(F_SIZE, F_LAST_USE, F_NEXT_USE, F_USES, F_RELOAD, F_EVICT, F_DIRTY, F_ARRIVED, F_NOW, F_FAULTS, F_EVICTIONS, F_UNTOUCHED,
 F_ARRAY, F_PROCESS, F_TURNS) = ([*FACTS, *CHUNK_FACTS].index(name) for name in (
     "size", "last_use", "next_use", "uses", "reload_ns", "evict_ns", "dirty", "arrived", "now", "faults", "evictions",
     "untouched", "array", "process", "turns"))  # fmt: skip


def install(M: DriverState, policy: EvictPolicy, seed: int, asked: PythonPolicies) -> DriverState:
    """The tables with this policy at work, on each GPU apart."""
    s, gpus = M.state[0], range(1, int(M.state["processors"][0]))
    units = len(M.blocks) + int(M.gpus["roots"].max())
    memory = [int(M.gpus[g]["roots"] * s["per_block"] * s["page_bytes"]) for g in gpus]
    M = M._replace(locks=np.zeros((len(M.gpus), units), np.uint8))
    verbs = ChunkVerbs(policy.insert, policy.touch, policy.remove, policy.victim, policy.score)
    if policy.form == "ask":
        tables = [asked.of_chunks(M, policy, g, units, n_bytes, seed) for g, n_bytes in zip(gpus, memory, strict=True)]
        verbs = ChunkVerbs(in_python.insert, in_python.touch, in_python.remove, in_python.victim, policy.score)
    else:
        tables = [policy.state(units, n_bytes, policy.params, seed) for n_bytes in memory]
    s["own"], s["hears"], s["sample"] = FORMS[policy.form], policy.touches, policy.sample
    s["follows"] = s["watches"] = policy.touches
    return M._replace(
        unit_words=np.stack([tables[0][0], *(words for words, _ in tables)]),
        unit_numbers=np.stack([tables[0][1], *(numbers for _, numbers in tables)]),
        verbs=addresses(verbs),
        params=np.append(policy.params, 0.0),
    )


@kernel
def unit_of(M: DriverState, g: int, r: int) -> int:
    owner = M.roots[r].owner
    return int(owner if owner >= 0 else len(M.blocks) + r - M.gpus[g].first_root)


@kernel
def chunk_of(M: DriverState, g: int, unit: int) -> int:
    return int(M.chunk[g, unit] if unit < len(M.blocks) else M.gpus[g].first_root + unit - len(M.blocks))


@outlined
def score(M: DriverState, g: int, r: int) -> float:
    """What the policy's score says of a chunk; 0 of a policy without one."""
    s, x, gpu, F = M.state[0], M.roots[r], M.gpus[g], M.facts
    if s.own == ORDERED:
        return 0.0
    n_bytes = s.per_block * s.page_bytes
    F[F_SIZE], F[F_LAST_USE], F[F_USES], F[F_ARRIVED], F[F_NOW] = n_bytes, x.used, x.uses, x.arrived, s.now
    F[F_RELOAD], F[F_EVICT] = gpu.in_start + n_bytes * gpu.in_byte, gpu.out_start + n_bytes * gpu.out_byte
    F[F_NEXT_USE], F[F_DIRTY], F[F_FAULTS], F[F_EVICTIONS], F[F_UNTOUCHED], F[F_ARRAY] = -1.0, 1.0, 0.0, 0.0, 0.0, NONE
    F[F_PROCESS], F[F_TURNS] = NONE, 0.0
    b = x.owner
    if b >= 0:
        block = M.blocks[b]
        due = next_use(M, b)
        F[F_NEXT_USE] = np.inf if due == NEVER else due
        F[F_DIRTY] = count(M.bits, shared(M, DIRTY, b), 0, block.pages) > 0
        F[F_UNTOUCHED] = count(M.bits, shared(M, PREFETCHED, b), 0, block.pages)
        F[F_FAULTS], F[F_EVICTIONS], F[F_ARRAY] = block.services, block.departures, block.range
        F[F_PROCESS], F[F_TURNS] = block.process, M.turns[block.process]
    return float(as_score(M.verbs[V_SCORE, 0], M.verbs[V_SCORE, 1])(F, M.params))


@outlined
def join(M: DriverState, g: int, r: int) -> None:
    """A chunk is in use from now on."""
    s, x = M.state[0], M.roots[r]
    x.uses, x.used, x.arrived = 0, s.now, s.now
    if not s.own:
        return
    x.unit = unit_of(M, g, r)
    key = score(M, g, r) if s.own == SCORED else 0.0
    insert = as_insert(M.verbs[V_INSERT, 0], M.verbs[V_INSERT, 1])
    insert(M.unit_words[g], M.unit_numbers[g], x.unit, s.per_block * s.page_bytes, key)


@outlined
def served(M: DriverState, g: int, r: int) -> None:
    """Pages of it came, or were asked for; a policy hears of it as of a use."""
    s, x = M.state[0], M.roots[r]
    x.used = s.now
    if s.hears and x.unit != NONE:
        key = score(M, g, r) if s.own == SCORED else 0.0
        touch = as_touch(M.verbs[V_TOUCH, 0], M.verbs[V_TOUCH, 1])
        touch(M.unit_words[g], M.unit_numbers[g], x.unit, s.per_block * s.page_bytes, key)


@outlined
def touched(M: DriverState, g: int, r: int) -> None:
    """A kernel has used a page of it."""
    M.roots[r].uses += 1
    served(M, g, r)


@outlined
def quit_(M: DriverState, g: int, r: int) -> None:
    """A chunk is in use no more."""
    s, x = M.state[0], M.roots[r]
    remove = as_remove(M.verbs[V_REMOVE, 0], M.verbs[V_REMOVE, 1])
    remove(M.unit_words[g], M.unit_numbers[g], x.unit, s.per_block * s.page_bytes, 1.0)
    x.unit = NONE


@kernel
def in_flight(M: DriverState, g: int, r: int) -> bool:
    """May the chunk have been served since the last replay?  Warps have not used it yet, and would fault on it again.

    Of a chunk that small allocations share it is not known.
    """
    owner = M.roots[r].owner
    return bool(owner < 0 or M.blocks[owner].served > M.counts[g].replays)


@outlined
def keep_locks(M: DriverState, g: int) -> None:
    """Row g of `locks`: the chunks in flight, of which those that came last are the newest of their list."""
    gpu, replays = M.gpus[g], M.counts[g].replays
    if gpu.replays_seen != replays:
        gpu.replays_seen = replays
        for unit in range(M.locks.shape[1]):
            M.locks[g, unit] = 0
    r = gpu.newest[USED]
    while r != NONE and in_flight(M, g, r) and not M.locks[g, M.roots[r].unit]:
        M.locks[g, M.roots[r].unit] = 1
        r = M.roots[r].older


@outlined
def least(M: DriverState, g: int) -> int:
    """Of a score that reads `now`: the chunk with the lowest one, among all in use or among a sample; NONE."""
    s, gpu = M.state[0], M.gpus[g]
    best, lowest = NONE, np.inf
    n = gpu.length[USED]
    step = max(n // s.sample, 1) if s.sample > 0 else 1
    r, k = gpu.oldest[USED], 0
    while r != NONE:
        if k % step == 0 and not M.roots[r].locked and not in_flight(M, g, r):
            value = score(M, g, r)
            if value < lowest:
                best, lowest = r, value
        r = M.roots[r].newer
        k += 1
    return int(best)


@outlined
def foremost(M: DriverState, g: int) -> int:
    """The chunk that leaves first, NONE if all are locked or in flight."""
    s = M.state[0]
    if s.own == SCORED_NOW:
        return int(least(M, g))
    keep_locks(M, g)
    victim = as_victim(M.verbs[V_VICTIM, 0], M.verbs[V_VICTIM, 1])
    while True:
        unit = victim(M.unit_words[g], M.unit_numbers[g], s.incoming, s.per_block * s.page_bytes, M.locks[g])
        if unit < 0:
            return NONE
        r = chunk_of(M, g, unit)
        if not M.roots[r].locked and not in_flight(M, g, r):
            return int(r)
        M.locks[g, unit] = 1
