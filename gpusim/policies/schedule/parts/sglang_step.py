"""A step of SGLang's scheduler: requests that wait are prefilled first; else those that run make a token each, or some retract.

Source: sglang 0.5.23 srt/managers/{scheduler,schedule_policy,schedule_batch}.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.radix import lock, unlock
from gpusim.policies.schedule.parts.radix_tables import RadixTree
from gpusim.policies.schedule.parts.sglang_ahead import leave_out_last
from gpusim.policies.schedule.parts.sglang_lengths import allowed
from gpusim.policies.schedule.parts.sglang_pages import (
    available,
    free_up,
    grow,
    hold,
    look,
    name_of,
    release,
    whole,
)
from gpusim.policies.schedule.parts.sglang_tables import (
    BATCH,
    CHUNK,
    CHUNK_LEFT,
    CHUNKED,
    DECAY,
    FIRST_RATIO,
    FULL,
    IGNORE_EOS,
    INPUT_LEFT,
    IS_LRU,
    LEAST_RATIO,
    LOF,
    LPM,
    MATCH_ALL,
    MAX_PREFILL,
    MAX_SEQS,
    ORDER,
    OVERLAPS,
    PAGE,
    PAGES_FREE,
    PASSES,
    PROMISED,
    RATIO,
    TAKEN,
    UNDER_WAY,
    SglangTables,
)
from gpusim.policies.schedule.parts.tables import (
    HIT,
    N_ENDED,
    N_PREEMPTED,
    N_RUNNING,
    N_STEP,
    N_WAITING,
    PREEMPTED,
    PREEMPTIONS,
    QUERIED,
    REFUSED,
    REJECTED,
    RUNNING,
    RequestTable,
    StepTable,
)
from gpusim.policies.schedule.parts.vllm_blocks import length
from gpusim.policies.schedule.parts.waiting import (
    IN_LINE,
    NONE,
    WaitingTable,
    end_of,
    first_of,
    insert_before,
    join_last,
    leave_ring,
)

CLIP = 4096  # tokens of output for which room is kept at most
SHARED = 32  # tokens: a prefix found that is no longer does not keep a request from waiting for one that shares as many with it
LOOKED_AT = 128  # waiting requests whose prefixes are looked up at most
EVERY = 32  # passes between two that renew the prefixes of waiting requests
AHEAD = 20  # tokens that each running request may make after a retraction
CONTINUE, NO_TOKEN, OTHER = range(3)


@kernel
def join_line(own: SglangTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    """The request waits, last in line; by longest output, behind those that may make as many."""
    later = end_of(queue, IN_LINE)
    if own.option[ORDER] == LOF:
        while queue.ahead[later] < end_of(queue, 0) and (
            allowed(own, requests, queue.ahead[later]) < allowed(own, requests, r)
        ):
            later = queue.ahead[later]
    insert_before(queue, IN_LINE, r, later)


@kernel
def after(queue: WaitingTable, r: int) -> int:
    """Who waits behind this request; NONE behind the last."""
    later = queue.behind[r]
    return later if later < end_of(queue, 0) else NONE


# Order of those that wait.


@outlined
def sort_line(own: SglangTables, count: int) -> None:
    """Rows of `line` by their second and third number; equal ones stay in order."""
    for i in range(1, count):
        r, first, then = own.line[i, 0], own.line[i, 1], own.line[i, 2]
        k = i
        while k > 0 and (own.line[k - 1, 1] > first or (own.line[k - 1, 1] == first and own.line[k - 1, 2] > then)):
            for word in range(3):
                own.line[k, word] = own.line[k - 1, word]
            k -= 1
        own.line[k, 0], own.line[k, 1], own.line[k, 2] = r, first, then


@outlined
def by_longest_prefix(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable
) -> None:
    """Longest prefix first.  Of requests that share SHARED tokens, and find no more than that, one goes before all others."""
    size = own.option[PAGE]
    sign = max(SHARED // size, 1) - 1  # the page whose identity tells whether two share as many tokens
    count, r = 0, first_of(queue, IN_LINE)
    while r != NONE:
        tokens = length(requests, step, r)
        found = look(own, requests, tree, r, tokens) * size
        own.line[count, 0], own.line[count, 1], own.line[count, 2] = r, -min(found, tokens - 1), 0
        if found <= SHARED and tokens >= (sign + 1) * size and _is_shared(own, requests, step, count, sign, tokens):
            own.line[count, 1] = 1
        count += 1
        r = after(queue, r)
    for i in range(count):
        own.line[i, 2] = 0
    sort_line(own, count)
    for i in range(count):
        leave_ring(queue, IN_LINE, own.line[i, 0])
        join_last(queue, IN_LINE, own.line[i, 0])


@kernel
def _is_shared(
    own: SglangTables, requests: RequestTable, step: StepTable, count: int, sign: int, tokens: int
) -> bool:
    """Whether one before it in line, which does not wait for another, begins as this one; else it is marked."""
    mine = name_of(own, requests, own.line[count, 0], sign)
    for i in range(count):
        if own.line[i, 2] and name_of(own, requests, own.line[i, 0], sign) == mine:
            return True
    own.line[count, 2] = 1
    return False


@outlined
def line_up(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable) -> None:
    """Those that wait are put in order, and the prefixes that they will find are made recent."""
    count = queue.count[IN_LINE]
    if own.option[ORDER] == LPM and count <= LOOKED_AT:
        by_longest_prefix(own, requests, step, tree, queue)
        return
    if own.option[MATCH_ALL]:
        r = first_of(queue, IN_LINE)
        while r != NONE:
            look(own, requests, tree, r, length(requests, step, r))
            r = after(queue, r)
    elif own.option[IS_LRU] and own.option[ORDER] != LPM and count > 0:
        if own.word[PASSES] % EVERY == 0:
            _renew(own, requests, step, tree, queue)
        own.word[PASSES] += 1


@kernel
def _renew(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable) -> None:
    """The first in line last, so that it is the most recent."""
    r, count = first_of(queue, IN_LINE), 0
    while r != NONE and count < LOOKED_AT:
        own.line[count, 0] = r
        count += 1
        r = after(queue, r)
    for i in range(count - 1, -1, -1):
        look(own, requests, tree, own.line[i, 0], length(requests, step, own.line[i, 0]))


# The budget of a pass.


@kernel
def begin_pass(own: SglangTables, requests: RequestTable, step: StepTable) -> None:
    own.word[INPUT_LEFT], own.word[CHUNK_LEFT], own.word[TAKEN] = own.option[MAX_PREFILL], own.option[CHUNK], 0
    ratio = 1.0 if own.option[IGNORE_EOS] else own.share[RATIO]
    promised = 0.0
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
def add_row(step: StepTable, r: int, n: int) -> None:
    row = step.word[N_STEP]
    step.who[row], step.tokens[row], step.before[row] = r, n, step.computed[r]
    step.word[N_STEP] = row + 1


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
    """Try to prefill the request in this pass: how the pass goes on; whoever is admitted stands in the step's last row."""
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
    """Those that wait, and who keeps a chunk, make up a step; how many they are."""
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
    return step.word[N_STEP]


@kernel
def _take_pages(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree) -> None:
    """The requests of the step get their pages; one for whose chunk there is no room left is given up."""
    wanted = 0
    for row in range(step.word[N_STEP]):
        wanted += step.before[row] + step.tokens[row] - own.kept[step.who[row]] * own.option[PAGE]
        wanted += own.option[PAGE] if own.option[PAGE] > 1 else 0
    free_up(own, step, tree, wanted)
    left = 0
    for row in range(step.word[N_STEP]):
        r, upto = step.who[row], step.before[row] + step.tokens[row]
        if whole(own, upto) // own.option[PAGE] - own.held[r] > own.word[PAGES_FREE]:
            give_up(own, step, tree, r)
            continue
        grow(own, r, upto)
        step.who[left], step.tokens[left], step.before[left] = r, step.tokens[row], step.before[row]
        left += 1
    step.word[N_STEP] = left


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


# Decoding and retraction.


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
    for i in range(own.word[BATCH]):
        r = own.running[i]
        grow(own, r, step.computed[r] + 1)
        add_row(step, r, 1)
    return step.word[N_STEP]


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
