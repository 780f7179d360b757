"""Verbs of a scheduler in plain Python: `compose` asks for the next step, carries that out, and asks again where blocks lack.

Blocks, prefix cache and queues are those of vLLM 0.33.
"""

from __future__ import annotations

import numpy as np
from numba import types

from gpusim.base.compiled import Placed, entry, kernel, outlined
from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.schedule import vllm
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts import vllm_tables as v
from gpusim.policies.schedule.parts.block_pool import (
    NAMELESS,
    POOL_FREE,
    BlockPool,
    pool_at,
    put_between,
    unlink,
)
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.tables import VERB, RequestTable, StepTable, requests_at, step_at
from gpusim.policies.schedule.parts.vllm_blocks import allocate, length, name_blocks
from gpusim.policies.schedule.parts.vllm_options import numbers
from gpusim.policies.schedule.parts.vllm_queue import hold, hold_no_more, wait_no_more
from gpusim.policies.schedule.parts.vllm_step import (
    ADMITTED,
    add_row,
    admit,
    begin_step,
    capped,
    end_step,
    not_asked,
    preempt,
    settle,
)
from gpusim.policies.schedule.parts.vllm_tables import VllmTables, vllm_at
from gpusim.policies.schedule.parts.waiting import HOLDING, IN_LINE, WaitingTable, end_of, waiting_at

ARRAY = types.Array(types.int64, 1, "C")
arrive, over, leave, loaded = vllm.arrive, vllm.over, vllm.leave, vllm.loaded
NOBODY, NO_MORE = -1, -2  # in the place of a victim
TOLD_TWICE, NOT_THERE, TOO_MANY_TOKENS, TOO_MANY_REQUESTS = range(1, 5)  # what is wrong with an order


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Tables as those of vLLM 0.33 without asynchronous scheduling, with room for the order that Python gives."""
    return vllm.placed(shared, limits, np.array(numbers(vllm.PARAMS | {"async_scheduling": 0})), shared.requests.arrival.size)


@kernel
def may_start(own: VllmTables, step: StepTable, r: int) -> bool:
    """Whether a place is free, and no request has been preempted in this step; r itself has not, where others may have been."""
    if step.word[t.N_RUNNING] >= own.option[v.MAX_SEQS]:
        return False
    stopped = step.word[t.N_PREEMPTED] > 0 and own.option[v.GOES_ON] == 0
    for i in range(step.word[t.N_PREEMPTED]):
        stopped |= step.preempted[i] == r
    return not stopped


@outlined
def run_in_order(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable) -> int:
    """Tokens for the requests in the order that was given; 0, ASK_TIER, or ASK where the one at POSITION finds no blocks."""
    word, option = own.word, own.option
    while word[v.POSITION] < word[v.LISTED] and word[v.BUDGET] > 0:
        r, wish = own.order[word[v.POSITION]], own.wish[word[v.POSITION]]
        if step.status[r] == t.RUNNING:
            computed = step.computed[r]
            n = min(capped(length(requests, step, r) - computed, wish), word[v.BUDGET], option[v.MAX_LEN] - 1 - computed)
            if n > 0:
                if not allocate(own, requests, step, pool, r, computed + n, 0, 0):
                    return t.ASK
                name_blocks(own, requests, step, pool, r, computed + n)
                add_row(own, step, r, n)
        elif may_start(own, step, r):
            if step.status[r] == t.LOADING and own.arrived[r]:
                settle(own, requests, step, pool, r)
            if step.status[r] != t.LOADING:
                if not_asked(own, requests, step, pool, r):
                    return t.ASK_TIER
                if admit(own, requests, step, pool, queue, r, wish) != ADMITTED:
                    return t.ASK
                leave_queue(own, requests, step, queue, r)
        word[v.POSITION] += 1
    return 0


@kernel
def leave_queue(own: VllmTables, requests: RequestTable, step: StepTable, queue: WaitingTable, r: int) -> None:
    """The request has been admitted: it runs, or holds blocks until its keys and values come."""
    if step.status[r] == t.RUNNING:
        step.word[t.N_WAITING] -= 1
        if own.holder[r]:
            hold_no_more(own, queue, r)
        else:
            wait_no_more(own, requests, queue, r)
    elif own.holder[r] == 0:
        wait_no_more(own, requests, queue, r)
        hold(own, requests, queue, r)


@kernel
def list_ring(own: VllmTables, queue: WaitingTable, ring: int, n: int) -> int:
    end = end_of(queue, ring)
    r = queue.behind[end]
    while r != end:
        own.order[n] = r
        n += 1
        r = queue.behind[r]
    return n


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = vllm_at(at)
    requests, step = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP])
    pool, queue = pool_at(own.at[v.TO_POOL]), waiting_at(own.at[v.TO_QUEUE])
    if own.word[v.PHASE] == v.FRESH:
        begin_step(own, step)
        n = step.word[t.N_RUNNING]
        for i in range(n):
            own.order[i] = own.running[i]
        own.word[v.LISTED] = n = list_ring(own, queue, IN_LINE, list_ring(own, queue, HOLDING, n))
        own.word[v.PHASE] = v.HEARING if n else v.ORDERED
        own.word[v.POSITION] = 0
    if own.word[v.PHASE] != v.ORDERED:
        return t.ASK
    stopped = run_in_order(own, requests, step, pool, queue)
    if stopped:
        own.word[v.PHASE] = v.LACKING if stopped == t.ASK else v.ORDERED
        return stopped
    own.word[v.PHASE] = v.FRESH
    step.word[t.FREE] = pool.word[POOL_FREE]
    step.word[t.STEPS] += 1
    return end_step(step)


@entry(types.UniTuple(types.int64, 2)(types.int64, ARRAY, ARRAY))
def take_order(at: int, order: I64, wish: I64) -> tuple[int, int]:
    """Run these requests, in this order; (what is wrong, with which of them), or (0, 0)."""
    own = vllm_at(at)
    step = step_at(own.at[v.TO_STEP])
    stamp, tokens, starts = step.word[t.STEPS] + 1, 0, 0
    for i in range(order.size):
        r = order[i]
        if r < 0 or r >= step.status.size or step.status[r] < t.WAITING or step.status[r] > t.PREEMPTED:
            return NOT_THERE, i
        if own.mark[r] == stamp:
            return TOLD_TWICE, i
        own.mark[r], own.order[i], own.wish[i] = stamp, r, wish[i]
        tokens += wish[i]
        starts += wish[i] > 0 and step.status[r] != t.RUNNING
        if tokens > own.option[v.MAX_TOKENS]:
            return TOO_MANY_TOKENS, i
        if starts + step.word[t.N_RUNNING] > own.option[v.MAX_SEQS]:
            return TOO_MANY_REQUESTS, i
    own.word[v.LISTED], own.word[v.POSITION], own.word[v.PHASE] = order.size, 0, v.ORDERED
    return 0, 0


@entry(VERB)
def give_way(at: int, victim: int, now: int) -> int:
    """Preempt this request and go on; NOBODY: the next one is tried, NO_MORE: none is.  0, or NOT_THERE: it does not run."""
    own = vllm_at(at)
    requests, step = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP])
    pool, queue = pool_at(own.at[v.TO_POOL]), waiting_at(own.at[v.TO_QUEUE])
    if victim == NO_MORE:
        own.word[v.POSITION] = own.word[v.LISTED]
    elif victim == NOBODY:
        own.word[v.POSITION] += 1
    elif victim < 0 or victim >= step.status.size or step.status[victim] != t.RUNNING:
        return NOT_THERE
    else:
        place = 0
        while own.running[place] != victim:
            place += 1
        preempt(own, requests, step, pool, queue, place)
    own.word[v.PHASE] = v.ORDERED
    return 0


@entry(types.int64(types.int64, ARRAY))
def list_cached(at: int, found: I64) -> int:
    """Unused blocks that can be found, in the order in which they would be reused; how many."""
    pool, n = pool_at(vllm_at(at).at[v.TO_POOL]), 0
    block = pool.after[0]
    while block != 0:
        if pool.name[block] != NAMELESS:
            found[n] = block
            n += 1
        block = pool.after[block]
    return n


@entry(types.int64(types.int64, ARRAY))
def reuse_first(at: int, blocks: I64) -> int:
    """These blocks are reused before all others that can be found; -1, or which of them is not free."""
    pool = pool_at(vllm_at(at).at[v.TO_POOL])
    for i in range(blocks.size):
        block = blocks[i]
        if block < 1 or block >= pool.users.size or pool.users[block] > 0 or pool.name[block] == NAMELESS:
            return i
    for i in range(blocks.size - 1, -1, -1):
        unlink(pool, blocks[i])
        first = pool.after[0]
        while first != 0 and pool.name[first] == NAMELESS:
            first = pool.after[first]
        put_between(pool, blocks[i], pool.before[first], first)
    return -1
