"""Steps of S-LoRA: a prefill of those that join the batch, or a token for each of its requests; and adapters beside tokens.

Source: S-LoRA c1ddf48, slora/server/router/{manager,req_queue}.py and model_infer/infer_adapter.py (Apache-2.0), in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.slora_tables import (
    BLOCK,
    CELLS,
    EACH,
    FREE_CELLS,
    LOADED,
    MAX_SEQS,
    MAX_TOKENS,
    NEW,
    PREFETCH,
    SIZE,
    STAMP,
    TAG,
    WAITED,
    SloraTables,
)
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable
from gpusim.policies.schedule.parts.waiting import IN_LINE, NONE, WaitingTable, end_of, first_of, leave_ring

MOST_WAITED = 10  # tokens between two tries to join the batch
AT = (5, 7)  # of these, when the adapters of those that wait are prefetched


@kernel
def after(queue: WaitingTable, r: int) -> int:
    """The request that waits behind this one; NONE behind the last."""
    later = queue.behind[r]
    return later if later < end_of(queue, 0) else NONE


@kernel
def first_time(own: SloraTables, adapter: int) -> bool:
    """Whether the adapter, or the model without one, has not been counted since the last STAMP."""
    new = own.mark[adapter] != own.word[STAMP]
    own.mark[adapter] = own.word[STAMP]
    return bool(new)


@kernel
def in_line(own: SloraTables, count: int, left: int, there: int) -> None:
    """One more of `count` requests, which are in order of tokens left, the most first."""
    k = count
    while k > 0 and own.line[k - 1, 0] < left:
        own.line[k, 0], own.line[k, 1] = own.line[k - 1, 0], own.line[k - 1, 1]
        k -= 1
    own.line[k, 0], own.line[k, 1] = left, there


@kernel
def most_cells(own: SloraTables, count: int) -> int:
    """The most tokens that these requests have at once, should each make all its output."""
    most, there = 0, 0
    for i in range(count):
        there += own.line[i, 1]
        most = max(most, own.line[i, 0] * (i + 1) + there)
    return most


@outlined
def choose(own: SloraTables, requests: RequestTable, step: StepTable, queue: WaitingTable) -> int:
    """Waiting requests that fit beside the batch with their adapters, the first first; they stand behind the batch."""
    own.word[STAMP] += 1
    count, cells, tokens, chosen = own.word[SIZE], 0, 0, 0
    if count >= own.option[MAX_SEQS]:
        return 0
    for i in range(count):
        r = own.batch[i]
        in_line(own, i, requests.output[r] - step.made[r] - 1, requests.prompt[r] + step.made[r])
        if first_time(own, requests.adapter[r]) and requests.adapter[r]:
            cells += own.option[EACH]
    r = first_of(queue, IN_LINE)
    while r != NONE and count < own.option[MAX_SEQS] and tokens + requests.prompt[r] <= own.option[MAX_TOKENS]:
        in_line(own, count, requests.output[r] - 1, requests.prompt[r] + 1)
        count += 1
        if first_time(own, requests.adapter[r]) and requests.adapter[r]:
            cells += own.option[EACH]
        if most_cells(own, count) >= own.option[CELLS] - cells:
            break
        own.batch[own.word[SIZE] + chosen] = r
        chosen += 1
        tokens += requests.prompt[r]
        later = after(queue, r)
        leave_ring(queue, IN_LINE, r)
        r = later
    step.word[t.N_WAITING] -= chosen
    own.word[NEW] = chosen
    return chosen


@kernel
def load(own: SloraTables, step: StepTable, adapter: int, r: int) -> None:
    """The adapter of request r is copied into the pool, and the step waits for it."""
    own.loaded[adapter] = 1
    own.word[LOADED] += 1
    own.word[FREE_CELLS] -= own.option[EACH]
    if r >= 0:
        row, blocks = step.word[t.N_SWAPS], (own.option[EACH] + own.option[BLOCK] - 1) // own.option[BLOCK]
        step.swap[row, 0], step.swap[row, 1], step.swap[row, 2] = r, blocks, t.IN
        step.word[t.N_SWAPS] = row + 1


@outlined
def prefill(own: SloraTables, requests: RequestTable, step: StepTable) -> int:
    """Those that join are computed, with their adapters; how many rows, or STOPPED where the pool has no room for them."""
    for i in range(own.word[SIZE], own.word[SIZE] + own.word[NEW]):
        r = own.batch[i]
        if requests.adapter[r] and not own.loaded[requests.adapter[r]]:
            load(own, step, requests.adapter[r], r)
        add_row(step, r, requests.prompt[r], 0)
        step.status[r], step.cached[r] = t.RUNNING, 0
        own.word[FREE_CELLS] -= requests.prompt[r]
    return t.STOPPED if own.word[FREE_CELLS] < 0 else step.word[t.N_STEP]


@kernel
def add_row(step: StepTable, r: int, tokens: int, before: int) -> None:
    row = step.word[t.N_STEP]
    step.request[row], step.tokens[row], step.before[row] = r, tokens, before
    step.word[t.N_STEP] = row + 1


@outlined
def decode(own: SloraTables, requests: RequestTable, step: StepTable) -> int:
    """Each request of the batch makes a token."""
    for i in range(own.word[SIZE]):
        r = own.batch[i]
        add_row(step, r, 1, requests.prompt[r] + step.made[r] - 1)
    own.word[FREE_CELLS] -= own.word[SIZE]
    return t.STOPPED if own.word[FREE_CELLS] < 0 else step.word[t.N_STEP]


@outlined
def prefetch(own: SloraTables, requests: RequestTable, step: StepTable, queue: WaitingTable) -> None:
    """Adapters of the next prefill, were all that wait to fit, come into what is left of the pool, the lowest number first."""
    if own.option[PREFETCH] == 0 or (own.word[WAITED] != AT[0] and own.word[WAITED] != AT[1]):
        return
    own.word[STAMP] += 1
    tokens, wanted, r = 0, 0, first_of(queue, IN_LINE)
    while r != NONE and tokens + requests.prompt[r] <= own.option[MAX_TOKENS]:
        tokens += requests.prompt[r]
        wanted += requests.adapter[r] > 0 and first_time(own, requests.adapter[r])
        r = after(queue, r)
    if wanted == 0:
        return
    own.word[TAG] = 1 - own.word[TAG]
    for adapter in range(1, own.loaded.size):
        if own.mark[adapter] == own.word[STAMP]:
            own.tag[adapter] = own.word[TAG]
            if not own.loaded[adapter]:
                if own.option[EACH] > own.word[FREE_CELLS]:
                    return
                load(own, step, adapter, -1)


@outlined
def drop_adapters(own: SloraTables, requests: RequestTable) -> None:
    """Requests of the batch have ended: adapters that are neither of the others nor of the latest prefetch leave the pool."""
    own.word[STAMP] += 1
    distinct = 0
    for i in range(own.word[SIZE]):
        distinct += first_time(own, requests.adapter[own.batch[i]])
    if distinct == own.word[LOADED]:  # it compares only how many they are
        return
    for adapter in range(1, own.loaded.size):
        tagged = distinct > 0 and own.tag[adapter] == own.word[TAG]
        if own.loaded[adapter] and own.mark[adapter] != own.word[STAMP] and not tagged:
            own.loaded[adapter] = 0
            own.word[LOADED] -= 1
            own.word[FREE_CELLS] += own.option[EACH]


@outlined
def end_rows(own: SloraTables, requests: RequestTable, step: StepTable) -> int:
    """Requests of the step make a token; those that have all theirs, or have gone, leave the batch."""
    first, last, ended = 0, own.word[SIZE], 0
    joins = own.word[NEW] > 0
    if joins:
        first, last = last, last + own.word[NEW]
    left = first
    for i in range(first, last):
        r = own.batch[i]
        step.computed[r] = requests.prompt[r] + step.made[r]
        step.made[r] += step.status[r] == t.RUNNING
        if step.status[r] == t.RUNNING and step.made[r] < requests.output[r]:
            own.batch[left] = r
            left += 1
            continue
        own.word[FREE_CELLS] += step.computed[r]
        if step.status[r] == t.RUNNING:
            step.status[r] = t.FINISHED
            step.ended[ended] = r
            ended += 1
    own.word[SIZE], own.word[NEW] = left, 0
    if left == 0 or (left < last and not joins):
        drop_adapters(own, requests)
    own.word[WAITED] = 0 if joins else min(own.word[WAITED] + 1, MOST_WAITED)
    return ended


@outlined
def next_step(own: SloraTables, requests: RequestTable, step: StepTable, queue: WaitingTable) -> int:
    """Rows of the next step: of those that join where that is tried and some fit, else of the batch."""
    for word in range(8):  # the counts of rows
        step.word[word] = 0
    tries = own.word[SIZE] == 0 or own.word[WAITED] == MOST_WAITED
    if tries and choose(own, requests, step, queue):
        rows = prefill(own, requests, step)
    elif own.word[SIZE]:
        if not tries:
            prefetch(own, requests, step, queue)
        rows = decode(own, requests, step)
    else:
        return 0
    total = 0
    for row in range(step.word[t.N_STEP]):
        total += step.tokens[row]
    step.word[t.N_TOKENS], step.word[t.N_RUNNING] = total, own.word[SIZE] + own.word[NEW]
    step.word[t.STEPS] += 1
    return rows


@kernel
def tell_room(own: SloraTables, step: StepTable) -> None:
    """How many blocks are free, and how many requests are in the batch."""
    step.word[t.FREE] = own.word[FREE_CELLS] // own.option[BLOCK]
    step.word[t.N_RUNNING] = own.word[SIZE] + own.word[NEW]
