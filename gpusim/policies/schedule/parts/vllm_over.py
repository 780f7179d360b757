"""The end of a step of vLLM v1's scheduler: which requests have made a token, and which have ended.

Source: vLLM's `Scheduler.update_from_output` (Apache-2.0), in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.block_pool import BlockPool
from gpusim.policies.schedule.parts.tables import (
    FINISHED,
    LOADING,
    N_RUNNING,
    N_STEP,
    N_WAITING,
    PREEMPTED,
    RUNNING,
    SWAPPED,
    WAITING,
    RequestTable,
    StepTable,
)
from gpusim.policies.schedule.parts.vllm_ahead import come_back, release
from gpusim.policies.schedule.parts.vllm_blocks import length, name_blocks
from gpusim.policies.schedule.parts.vllm_queue import hold_no_more, wait_no_more
from gpusim.policies.schedule.parts.vllm_tables import HOLDERS_FIRST, MAX_LEN, VllmTables
from gpusim.policies.schedule.parts.waiting import WaitingTable


@kernel
def makes_its_last(own: VllmTables, requests: RequestTable, step: StepTable, r: int) -> bool:
    """The request makes a token; whether that is its last one."""
    step.made[r] += 1
    return bool(step.made[r] >= requests.output[r] or length(requests, step, r) >= own.option[MAX_LEN])


@outlined
def end_rows(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable) -> int:
    """The rows of the step at hand are computed; how many requests have ended."""
    ended = 0
    for row in range(step.word[N_STEP]):
        r = step.request[row]
        step.computed[r] += step.tokens[row]
        if step.computed[r] < length(requests, step, r):
            continue
        own.partial[r] = 0
        if makes_its_last(own, requests, step, r):
            end(own, requests, step, pool, queue, r, FINISHED)
            step.ended[ended] = r
            ended += 1
    return ended


@outlined
def end_flights(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable) -> int:
    """The same of the older step under way, whose requests may have gone, or been preempted, since it was composed."""
    first, ended = come_back(own, step, pool), 0
    for row in range(step.word[N_STEP]):
        r, n = step.request[row], step.tokens[row]
        own.flying[r] -= n
        stale = own.stale[r] > 0
        if stale:
            own.stale[r] -= n
        if step.status[r] > SWAPPED or own.flight[first + row, 3] == 0:
            continue
        last, due = makes_its_last(own, requests, step, r), not stale and own.owed[r] > 0
        if due:
            own.owed[r] -= 1
            if step.status[r] == RUNNING:
                name_blocks(own, requests, step, pool, r, step.computed[r] - own.flying[r])
        if last:
            end(own, requests, step, pool, queue, r, FINISHED)
            step.ended[ended] = r
            ended += 1
    return ended


@outlined
def end(
    own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable, r: int, status: int
) -> None:
    """The request is over: it waits no more, and its blocks are free, at once unless a load still writes to them."""
    was = step.status[r]
    step.status[r] = status
    if own.holder[r]:
        hold_no_more(own, queue, r)
    elif was in (WAITING, PREEMPTED, LOADING):
        wait_no_more(own, requests, queue, r)
    if was in (WAITING, PREEMPTED, LOADING):
        step.word[N_WAITING] -= 1
    if was != LOADING or own.arrived[r] or own.option[HOLDERS_FIRST] == 0:
        release(own, step, pool, r)


@kernel
def close_ranks(own: VllmTables, step: StepTable) -> None:
    """Requests that have ended are running no more."""
    left = 0
    for i in range(step.word[N_RUNNING]):
        if step.status[own.running[i]] == RUNNING:
            own.running[left] = own.running[i]
            left += 1
    step.word[N_RUNNING] = left
