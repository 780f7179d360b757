"""Which parts of requests make up the next batch, and when those that come may interrupt the present one."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts import splitwise_tables as w
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.splitwise_tables import SplitwiseTables, need, present, rows_of
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable
from gpusim.policies.schedule.parts.waiting import HOLDING, IN_LINE, WaitingTable, end_of


@kernel
def is_full(own: SplitwiseTables) -> bool:
    return bool(own.word[w.CHOSEN] == own.option[w.MAX_SEQS])


@kernel
def is_above(own: SplitwiseTables, rows: int) -> bool:
    """So many tokens more are more than a step has; the first part of a batch may be."""
    return bool(own.word[w.CHOSEN] > 0 and own.word[w.TOKENS] + rows > own.option[w.MAX_TOKENS])


@kernel
def is_chosen(own: SplitwiseTables, r: int) -> bool:
    return bool(own.choice[r] == own.word[w.CHOICE])


@kernel
def choose(own: SplitwiseTables, r: int, rows: int, tokens: int) -> None:
    own.chosen[own.word[w.CHOSEN]] = r
    own.choice[r] = own.word[w.CHOICE]
    own.word[w.CHOSEN] += 1
    own.word[w.TOKENS] += rows
    own.word[w.MEMORY] += tokens


@kernel
def has_room(own: SplitwiseTables, tokens: int) -> bool:
    return bool(own.word[w.MEMORY] + tokens <= own.option[w.CAPACITY])


@kernel
def choose_passed_over(own: SplitwiseTables, requests: RequestTable) -> None:
    """Parts that were passed over too often."""
    for i in range(own.word[w.WAITS]):
        part = own.waits[i]
        r, rows = part >> 1, rows_of(requests, part)
        if own.passed[part] < own.option[w.MAX_PREEMPTIONS] or is_full(own) or is_above(own, rows):
            return
        if is_chosen(own, r):
            continue
        tokens = 0 if own.state[r] == w.BLOCKED else need(requests, part)
        if has_room(own, tokens):
            choose(own, r, rows, tokens)


@kernel
def choose_ring(own: SplitwiseTables, requests: RequestTable, queue: WaitingTable, ring: int) -> None:
    """Prompts in the order in which they came here, or parts in the order in which they were preempted."""
    r = queue.behind[end_of(queue, ring)]
    while r != end_of(queue, ring):
        part = present(own, r)
        rows = rows_of(requests, part)
        if is_full(own) or is_above(own, rows):
            return
        tokens = need(requests, part) if ring == IN_LINE else 0
        if not is_chosen(own, r):
            if not has_room(own, tokens):
                return
            choose(own, r, rows, tokens)
        r = queue.behind[r]


@kernel
def choose_running(own: SplitwiseTables) -> None:
    """Parts of the batch that has ended, none of which is a prompt."""
    for i in range(own.word[w.RUNS]):
        if is_full(own) or is_above(own, 1):
            return
        if not is_chosen(own, own.batch[i]):
            choose(own, own.batch[i], 1, 0)


@kernel
def choose_others(own: SplitwiseTables, requests: RequestTable) -> None:
    """What else there is, by arrival."""
    for i in range(own.word[w.KNOWN]):
        r = own.known[i]
        if is_full(own):
            return
        if is_chosen(own, r):
            continue
        part = present(own, r)
        rows, tokens = rows_of(requests, part), 0 if own.state[r] == w.BLOCKED else need(requests, part)
        if is_above(own, rows) or not has_room(own, tokens):
            return
        choose(own, r, rows, tokens)


@outlined
def next_batch(own: SplitwiseTables, requests: RequestTable, step: StepTable, queue: WaitingTable) -> None:
    """The batch is chosen anew, and how many steps it makes: one with prompts in it, else until the first request ends."""
    word = own.word
    word[w.CHOICE] += 1
    word[w.CHOSEN], word[w.TOKENS], word[w.MEMORY], word[w.PROMPTS] = 0, 0, word[w.HELD], 0
    choose_passed_over(own, requests)
    choose_ring(own, requests, queue, IN_LINE)
    choose_ring(own, requests, queue, HOLDING)
    choose_running(own)
    choose_others(own, requests)
    word[w.BATCH_TOKENS] = word[w.TOKENS]
    left = 0
    for i in range(word[w.RUNS]):
        r = own.batch[i]
        if is_chosen(own, r):
            own.batch[left] = r
            left += 1
        else:
            w.preempt(own, step, queue, r)
    word[w.RUNS] = left
    for i in range(word[w.CHOSEN]):
        if own.state[own.chosen[i]] != w.RUNS_NOW:
            w.begin_part(own, requests, queue, own.chosen[i])
            step.status[own.chosen[i]] = t.RUNNING
    for i in range(word[w.KNOWN]):
        if not is_chosen(own, own.known[i]):
            own.passed[present(own, own.known[i])] += 1
    steps = 1
    if word[w.RUNS] > 0 and word[w.PROMPTS] == 0:
        steps = requests.output[own.batch[0]] - step.made[own.batch[0]]
        for i in range(1, word[w.RUNS]):
            steps = min(steps, requests.output[own.batch[i]] - step.made[own.batch[i]])
    word[w.TO_GO] = steps if word[w.RUNS] > 0 else 0


@kernel
def interrupt(own: SplitwiseTables) -> None:
    """The batch is chosen anew after the step under way."""
    if own.word[w.PROMPTS] == 0:
        own.word[w.TO_GO] = 1


@outlined
def come(
    own: SplitwiseTables, requests: RequestTable, step: StepTable, queue: WaitingTable, part: int
) -> None:
    """A part waits here from now on; the engine begins, or the batch under way is interrupted where the part may join it."""
    w.wait(own, part)
    if own.word[w.RUNS] == 0:
        if own.word[w.HELD] + need(requests, part) <= own.option[w.CAPACITY]:
            next_batch(own, requests, step, queue)
        return
    rows, room = rows_of(requests, part), own.option[w.MAX_TOKENS]
    fits = own.word[w.RUNS] < own.option[w.MAX_SEQS] and own.word[w.BATCH_TOKENS] + rows <= room
    # A prompt goes before tokens, so it may also take their place.
    tokens = own.word[w.RUNS] - own.word[w.PROMPTS]
    takes = part & 1 == w.PROMPT and tokens > 0 and own.word[w.BATCH_TOKENS] - tokens + rows <= room
    if fits or takes:
        interrupt(own)


@outlined
def room_again(own: SplitwiseTables, requests: RequestTable, step: StepTable, queue: WaitingTable) -> None:
    """Tokens have left: those that wait may begin."""
    if own.word[w.WAITS] == 0:
        return
    if own.word[w.RUNS] == 0:
        if own.word[w.HELD] + need(requests, own.waits[0]) <= own.option[w.CAPACITY]:
            next_batch(own, requests, step, queue)
    elif own.word[w.RUNS] < own.option[w.MAX_SEQS] and own.word[w.BATCH_TOKENS] < own.option[w.MAX_TOKENS]:
        interrupt(own)
