"""Users' policies of pages: which region comes with a page fault, and whether a block belongs into the GPU's memory."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import outlined
from gpusim.engine.pages import density
from gpusim.engine.pages.ahead import enqueue
from gpusim.engine.pages.asked import PythonPolicies
from gpusim.engine.pages.asked import score as in_python
from gpusim.engine.pages.bits import PAGES, add, clear, copy, count, fill, next_set, none, subtract, total
from gpusim.engine.pages.driver_tables import (
    EVICTED,
    FREE,
    GUESS,
    LEAVES,
    NONE,
    PREFETCH,
    RESIDENT,
    THRASHING,
    WANTED,
    DriverState,
    row,
    scratch,
    shared,
)
from gpusim.policies.contract import ASK, BLOCK_FACTS, REGION_FACTS, SCORE
from gpusim.policies.forms import PagePolicy
from gpusim.policies.verb_table import addresses, called


class PageVerbs(NamedTuple):
    """The answers of users' policies, as the driver asks for them; None: the driver's own rule."""

    region: Annotated[Any, SCORE]
    block: Annotated[Any, SCORE]
    learner: Annotated[Any, ASK]


as_region, V_REGION = called(PageVerbs, "region")
as_block, V_BLOCK = called(PageVerbs, "block")
as_learner, V_LEARNER = called(PageVerbs, "learner")
(R_PAGES, R_PRESENT, R_BLOCK_PAGES, R_FAULTED, R_FAULTS, R_EVICTED, R_EVICTIONS, R_ARRAY, R_AHEAD, R_WASTED, R_FREE,
 R_ACCESSES, R_THRESHOLD, R_NOW, R_DISTANCE, R_STRIDE, R_SURE, R_BLOCK) = range(len(REGION_FACTS))  # fmt: skip
AHEAD = 64  # blocks, at most
B_HERE, B_ACCESSES, B_USES, B_IDLE, B_FAULTS, B_EVICTIONS, B_ARRAY, B_FREE, B_WRITE, B_NOW, B_BLOCK = range(len(BLOCK_FACTS))


def install(M: DriverState, region: PagePolicy | None, block: PagePolicy | None, asked: PythonPolicies) -> DriverState:
    """The tables with these policies at work."""
    M = M._replace(queue=np.zeros(len(M.blocks), np.int64))
    learner = asked.learner(M, region) if region is not None and not (region.score or region.facts) else None
    regions = None if learner else region
    verbs = PageVerbs(regions and (regions.score or in_python), block and (block.score or in_python), learner)
    params = [
        np.zeros(0) if policy is None else policy.params if policy.score else asked.of_facts(M, policy, facts)
        for policy, facts in ((regions, M.region_facts), (block, M.block_facts))
    ]
    length = max(1, *(len(values) for values in params))
    s = M.state[0]
    s["regions"], s["migrates"], s["asks"] = regions is not None, block is not None, learner is not None
    s["reaches"] = regions is not None and "distance" in regions.facts
    s["counters"] |= block is not None
    if block is not None:
        s["watches"] = s["follows"] = 1
    return M._replace(
        page_verbs=addresses(verbs),
        page_params=np.stack([np.pad(values, (0, length - len(values))) for values in params]),
    )


@outlined
def free_share(M: DriverState, g: int) -> float:
    return float(M.gpus[g].length[FREE] / max(M.gpus[g].roots, 1))


@outlined
def wanted(M: DriverState, p: int, b: int, n_faulted: int, pages: int, first: int, outer: int, distance: int) -> bool:
    """Does region [first, outer) of block b come, so many blocks ahead?  Row LEAVES has what is there or asked for."""
    s, block, F, W = M.state[0], M.blocks[b], M.region_facts, M.bits
    F[R_PAGES], F[R_PRESENT] = pages, count(W, scratch(M, LEAVES), first, outer)
    F[R_BLOCK_PAGES], F[R_FAULTED], F[R_FAULTS] = block.pages, n_faulted, block.services
    F[R_EVICTED], F[R_EVICTIONS] = count(W, shared(M, EVICTED, b), first, outer), block.departures
    F[R_ARRAY], F[R_FREE], F[R_ACCESSES] = block.range, free_share(M, p), M.counters[p, b].accesses
    F[R_AHEAD], F[R_WASTED] = M.ranges[block.range].came[PREFETCH], M.ranges[block.range].wasted
    F[R_THRESHOLD], F[R_NOW], F[R_DISTANCE], F[R_BLOCK] = s.threshold, s.now, distance, b
    if s.reaches:
        F[R_STRIDE], F[R_SURE] = M.streams[block.range].stride, M.streams[block.range].sure
    answer = as_region(M.page_verbs[V_REGION, 0], M.page_verbs[V_REGION, 1])
    return bool(answer(F, M.page_params[V_REGION]) > 0.0)


@outlined
def region(M: DriverState, p: int, b: int, n_faulted: int, page: int, shift: int, n_leaves: int) -> tuple[int, int]:
    """The pages [first, outer) of the largest node above `page` that the policy wants; the tree is that of `density.region`."""
    leaf, size = page + shift, 1
    while size < n_leaves:
        size *= 2
    while size > 0:
        a = leaf & ~(size - 1)
        c = min(a + size, n_leaves)
        if wanted(M, p, b, n_faulted, c - a, max(a - shift, 0), c - shift, 0):
            return (shift if a < shift else a - shift), c - shift
        size //= 2
    return 0, 0


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    """Row GUESS: the largest region around each faulted page that the policy wants, of sizes that double up to the block."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    leaves, thrashing, out = scratch(M, LEAVES), shared(M, THRASHING, b), scratch(M, GUESS)
    clear(W, out)
    copy(W, leaves, row(M, p, RESIDENT, b))
    add(W, leaves, faulted)
    density.grow(W, faulted, thrashing, leaves, block.offset, block.pages, s.big)
    n_faulted = total(W, faulted)
    start = density.first_big(block.offset, block.pages, s.big)
    shift = s.big - start if start > 0 else 0
    page = next_set(W, faulted, 0, PAGES)
    while page < PAGES:
        first, outer = region(M, p, b, n_faulted, page, shift, block.pages + shift)
        fill(W, out, first, outer)
        page = next_set(W, faulted, max(page + 1, outer), PAGES)
    subtract(W, out, faulted)
    subtract(W, out, thrashing)
    if s.reaches:
        ahead(M, p, b)


@outlined
def launches(M: DriverState, g: int) -> None:
    """A learner hears of the kernel that begins."""
    as_learner(M.page_verbs[V_LEARNER, 0], M.page_verbs[V_LEARNER, 1])(1, g, M.state[0].kernel, 0)


@outlined
def learns(M: DriverState, p: int, b: int, faulted: int) -> bool:
    """A learner hears of a fault, and has said in row GUESS what comes with it; False: what the driver's tree says comes."""
    return bool(as_learner(M.page_verbs[V_LEARNER, 0], M.page_verbs[V_LEARNER, 1])(0, p, b, faulted) >= 0.0)


@outlined
def ahead(M: DriverState, p: int, b: int) -> None:
    """Whole blocks beyond the one that has faulted come while the link is idle, as far as the policy wants them."""
    s, W, x = M.state[0], M.bits, M.streams[M.blocks[b].range]
    if x.last and b + 1 != x.last:
        x.sure = x.sure + 1 if b + 1 - x.last == x.stride else 0
        x.stride = b + 1 - x.last
    x.last = b + 1
    leaves, way = scratch(M, LEAVES), -1 if x.stride < 0 else 1
    for k in range(1, AHEAD + 1):
        c = b + way * k
        if c < 0 or c >= s.blocks or M.blocks[c].range != M.blocks[b].range:
            return
        pages, more = M.blocks[c].pages, shared(M, WANTED, c)
        copy(W, leaves, row(M, p, RESIDENT, c))
        if not wanted(M, p, c, 0, pages, 0, pages, k):
            return
        fill(W, more, 0, pages)
        subtract(W, more, leaves)
        if not none(W, more):
            enqueue(M, p, c)


@outlined
def belongs(M: DriverState, g: int, b: int, write: bool) -> bool:
    """Does block b belong into the memory of GPU g?"""
    s, block, F = M.state[0], M.blocks[b], M.block_facts
    r = M.chunk[g, b]
    here = r != NONE
    F[B_HERE], F[B_ACCESSES] = here, M.counters[g, b].accesses
    F[B_USES], F[B_IDLE] = (M.roots[r].uses, s.now - M.roots[r].used) if here else (0.0, 0.0)
    F[B_FAULTS], F[B_EVICTIONS], F[B_ARRAY] = block.services, block.departures, block.range
    F[B_FREE], F[B_WRITE], F[B_NOW], F[B_BLOCK] = free_share(M, g), write, s.now, b
    answer = as_block(M.page_verbs[V_BLOCK, 0], M.page_verbs[V_BLOCK, 1])
    return bool(answer(F, M.page_params[V_BLOCK]) > 0.0)
