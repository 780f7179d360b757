"""vLLM's v0 scheduler with its KV blocks, prefix cache and swap to the host's memory, block for block: vllm@0.9.

Prompts run alone, before tokens of running requests; with chunked prefill those go first, and prompts fill the step up.  Where
a running request finds no block, the last of them is preempted: it is computed again, or its blocks are swapped out, and come
back before new prompts start.  One sequence for each request; not modelled are beam search, several outputs of one prompt,
sliding windows, speculation, several steps at once, LoRA, and output processing beside the next step.

version  0.9, compared with 0.9.2
policy  fcfs, or priority: the lower number goes first
enable_prefix_caching  1: full blocks are found by later requests
enable_chunked_prefill  1: prompts are computed in parts beside tokens of running requests
preemption_mode  recompute or swap
num_cpu_blocks  in the host's memory, for swap
watermark  share of all blocks that stay free when a request starts or comes back
too_long  what becomes of a request longer than the model takes: reject (as the server) or cut (as the engine)

Source: vLLM 0.9.2, core/scheduler.py, core/block_manager.py, core/evictor.py (Apache-2.0), rules in own words.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import Placed, kernel
from gpusim.base.errors import PolicyError
from gpusim.base.tables import filled
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts import v0_options as given
from gpusim.policies.schedule.parts import v0_tables as v
from gpusim.policies.schedule.parts.arriving import misfit, note_arrival
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.tables import VERB, RequestTable, StepTable, requests_at, step_at
from gpusim.policies.schedule.parts.v0_blocks import all_computed, free, free_of
from gpusim.policies.schedule.parts.v0_step import admit_prompts, by_priority, close_ranks, come_back, queue_preempted, run_on
from gpusim.policies.schedule.parts.v0_tables import (
    DEVICE,
    HOST,
    POOLS,
    V0,
    BlockPools,
    V0Tables,
    block_pools,
    pools_at,
    v0_at,
)
from gpusim.policies.schedule.parts.vllm_blocks import length
from gpusim.policies.schedule.parts.waiting import (
    HOLDING,
    IN_LINE,
    WAITING_TABLE,
    WaitingTable,
    join_last,
    leave_ring,
    waiting_at,
    waiting_table,
)

NUMBERS = "gpusim.policies.schedule.parts.v0_options"
PARAMS = {
    "version": "0.9", "policy": "fcfs", "enable_prefix_caching": 0, "enable_chunked_prefill": 0,
    "preemption_mode": "recompute", "num_cpu_blocks": 0, "watermark": 0.01, "too_long": "reject",
}  # fmt: skip
LIMITS = {"watermark": 0.999999}


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError for limits with which the engine would not start."""
    if not params[given.P_CHUNKED] and limits.max_tokens < limits.max_len:
        said = f"without chunked prefill a step of {limits.max_tokens} tokens cannot take a prompt of {limits.max_len}"
        raise PolicyError(said, hint="raise the tokens of a step to the longest sequence, or lower that")
    n, host = shared.requests.arrival.size, int(params[given.P_HOST])
    pools = Placed(block_pools(limits.blocks, host), POOLS)
    queue = Placed(waiting_table(n, False), WAITING_TABLE)
    slots = min(n, limits.max_seqs + limits.blocks + host)
    width = -(-limits.max_len // limits.block_size) + 1
    own = filled(V0Tables, {"requests": n, "slots": slots, "blocks of a request": width})
    own.at[:] = shared.requests_at, shared.step_at, pools.address, queue.address
    own.option[:] = [
        limits.block_size, max(int(shared.requests.piece[0]) // limits.block_size, 1), limits.max_seqs, limits.max_tokens,
        limits.max_len, *(int(params[p]) for p in (given.P_PRIORITY, given.P_CACHING, given.P_CHUNKED, given.P_SWAPS)),
        int(params[given.P_WATERMARK] * limits.blocks), int(params[given.P_CUTS]),
    ]  # fmt: skip
    own.slot[:], own.used[:], own.free_slot[:], own.word[v.SLOTS_FREE] = -1, -1, np.arange(slots), slots
    shared.step.word[t.FREE] = shared.step.word[t.BLOCKS] = limits.blocks
    return [Placed(own, V0), pools, queue]


@verb(VERB)
def arrive(at: int, r: int, now: int) -> int:
    own = v0_at(at)
    requests, step, queue = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP]), waiting_at(own.at[v.TO_QUEUE])
    cuts = own.option[v.CUTS] != 0
    most = own.option[v.MAX_LEN] + cuts  # where outputs are cut a prompt may be as long as a sequence
    reason = note_arrival(step, r, misfit(requests, r, most, cuts))
    if reason == 0:
        join_last(queue, IN_LINE, r)
        own.word[v.UNSORTED] = 1
    return reason


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = v0_at(at)
    requests, step = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP])
    pools, queue = pools_at(own.at[v.TO_POOLS]), waiting_at(own.at[v.TO_QUEUE])
    for word in range(8):  # the counts of rows
        step.word[word] = 0
    own.word[v.TIME] += 1
    own.word[v.TAKEN] = own.word[v.KEPT] = own.word[v.CAME] = own.word[v.BEGAN] = 0
    if own.option[v.CHUNKED]:
        tokens_first(own, requests, step, pools, queue)
    else:
        prompts_alone(own, requests, step, pools, queue)
    if own.word[v.NO_SWAP_SPACE]:
        return t.STOPPED
    close_ranks(own, requests, step)
    if step.word[t.N_STEP]:
        all_computed(pools)
    step.word[t.N_TOKENS], step.word[t.N_RUNNING] = own.word[v.TAKEN], own.word[v.RUNS]
    step.word[t.FREE] = free_of(pools, DEVICE)
    step.word[t.STEPS] += 1
    return step.word[t.N_STEP]


@kernel
def prompts_alone(
    own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, queue: WaitingTable
) -> None:
    own.word[v.COUNTED] = own.word[v.RUNS]
    if queue.count[HOLDING] == 0:
        admit_prompts(own, requests, step, pools, queue)
    if own.word[v.BEGAN]:
        return
    if own.option[v.BY_PRIORITY]:
        by_priority(own, requests, step, pools, queue)
    before = step.word[t.N_PREEMPTED]
    run_on(own, requests, step, pools)
    if step.word[t.N_PREEMPTED] == before:
        come_back(own, requests, step, pools, queue)
    queue_preempted(own, step, queue, before)


@kernel
def tokens_first(
    own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, queue: WaitingTable
) -> None:
    own.word[v.COUNTED] = 0
    run_on(own, requests, step, pools)
    if step.word[t.N_PREEMPTED] == 0:
        come_back(own, requests, step, pools, queue)
    admit_prompts(own, requests, step, pools, queue)
    queue_preempted(own, step, queue, 0)


@verb(VERB)
def over(at: int, r: int, now: int) -> int:
    own = v0_at(at)
    requests, step, pools = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP]), pools_at(own.at[v.TO_POOLS])
    for row in range(step.word[t.N_STEP]):
        request = step.request[row]
        step.computed[request] += own.chunk[request]
        if step.computed[request] < length(requests, step, request):
            continue
        own.decodes[request] = 1
        step.made[request] += 1
        if step.made[request] >= requests.output[request] or length(requests, step, request) >= own.option[v.MAX_LEN]:
            step.status[request] = t.FINISHED
    ended = left = 0
    for i in range(own.word[v.RUNS]):
        request = own.running[i]
        if step.status[request] == t.FINISHED:
            free(own, pools, request, DEVICE)
            step.ended[ended] = request
            ended += 1
        else:
            own.running[left] = request
            left += 1
    own.word[v.RUNS] = left
    step.word[t.N_ENDED], step.word[t.N_RUNNING], step.word[t.FREE] = ended, left, free_of(pools, DEVICE)
    return ended


@verb(VERB)
def leave(at: int, r: int, now: int) -> int:
    own = v0_at(at)
    step, pools, queue = step_at(own.at[v.TO_STEP]), pools_at(own.at[v.TO_POOLS]), waiting_at(own.at[v.TO_QUEUE])
    was = step.status[r]
    if was > t.SWAPPED:
        return 0
    if was == t.RUNNING:
        left = 0
        for i in range(own.word[v.RUNS]):
            if own.running[i] != r:
                own.running[left] = own.running[i]
                left += 1
        own.word[v.RUNS] = left
    else:
        leave_ring(queue, HOLDING if was == t.SWAPPED else IN_LINE, r)
        step.word[t.N_WAITING] -= 1
    free(own, pools, r, HOST if was == t.SWAPPED else DEVICE)
    step.status[r] = t.ABORTED
    step.word[t.N_RUNNING], step.word[t.FREE] = own.word[v.RUNS], free_of(pools, DEVICE)
    return 0


@verb(VERB)
def loaded(at: int, r: int, now: int) -> int:
    return 0  # it sends for nothing; swapped requests come back in the step that they are part of
