"""vLLM's asynchronous scheduling: a step is composed while the one before it is computed, and its output has not come.

A request counts as computed what is in steps under way, and owes output tokens whose values are not known yet.  When its output
would end with those, it is not scheduled; an end that the engine cannot foresee wastes its row of the next step.  The output of
a preempted request still comes, before it can run again.  Where tiers write to blocks, those of a step under way are fenced.

Source: vLLM 0.33.0, v1/core/sched/async_scheduler.py and scheduler.py, `EngineCore.step_with_batch_queue` (Apache-2.0), in own
words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.block_pool import BlockPool
from gpusim.policies.schedule.parts.tables import N_STEP, TIERS, RequestTable, StepTable
from gpusim.policies.schedule.parts.vllm_blocks import free_blocks, length
from gpusim.policies.schedule.parts.vllm_tables import ASYNC, DONE, FENCED, FORESEES, OLDEST, SENT, UNDER_WAY, VllmTables


@kernel
def owed_to(own: VllmTables, r: int) -> int:
    """Output tokens that steps under way will bring."""
    return int(own.owed[r]) if own.option[ASYNC] else 0


@kernel
def ends_with_what_is_owed(own: VllmTables, requests: RequestTable, step: StepTable, r: int) -> bool:
    """The last token of the output is in a step under way."""
    if own.option[FORESEES] == 0 or own.owed[r] == 0:
        return False
    return bool(step.computed[r] + 2 - own.owed[r] >= requests.prompt[r] + requests.output[r])


@kernel
def forget_output(own: VllmTables, r: int) -> None:
    """The request is preempted: what comes of steps under way does not count as computed."""
    own.stale[r], own.owed[r] = own.flying[r], 0


@kernel
def still_written(own: VllmTables, step: StepTable, r: int) -> bool:
    """A step under way may write to the request's blocks, which a tier must not do as well."""
    return bool(own.option[ASYNC] and step.word[TIERS] and own.latest[r] > own.word[DONE])


@outlined
def set_out(own: VllmTables, requests: RequestTable, step: StepTable) -> None:
    """The step that has been composed is under way."""
    half = own.flight.shape[0] // 2
    side = (own.word[OLDEST] + own.word[UNDER_WAY]) % 2
    own.word[UNDER_WAY] += 1
    own.word[SENT] += 1
    own.rows[side] = step.word[N_STEP]
    for row in range(step.word[N_STEP]):
        r, n, x = step.request[row], step.tokens[row], own.flight[side * half + row]
        step.computed[r] += n
        own.flying[r] += n
        own.latest[r] = own.word[SENT]
        brings = step.computed[r] >= length(requests, step, r) + own.owed[r]
        if brings:
            own.partial[r] = 0
            own.owed[r] += 1
        x[0], x[1], x[2], x[3] = r, n, step.before[row], brings


@outlined
def come_back(own: VllmTables, step: StepTable, pool: BlockPool) -> int:
    """The older step under way is over: its rows stand in the table again, fences that it was behind fall; its first flight."""
    half, side = own.flight.shape[0] // 2, own.word[OLDEST]
    own.word[OLDEST] = 1 - side
    own.word[UNDER_WAY] -= 1
    own.word[DONE] += 1
    drop_fences(own, pool)
    step.word[N_STEP] = own.rows[side]
    for row in range(own.rows[side]):
        x = own.flight[side * half + row]
        step.request[row], step.tokens[row], step.before[row] = x[0], x[1], x[2]
    return int(side * half)


@kernel
def drop_fences(own: VllmTables, pool: BlockPool) -> None:
    """Blocks behind fences whose steps are over are free, the first fence first."""
    count, fallen = own.word[FENCED], 0
    while fallen < count and own.fence[fallen, 1] <= own.word[DONE]:
        free_blocks(own, pool, own.fence[fallen, 0])
        fallen += 1
    for i in range(fallen, count):
        own.fence[i - fallen, 0], own.fence[i - fallen, 1] = own.fence[i, 0], own.fence[i, 1]
    own.word[FENCED] = count - fallen


@kernel
def release(own: VllmTables, step: StepTable, pool: BlockPool, r: int) -> None:
    """The request has ended: its blocks are free, or go behind a fence."""
    if not still_written(own, step, r):
        free_blocks(own, pool, r)
    elif own.slot[r] >= 0:
        own.fence[own.word[FENCED], 0], own.fence[own.word[FENCED], 1] = r, own.word[SENT]
        own.word[FENCED] += 1
