"""A step of SGLang's scheduler that prefills requests that wait, as long as tokens and memory last; mixed chunks.

Source: sglang 0.5.23 srt/managers/{scheduler,schedule_policy,schedule_batch}.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.radix import lock, unlock
from gpusim.policies.schedule.parts.radix_tables import RadixTree
from gpusim.policies.schedule.parts.sglang_ahead import leave_out_last
from gpusim.policies.schedule.parts.sglang_decode import decode_rows, give_up, wanted_to_decode
from gpusim.policies.schedule.parts.sglang_lengths import allowed
from gpusim.policies.schedule.parts.sglang_line import after, line_up
from gpusim.policies.schedule.parts.sglang_pages import available, free_up, grow, hold, look, whole
from gpusim.policies.schedule.parts.sglang_tables import (
    BATCH,
    CHUNK,
    CHUNK_LEFT,
    CHUNKED,
    FULL,
    IGNORE_EOS,
    INPUT_LEFT,
    MAX_PREFILL,
    MAX_SEQS,
    MIXES,
    OVERLAPS,
    PAGE,
    PAGES_FREE,
    PROMISED,
    PROMPTS,
    RATIO,
    TAKEN,
    SglangTables,
)
from gpusim.policies.schedule.parts.tables import HIT, N_RUNNING, N_STEP, N_WAITING, QUERIED, RUNNING, RequestTable, StepTable
from gpusim.policies.schedule.parts.vllm_blocks import length
from gpusim.policies.schedule.parts.waiting import IN_LINE, NONE, WaitingTable, first_of, leave_ring

CLIP = 4096  # tokens of output for which room is kept at most
CONTINUE, NO_TOKEN, OTHER = range(3)


@kernel
def add_row(step: StepTable, r: int, n: int) -> None:
    row = step.word[N_STEP]
    step.request[row], step.tokens[row], step.before[row] = r, n, step.computed[r]
    step.word[N_STEP] = row + 1


@kernel
def begin_pass(own: SglangTables, requests: RequestTable, step: StepTable) -> None:
    mixed = own.word[BATCH] if own.option[MIXES] else 0  # tokens that running requests are to make in the same step
    own.word[INPUT_LEFT], own.word[CHUNK_LEFT] = own.option[MAX_PREFILL] - mixed, own.option[CHUNK] - mixed
    own.word[TAKEN] = mixed
    ratio = 1.0 if own.option[IGNORE_EOS] else own.share[RATIO]
    promised = float(mixed)
    for i in range(own.word[BATCH]):
        r = own.running[i]
        promised += min(allowed(own, requests, r) - step.made[r], CLIP) * ratio
    own.share[PROMISED] = promised


@kernel
def state_of_budget(own: SglangTables, tree: RadixTree) -> int:
    there = available(own, tree)
    if there - own.share[PROMISED] <= 0 or there - own.word[TAKEN] <= 0:
        return NO_TOKEN
    if own.word[INPUT_LEFT] <= 0 or (own.option[CHUNK] > 0 and own.word[CHUNK_LEFT] <= 0):
        return OTHER
    return CONTINUE


@kernel
def charge(own: SglangTables, extend: int, new: int) -> None:
    """The pass has so many tokens less, and a page for each request."""
    taken = whole(own, extend)
    own.share[PROMISED] += taken + own.option[PAGE] + new
    own.word[TAKEN] += taken + own.option[PAGE]
    own.word[INPUT_LEFT] -= taken
    own.word[CHUNK_LEFT] -= taken


@kernel
def go_on_with_chunk(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree) -> None:
    """The request that has computed a part of its prompt computes the next one; it must get on, so that it ends."""
    r = own.word[CHUNKED]
    there = min(own.word[CHUNK_LEFT], int(available(own, tree) - own.share[PROMISED]))
    most = there if there > 0 else own.word[CHUNK_LEFT]
    left = length(requests, step, r) - step.computed[r]
    n = min(left, most)
    add_row(step, r, n)
    charge(own, n, 0 if left > most else min(allowed(own, requests, r), CLIP))
    if left <= most:
        own.word[CHUNKED] = NONE


@outlined
def admit(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, r: int) -> int:
    """Try to admit the request to this prefill pass, as the step's last row; returns how the pass goes on."""
    size, tokens = own.option[PAGE], length(requests, step, r)
    there = own.matched[r] * size
    new = min(allowed(own, requests, r), CLIP)
    left = min(max(allowed(own, requests, r) - step.made[r], 0), CLIP)
    lock(tree, own.node[r])
    fits = tokens - there + left + size < available(own, tree) - own.share[PROMISED]
    if not fits:
        unlock(tree, own.node[r])
        return NO_TOKEN
    n = tokens - there
    chunked = False
    if own.option[CHUNK] == 0:
        stops = step.word[N_STEP] > 0 and whole(own, n) >= own.word[INPUT_LEFT]
    else:
        chunked = whole(own, n) > own.word[CHUNK_LEFT]
        if chunked:
            n = (there + own.word[CHUNK_LEFT] // size * size) // size * size - there
        stops = n <= 0
    unlock(tree, own.node[r])
    if stops:
        return OTHER
    hold(own, tree, r)
    step.computed[r], step.status[r] = there, RUNNING
    step.word[N_RUNNING] += 1
    if step.cached[r] < 0:
        step.cached[r] = there
    add_row(step, r, n)
    charge(own, n, 0 if chunked else new)
    if chunked:
        own.word[CHUNKED] = r
    return state_of_budget(own, tree)


@outlined
def admit_waiting(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable
) -> None:
    """Requests that wait join the step in order, as long as the budget lasts."""
    r = first_of(queue, IN_LINE)
    while r != NONE:
        if state_of_budget(own, tree) == OTHER:
            break
        if step.word[N_STEP] >= own.option[MAX_SEQS] - own.word[BATCH]:
            own.word[FULL] = 1
        if own.word[FULL]:
            break
        later = after(queue, r)
        rows = step.word[N_STEP]
        tokens = length(requests, step, r)
        hits = look(own, requests, tree, r, tokens - 1)
        became = admit(own, requests, step, tree, r)
        if step.word[N_STEP] > rows:
            leave_ring(queue, IN_LINE, r)
            step.word[N_WAITING] -= 1
            step.word[QUERIED] += tokens
            step.word[HIT] += hits * own.option[PAGE]
        if became != CONTINUE:
            if became == NO_TOKEN:
                own.word[FULL] = int(step.word[N_STEP] > 0 or own.word[BATCH] > 0)
            break
        r = later


@outlined
def prefill(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable
) -> int:
    """Those that wait, and the one with a chunk, make up a step, which running requests may join; how many they are."""
    if own.word[BATCH] == 0:
        own.word[FULL] = 0
    if (own.word[FULL] or queue.count[IN_LINE] == 0) and own.word[CHUNKED] == NONE:
        return 0
    if own.word[BATCH] >= own.option[MAX_SEQS] and own.word[CHUNKED] == NONE:
        own.word[FULL] = 1
        return 0
    line_up(own, requests, step, tree, queue)
    begin_pass(own, requests, step)
    if own.word[CHUNKED] != NONE:
        go_on_with_chunk(own, requests, step, tree)
    admit_waiting(own, requests, step, tree, queue)
    _take_pages(own, requests, step, tree)
    own.word[PROMPTS] = step.word[N_STEP]
    if own.option[MIXES] and step.word[N_STEP] and own.word[BATCH]:
        mix(own, requests, step, tree)
    return step.word[N_STEP]


@outlined
def mix(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree) -> None:
    """Running requests make a token each in the step of the prefill, if there is room for all of them."""
    if own.option[OVERLAPS] and leave_out_last(own, requests, step):
        own.word[FULL] = 0
    count = own.word[BATCH]
    for i in range(count):
        own.line[i, 0] = own.running[i]
    if count and free_up(own, step, tree, wanted_to_decode(own, step, count)):
        decode_rows(own, step)
        own.word[BATCH] = 0  # they join the batch again behind the prompts


@kernel
def _take_pages(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree) -> None:
    """The requests of the step get their pages; one for whose chunk there is no room left is given up."""
    wanted = 0
    for row in range(step.word[N_STEP]):
        wanted += step.before[row] + step.tokens[row] - own.kept[step.request[row]] * own.option[PAGE]
        wanted += own.option[PAGE] if own.option[PAGE] > 1 else 0
    free_up(own, step, tree, wanted)
    left = 0
    for row in range(step.word[N_STEP]):
        r, upto = step.request[row], step.before[row] + step.tokens[row]
        if whole(own, upto) // own.option[PAGE] - own.held[r] > own.word[PAGES_FREE]:
            give_up(own, step, tree, r)
            continue
        grow(own, r, upto)
        step.request[left], step.tokens[left], step.before[left] = r, step.tokens[row], step.before[row]
        left += 1
    step.word[N_STEP] = left
