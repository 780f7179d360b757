"""vLLM's v1 scheduler with its KV blocks and prefix cache, block for block as the real classes: vllm@0.11, vllm@0.33.

Requests that run go first, in order; where blocks are short the last of them (or the one that matters least) is preempted and
computed again later.  Then waiting requests start, as long as the step has tokens and the pool has blocks.  One group of full
attention; not modelled are sliding windows, speculation and encoder inputs.

version  0.11 or 0.33
policy  fcfs, or priority: the lower number goes first
enable_prefix_caching  1: full blocks are found by later requests
long_prefill_token_threshold  the most tokens of one prompt in a step; 0: no bound
enable_chunked_prefill  0: a prompt is computed in one step
scheduler_reserve_full_isl  1: a request starts only when all its tokens would fit (0.33; auto: as the version has it)
watermark  share of all blocks that stay free when a request starts beside others (0.33)
async_scheduling  1: a step is composed while the one before is computed (0.33; auto: as the version has it, 0.33 does)
ignore_eos  1: outputs have lengths that the engine knows; 0: their last token ends them, and async scheduling learns it late
max_loras  LoRA adapters that the running requests have at most, others wait; 0: no bound
too_long  what becomes of a request longer than the model takes: reject (as the server) or cut (as the engine)

Source: vLLM 0.11.0 and 0.33.0, v1/core (Apache-2.0), rules in own words, compared step by step.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import Placed, kernel
from gpusim.base.errors import PolicyError
from gpusim.base.tables import filled
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts import vllm_options as given
from gpusim.policies.schedule.parts import vllm_tables as v
from gpusim.policies.schedule.parts.arriving import misfit, note_arrival
from gpusim.policies.schedule.parts.block_pool import POOL, POOL_FREE, block_pool, pool_at
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon, most_holders
from gpusim.policies.schedule.parts.tables import VERB, RequestTable, requests_at, step_at
from gpusim.policies.schedule.parts.vllm_adapters import count_adapters
from gpusim.policies.schedule.parts.vllm_ahead import release, set_out
from gpusim.policies.schedule.parts.vllm_blocks import blocks_for
from gpusim.policies.schedule.parts.vllm_over import close_ranks, end, end_flights, end_rows
from gpusim.policies.schedule.parts.vllm_queue import wait_last
from gpusim.policies.schedule.parts.vllm_step import (
    admit_holders,
    admit_waiting,
    begin_step,
    cap,
    drop_from_running,
    end_step,
    run_on,
)
from gpusim.policies.schedule.parts.vllm_tables import VLLM, VllmTables, vllm_at
from gpusim.policies.schedule.parts.waiting import WAITING_TABLE, waiting_at, waiting_table

NUMBERS = "gpusim.policies.schedule.parts.vllm_options"
PARAMS = {
    "version": "0.33", "policy": "fcfs", "enable_prefix_caching": 1, "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": 1, "scheduler_reserve_full_isl": "auto", "watermark": 0.0, "max_loras": 0,
    "async_scheduling": "auto", "ignore_eos": 1, "too_long": "reject",
}  # fmt: skip
LIMITS = {"watermark": 0.999999}
UNMODELLED = {
    "speculative_config": "speculation", "num_speculative_tokens": "speculation", "sliding_window": "attention within a window",
    "pipeline_parallel_size": "pipelines of GPUs",
}  # fmt: skip


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError for limits with which the engine would not start."""
    _check(limits, params)
    return placed(shared, limits, params)


def placed(shared: InCommon, limits: EngineLimits, params: F64, ordered: int = 1) -> list[Placed]:
    """The tables, with room for an order of so many requests."""
    n, seqs = shared.requests.arrival.size, limits.max_seqs
    by_priority = bool(params[given.P_PRIORITY])
    width = -(-limits.max_len // limits.block_size) + 1
    slots = most_holders(n, limits)
    pool = Placed(block_pool(limits.blocks), POOL)
    queue = Placed(waiting_table(n, by_priority), WAITING_TABLE)
    lengths = {"seqs": seqs, "requests": n, "slots": slots, "blocks of a request": width, "passed": n + 1, "ordered": ordered}
    if params[given.P_ASYNC]:
        lengths |= {"ahead": n, "flights": 2 * seqs, "fences": 2 * seqs, "slots": slots + 2 * seqs}
    lengths["adapters"] = 1 + int(shared.requests.adapter.max(initial=0))
    own = filled(VllmTables, lengths)
    own.at[:] = shared.requests_at, shared.step_at, pool.address, queue.address
    own.option[:] = _options(shared, limits, params)
    own.slot[:], own.free_slot[:], own.word[v.SLOTS_FREE] = -1, np.arange(own.free_slot.size), own.free_slot.size
    shared.step.word[t.AHEAD] = own.option[v.ASYNC]
    shared.step.word[t.FREE], shared.step.word[t.BLOCKS] = limits.blocks - 1, limits.blocks - 1
    return [Placed(own, VLLM), pool, queue]


def _options(shared: InCommon, limits: EngineLimits, params: F64) -> list[int]:
    whole = [int(params[i]) for i in range(given.P_WATERMARK)]
    watermark = int(params[given.P_WATERMARK] * limits.blocks)
    return [
        limits.block_size, max(int(shared.requests.piece[0]) // limits.block_size, 1), limits.max_seqs, limits.max_tokens,
        limits.max_len, limits.blocks - 1, *whole, watermark, *(int(rule) for rule in params[given.P_CUTS :]),
    ]  # fmt: skip


def _check(limits: EngineLimits, params: F64) -> None:
    if not params[given.P_CHUNKED] and limits.max_tokens < limits.max_len:
        said = f"without chunked prefill a step of {limits.max_tokens} tokens cannot take a prompt of {limits.max_len}"
        raise PolicyError(said, hint="raise the tokens of a step to the longest sequence, or lower that")
    if (wanted := -(-limits.max_len // limits.block_size)) > limits.blocks:
        said = f"one sequence of {limits.max_len} tokens needs {wanted} KV blocks, and there are {limits.blocks}"
        raise PolicyError(said, hint="vLLM does not start so: lower the longest sequence, or give it more memory")



@verb(VERB)
def arrive(at: int, r: int, now: int) -> int:
    own = vllm_at(at)
    requests, step, queue = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP]), waiting_at(own.at[v.TO_QUEUE])
    reason = note_arrival(step, r, refusal(own, requests, r))
    if reason == 0:
        wait_last(own, requests, queue, r)
    return reason


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = vllm_at(at)
    requests, step = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP])
    pool, queue = pool_at(own.at[v.TO_POOL]), waiting_at(own.at[v.TO_QUEUE])
    if own.word[v.PHASE] == v.FRESH:
        begin_step(own, step)
        run_on(own, requests, step, pool, queue)
        count_adapters(own, requests, step)
    most = cap(own, step)
    if step.word[t.N_PREEMPTED] == 0:
        stopped = admit_holders(own, requests, step, pool, queue, most)
        if stopped == 0:
            stopped = admit_waiting(own, requests, step, pool, queue, most)
        if stopped == t.ASK_TIER:
            own.word[v.PHASE] = v.ADMITTING
            return t.ASK_TIER
    own.word[v.PHASE] = v.FRESH
    step.word[t.FREE] = pool.word[POOL_FREE]
    step.word[t.STEPS] += 1
    rows = end_step(step)
    if rows and own.option[v.ASYNC]:
        set_out(own, requests, step)
    return rows


@verb(VERB)
def over(at: int, r: int, now: int) -> int:
    own = vllm_at(at)
    requests, step = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP])
    pool, queue = pool_at(own.at[v.TO_POOL]), waiting_at(own.at[v.TO_QUEUE])
    if own.option[v.ASYNC]:
        ended = end_flights(own, requests, step, pool, queue)
    else:
        ended = end_rows(own, requests, step, pool, queue)
    if ended:
        close_ranks(own, step)
    step.word[t.N_ENDED], step.word[t.FREE] = ended, pool.word[POOL_FREE]
    return ended


@verb(VERB)
def leave(at: int, r: int, now: int) -> int:
    own = vllm_at(at)
    requests, step = requests_at(own.at[v.TO_REQUESTS]), step_at(own.at[v.TO_STEP])
    pool, queue = pool_at(own.at[v.TO_POOL]), waiting_at(own.at[v.TO_QUEUE])
    if step.status[r] > t.SWAPPED:
        return 0
    if step.status[r] == t.RUNNING:
        at_ = 0
        while own.running[at_] != r:
            at_ += 1
        drop_from_running(own, step, at_)
    end(own, requests, step, pool, queue, r, t.ABORTED)
    step.word[t.FREE] = pool.word[POOL_FREE]
    return 0


@verb(VERB)
def loaded(at: int, r: int, now: int) -> int:
    own = vllm_at(at)
    step, pool = step_at(own.at[v.TO_STEP]), pool_at(own.at[v.TO_POOL])
    if step.status[r] == t.LOADING:
        own.arrived[r] = 1
    else:  # its client has gone away, and its blocks were still being written
        release(own, step, pool, r)
        step.word[t.FREE] = pool.word[POOL_FREE]
    return 0


@kernel
def refusal(own: VllmTables, requests: RequestTable, r: int) -> int:
    """Why the server does not take the request; 0 when it does."""
    most = own.option[v.MAX_LEN]
    reason = misfit(requests, r, most, own.option[v.CUTS] != 0)
    if reason:
        return reason
    # Its last token is never computed.
    computed = min(requests.prompt[r] + requests.output[r], most) - 1
    return t.NO_ROOM if blocks_for(own, computed) > own.option[v.BLOCKS_THERE] else 0
