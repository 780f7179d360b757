"""A step of SGLang's scheduler in which running requests make a token each; where these have no room, some retract.

Source: sglang 0.5.23 srt/managers/{scheduler,schedule_policy,schedule_batch}.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.radix_tables import RadixTree
from gpusim.policies.schedule.parts.sglang_ahead import leave_out_last
from gpusim.policies.schedule.parts.sglang_lengths import allowed
from gpusim.policies.schedule.parts.sglang_line import join_line, sort_line
from gpusim.policies.schedule.parts.sglang_pages import free_up, grow, release
from gpusim.policies.schedule.parts.sglang_tables import (
    BATCH,
    CHUNKED,
    DECAY,
    FIRST_RATIO,
    FULL,
    LEAST_RATIO,
    OVERLAPS,
    PAGE,
    RATIO,
    UNDER_WAY,
    SglangTables,
)
from gpusim.policies.schedule.parts.tables import (
    N_ENDED,
    N_PREEMPTED,
    N_RUNNING,
    N_STEP,
    N_WAITING,
    PREEMPTED,
    PREEMPTIONS,
    REFUSED,
    REJECTED,
    RequestTable,
    StepTable,
)
from gpusim.policies.schedule.parts.waiting import NONE, WaitingTable

AHEAD = 20  # tokens that each running request may make after a retraction


@kernel
def wanted_to_decode(own: SglangTables, step: StepTable, count: int) -> int:
    """Tokens of the pages that the next token of each of the first `count` rows of `line` needs."""
    wanted = 0
    for i in range(count):
        wanted += int(step.computed[own.line[i, 0]] % own.option[PAGE] == 0)
    return wanted * own.option[PAGE]


@outlined
def decode(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable
) -> int:
    """Each running request makes a token; how many they are."""
    ends = leave_out_last(own, requests, step) if own.option[OVERLAPS] else 0
    count = own.word[BATCH]
    if ends:
        own.word[FULL] = 0
    for i in range(count):
        own.line[i, 0] = own.running[i]
    if count and not free_up(own, step, tree, wanted_to_decode(own, step, count)):
        if ends:
            return 0  # there may be room when those have ended
        retract(own, requests, step, tree, queue)
    elif count:
        own.share[RATIO] = max(own.share[RATIO] - own.share[DECAY], own.share[LEAST_RATIO])
    elif own.word[UNDER_WAY] == 0:
        own.share[RATIO] = own.share[FIRST_RATIO]
    decode_rows(own, step)
    return step.word[N_STEP]


@kernel
def decode_rows(own: SglangTables, step: StepTable) -> None:
    """A row of one token for each running request, and the page for it."""
    for i in range(own.word[BATCH]):
        r = own.running[i]
        grow(own, r, step.computed[r] + 1)
        row = step.word[N_STEP]
        step.request[row], step.tokens[row], step.before[row] = r, 1, step.computed[r]
        step.word[N_STEP] = row + 1


@outlined
def retract(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable
) -> None:
    """Requests give their pages up and wait, those with the shortest outputs first, until the others' tokens fit."""
    count = own.word[BATCH]
    for i in range(count):
        r = own.running[i]
        own.line[i, 0], own.line[i, 1], own.line[i, 2] = r, -step.made[r], requests.prompt[r]
    sort_line(own, count)
    first = True
    while count > 1 and (first or not free_up(own, step, tree, wanted_to_decode(own, step, count))):
        first = False
        count -= 1
        _send_back(own, requests, step, tree, queue, own.line[count, 0], count)
    if count == 1 and not free_up(own, step, tree, wanted_to_decode(own, step, count)):
        count = 0
        give_up(own, step, tree, own.line[0, 0])
    made = most = 0
    for i in range(count):
        r = own.line[i, 0]
        own.running[i] = r
        made += step.made[r]
        most += allowed(own, requests, r)
    own.word[BATCH], own.word[FULL] = count, 0
    own.share[RATIO] = min(1.0, (made + AHEAD * count) / (most + 1))


@kernel
def _send_back(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable, r: int, others: int
) -> None:
    release(own, tree, r)
    free_up(own, step, tree, others * AHEAD)
    step.status[r], step.computed[r] = PREEMPTED, 0
    step.preemptions[r] += 1
    step.word[N_RUNNING] -= 1
    join_line(own, requests, queue, r)
    step.word[N_WAITING] += 1
    step.preempted[step.word[N_PREEMPTED]] = r
    step.word[N_PREEMPTED] += 1
    step.word[PREEMPTIONS] += 1


@outlined
def give_up(own: SglangTables, step: StepTable, tree: RadixTree, r: int) -> None:
    """There is no room for the request, even alone."""
    release(own, tree, r)
    if own.word[CHUNKED] == r:
        own.word[CHUNKED] = NONE
    step.status[r] = REJECTED
    step.word[N_RUNNING] -= 1
    step.word[REFUSED] += 1
    step.ended[step.word[N_ENDED]] = r
    step.word[N_ENDED] += 1
