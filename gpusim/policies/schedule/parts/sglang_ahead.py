"""SGLang's overlap schedule: a step is composed while the one before it is computed, and its tokens have not come.

A prefill joins the batch before its tokens are known; what a request has made counts without the token under way, which a
retraction loses.  A request whose last token by length is under way decodes no more; an end by a token is seen late, and wastes
a row.

Source: sglang 0.5.23, `Scheduler.event_loop_overlap`, `get_next_batch_to_run` and `update_running_batch`,
BatchResultProcessor (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.schedule.parts.radix_tables import RadixTree
from gpusim.policies.schedule.parts.sglang_lengths import allowed, makes_its_last
from gpusim.policies.schedule.parts.sglang_pages import checkpoint, finish
from gpusim.policies.schedule.parts.sglang_tables import (
    BATCH,
    CUT,
    FULL,
    OLDEST,
    PREFILLS,
    PROMPTS,
    UNDER_WAY,
    SglangTables,
)
from gpusim.policies.schedule.parts.tables import ABORTED, FINISHED, N_STEP, RUNNING, RequestTable, StepTable
from gpusim.policies.schedule.parts.vllm_blocks import length


@outlined
def join_batch(own: SglangTables, step: StepTable) -> None:
    """What the latest step has prefilled to its end joins the batch, and requests that have ended leave it."""
    half, side = own.flight.shape[0] // 2, (own.word[OLDEST] + own.word[UNDER_WAY] + 1) % 2
    count = own.word[BATCH]
    if own.word[PREFILLS] and (count == 0 or own.word[CUT]):
        own.word[FULL] = 0
    for row in range(own.word[PREFILLS]):
        x = own.flight[side * half + row]
        if x[3]:
            own.running[count] = x[0]
            count += 1
    own.word[PREFILLS] = left = 0
    for i in range(count):
        if step.status[own.running[i]] == RUNNING:
            own.running[left] = own.running[i]
            left += 1
    if left < count:
        own.word[FULL] = 0
    own.word[BATCH] = left


@outlined
def leave_out_last(own: SglangTables, requests: RequestTable, step: StepTable) -> int:
    """Requests whose last token by length is under way leave the batch; how many."""
    left = 0
    for i in range(own.word[BATCH]):
        r = own.running[i]
        if own.flying[r] == 0 or step.made[r] + 1 < allowed(own, requests, r):
            own.running[left] = r
            left += 1
    count = own.word[BATCH] - left
    own.word[BATCH] = left
    return count


@outlined
def set_out(own: SglangTables, requests: RequestTable, step: StepTable) -> None:
    """The step that has been composed is under way."""
    half, side = own.flight.shape[0] // 2, (own.word[OLDEST] + own.word[UNDER_WAY]) % 2
    own.word[UNDER_WAY] += 1
    own.word[CUT] = 0
    own.rows[side], own.prompts[side] = step.word[N_STEP], own.word[PROMPTS] if own.word[PREFILLS] else 0
    for row in range(step.word[N_STEP]):
        r, x = step.request[row], own.flight[side * half + row]
        step.computed[r] += step.tokens[row]
        own.flying[r] += 1
        brings = step.computed[r] >= length(requests, step, r)
        if not brings:
            own.word[CUT] = 1
        x[0], x[1], x[2], x[3] = r, step.tokens[row], step.before[row], brings


@outlined
def land(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree) -> int:
    """The older step under way is over, and its rows stand in the table again; how many requests have ended.

    Rows of requests that have ended, or given up their pages, since it was composed bring nothing.
    """
    half, side, ended = own.flight.shape[0] // 2, own.word[OLDEST], 0
    own.word[OLDEST] = 1 - side
    own.word[UNDER_WAY] -= 1
    step.word[N_STEP] = own.rows[side]
    for row in range(own.rows[side]):
        x = own.flight[side * half + row]
        r = step.request[row] = x[0]
        step.tokens[row], step.before[row] = x[1], x[2]
        own.flying[r] -= 1
        if step.status[r] != RUNNING or x[3] == 0:
            continue
        if own.gone[r]:
            finish(own, requests, step, tree, r, ABORTED)
        elif makes_its_last(own, requests, step, r):
            finish(own, requests, step, tree, r, FINISHED)
            step.ended[ended] = r
            ended += 1
        elif row < own.prompts[side]:
            checkpoint(own, requests, step, tree, r, x[2] + x[1])
    return ended
