"""S-LoRA: one pool for keys, values and adapters, so that a batch may have as many adapters as find room beside its tokens.

A batch is joined when it is empty, and after ten tokens, by waiting requests that fit, in order: should all make their whole
outputs, the most tokens that there are at once and the adapters of all have to be less than the pool.  Their adapters are
copied into the pool first, and their prompts are computed alone.  When requests end, adapters of no other leave the pool.

adapter_cells  what each adapter takes, in cells, of which each holds the keys and values of a token: 4 x rank
prefetch  1: adapters of waiting requests come before these join, while tokens are made
pool_size_lora  cells beside those that requests are admitted to

Not modelled are its other queues (fair, clustered, abort), merging adapters into the weights, and adapters of unequal ranks.

Source: S-LoRA c1ddf48 (Apache-2.0), in own words; Y. Sheng and others, S-LoRA (MLSys 2024).
"""

from __future__ import annotations

from gpusim.base.compiled import Placed
from gpusim.base.errors import PolicyError
from gpusim.base.tables import filled
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import slora_tables as s
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.arriving import misfit, note_arrival
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.slora_step import end_rows, next_step, tell_room
from gpusim.policies.schedule.parts.slora_tables import SLORA, SloraTables, slora_at
from gpusim.policies.schedule.parts.tables import VERB, requests_at, step_at
from gpusim.policies.schedule.parts.waiting import (
    IN_LINE,
    WAITING_TABLE,
    join_last,
    leave_ring,
    waiting_at,
    waiting_table,
)

PARAMS = {"adapter_cells": 64, "prefetch": 0, "pool_size_lora": 0}
LIMITS = {"prefetch": 1}


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError where the engine would not start."""
    if limits.max_tokens < limits.max_len:
        said = f"a step of {limits.max_tokens} tokens is less than the longest sequence of {limits.max_len}"
        raise PolicyError(said, hint="S-LoRA computes each prompt in one step: raise the tokens of a step")
    each, prefetch, extra = (int(number) for number in params)
    cells, n = limits.blocks * limits.block_size, shared.requests.arrival.size
    queue = Placed(waiting_table(n, False), WAITING_TABLE)
    adapters = 1 + int(shared.requests.adapter.max(initial=0))
    own = filled(SloraTables, {"rows": limits.max_seqs + 1, "adapters": adapters})
    own.at[:] = shared.requests_at, shared.step_at, queue.address
    own.option[:] = cells - extra, limits.max_seqs, limits.max_tokens, limits.max_len, each, prefetch, limits.block_size
    own.word[s.FREE_CELLS] = cells
    own.tag[:] = s.UNTAGGED
    shared.step.word[t.FREE] = shared.step.word[t.BLOCKS] = limits.blocks
    return [Placed(own, SLORA), queue]


@verb(VERB)
def arrive(at: int, r: int, now: int) -> int:
    own = slora_at(at)
    requests, step, queue = requests_at(own.at[s.TO_REQUESTS]), step_at(own.at[s.TO_STEP]), waiting_at(own.at[s.TO_QUEUE])
    reason = misfit(requests, r, own.option[s.MAX_LEN], False)
    cells = own.option[s.CELLS] - (own.option[s.EACH] if requests.adapter[r] else 0)
    if reason == 0 and requests.prompt[r] + requests.output[r] >= cells:
        reason = t.NO_ROOM
    if note_arrival(step, r, reason) == 0:
        join_last(queue, IN_LINE, r)
    return reason


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = slora_at(at)
    requests, step, queue = requests_at(own.at[s.TO_REQUESTS]), step_at(own.at[s.TO_STEP]), waiting_at(own.at[s.TO_QUEUE])
    rows = next_step(own, requests, step, queue)
    tell_room(own, step)
    return rows


@verb(VERB)
def over(at: int, r: int, now: int) -> int:
    own = slora_at(at)
    step = step_at(own.at[s.TO_STEP])
    step.word[t.N_ENDED] = end_rows(own, requests_at(own.at[s.TO_REQUESTS]), step)
    tell_room(own, step)
    return int(step.word[t.N_ENDED])


@verb(VERB)
def leave(at: int, r: int, now: int) -> int:
    own = slora_at(at)
    step, queue = step_at(own.at[s.TO_STEP]), waiting_at(own.at[s.TO_QUEUE])
    if step.status[r] == t.WAITING:
        leave_ring(queue, IN_LINE, r)
        step.word[t.N_WAITING] -= 1
    if step.status[r] <= t.SWAPPED:
        step.status[r] = t.ABORTED
    return 0


@verb(VERB)
def loaded(at: int, r: int, now: int) -> int:
    return 0  # it sends for nothing
