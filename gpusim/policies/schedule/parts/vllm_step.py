"""A step of vLLM v1's scheduler: requests that run go first, each preempting others where blocks are short, then waiting ones.

Source: vLLM's v1/core/sched/scheduler.py (Apache-2.0), its rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.block_pool import POOL_FREE, BlockPool
from gpusim.policies.schedule.parts.tables import (
    ASK_TIER,
    ASKED,
    ASYNC_LOADS,
    HIT,
    HIT_AGAIN,
    LOADING,
    N_LOADS,
    N_PREEMPTED,
    N_RUNNING,
    N_STEP,
    N_TOKENS,
    N_WAITING,
    ON_DEVICE,
    PREEMPTED,
    PREEMPTIONS,
    QUERIED,
    QUERIED_AGAIN,
    RUNNING,
    TIERS,
    UNKNOWN,
    WAITING,
    RequestTable,
    StepTable,
)
from gpusim.policies.schedule.parts.vllm_adapters import lacks_slot, run_adapter
from gpusim.policies.schedule.parts.vllm_ahead import (
    ends_with_what_is_owed,
    forget_output,
    owed_to,
    still_written,
)
from gpusim.policies.schedule.parts.vllm_blocks import (
    allocate,
    free_blocks,
    idle_hits,
    lacking,
    length,
    look_up,
    name_blocks,
)
from gpusim.policies.schedule.parts.vllm_queue import (
    hold,
    hold_no_more,
    next_waiting,
    pass_over,
    wait_again,
    wait_first,
    wait_no_more,
)
from gpusim.policies.schedule.parts.vllm_tables import (
    ALONE_WHOLE,
    ASYNC,
    BLOCK,
    BUDGET,
    BY_PRIORITY,
    CACHING,
    CHUNKED,
    COUNTS_ADMITTED,
    GOES_ON,
    HOLDERS_FIRST,
    LONG_PREFILL,
    MAX_LEN,
    MAX_SEQS,
    MAX_TOKENS,
    PASSES_OVER,
    RESERVE_PROMPT,
    TAKES_BACK,
    WATERMARK,
    VllmTables,
)
from gpusim.policies.schedule.parts.waiting import (
    HOLDING,
    NONE,
    WaitingTable,
    end_of,
    first_of,
    goes_before,
)

REFUSED, PASSED_OVER, ADMITTED = range(1, 4)  # what becomes of a waiting request


@kernel
def cap(own: VllmTables, step: StepTable) -> int:
    """The most tokens of one prompt in this step; 0: no bound."""
    alone = step.word[N_RUNNING] + step.word[N_WAITING] <= 1
    return 0 if own.option[ALONE_WHOLE] and alone else own.option[LONG_PREFILL]


@kernel
def capped(n: int, most: int) -> int:
    return most if 0 < most < n else n


# Running requests.


@kernel
def drop_from_running(own: VllmTables, step: StepTable, at: int) -> None:
    for i in range(at, step.word[N_RUNNING] - 1):
        own.running[i] = own.running[i + 1]
    step.word[N_RUNNING] -= 1


@kernel
def place_of_victim(own: VllmTables, requests: RequestTable, step: StepTable) -> int:
    """Where among the running the one stands that has to go: the last, or the one that matters least."""
    last = step.word[N_RUNNING] - 1
    if own.option[BY_PRIORITY]:
        worst = 0
        for i in range(1, last + 1):
            if goes_before(requests.priority, own.running[worst], own.running[i]):
                worst = i
        return worst
    return last


@kernel
def row_of(step: StepTable, r: int) -> int:
    """The request's row in the step so far; -1: none."""
    for row in range(step.word[N_STEP]):
        if step.request[row] == r:
            return row
    return -1


@outlined
def take_back(own: VllmTables, step: StepTable, r: int) -> None:
    """A victim leaves the step; in versions that forget to, its tokens stay in it and count as computed from the first on."""
    row = row_of(step, r)
    if row < 0:
        return
    if own.option[TAKES_BACK] == 0:
        step.before[row] = 0
        return
    own.word[BUDGET] += step.tokens[row]
    for later in range(row, step.word[N_STEP] - 1):
        step.request[later] = step.request[later + 1]
        step.tokens[later] = step.tokens[later + 1]
        step.before[later] = step.before[later + 1]
    step.word[N_STEP] -= 1


@outlined
def preempt(
    own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable, at: int
) -> int:
    """The request at this place among the running gives its blocks up and waits, first in line; which it is."""
    victim = own.running[at]
    drop_from_running(own, step, at)
    take_back(own, step, victim)
    free_blocks(own, pool, victim)
    if own.option[ASYNC]:
        forget_output(own, victim)
    step.status[victim] = PREEMPTED
    step.computed[victim] = 0
    step.preemptions[victim] += 1
    own.partial[victim] = 0
    wait_first(own, requests, queue, victim)
    step.word[N_WAITING] += 1
    step.preempted[step.word[N_PREEMPTED]] = victim
    step.word[N_PREEMPTED] += 1
    step.word[PREEMPTIONS] += 1
    return victim


@kernel
def add_row(own: VllmTables, step: StepTable, r: int, n: int) -> None:
    row = step.word[N_STEP]
    step.request[row], step.tokens[row], step.before[row] = r, n, step.computed[r]
    step.word[N_STEP] = row + 1
    own.word[BUDGET] -= n


@outlined
def run_on(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable) -> None:
    """Tokens for the running requests, in order, until the step is full or one had to stop."""
    most = cap(own, step)
    i = 0
    while i < step.word[N_RUNNING] and own.word[BUDGET] > 0:
        r = own.running[i]
        if own.option[ASYNC] and ends_with_what_is_owed(own, requests, step, r):
            i += 1
            continue
        computed = step.computed[r]
        lacks = length(requests, step, r) + owed_to(own, r) - computed
        n = min(capped(lacks, most), own.word[BUDGET], own.option[MAX_LEN] - 1 - computed)
        if n <= 0:
            i += 1
            continue
        victim = NONE
        fits = allocate(own, requests, step, pool, r, computed + n, 0, 0)
        while not fits and victim != r:
            at = place_of_victim(own, requests, step)
            if still_written(own, step, own.running[at]):
                break
            victim = preempt(own, requests, step, pool, queue, at)
            if at < i and own.option[TAKES_BACK]:
                i -= 1
            fits = victim != r and allocate(own, requests, step, pool, r, computed + n, 0, 0)
        if fits:
            name_blocks(own, requests, step, pool, r, computed + n)
            add_row(own, step, r, n)
            i += 1
        elif victim != r or not (own.option[GOES_ON] and own.option[BY_PRIORITY]):
            break


# Waiting requests.


@kernel
def count_look_up(own: VllmTables, requests: RequestTable, step: StepTable, r: int, hits: int) -> None:
    if own.option[CACHING] == 0:
        return
    again = own.option[COUNTS_ADMITTED] != 0 and step.preemptions[r] > 0
    step.word[QUERIED_AGAIN if again else QUERIED] += length(requests, step, r)
    step.word[HIT_AGAIN if again else HIT] += hits * own.option[BLOCK]


@kernel
def kept_for_others(own: VllmTables, requests: RequestTable, step: StepTable, queue: WaitingTable) -> int:
    """Blocks that requests under way still need for the tokens they have."""
    kept = 0
    for i in range(step.word[N_RUNNING]):
        r = own.running[i]
        if own.partial[r]:
            kept += lacking(own, r, length(requests, step, r), 0)
    r = first_of(queue, HOLDING)
    while r != NONE:
        if own.partial[r]:
            kept += lacking(own, r, length(requests, step, r), 0)
        r = queue.behind[r]
        if r >= end_of(queue, 0):
            break
    return kept


@outlined
def admit(
    own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable, r: int, most: int
) -> int:
    """Try to start the request: ADMITTED (it runs, or its load has begun), PASSED_OVER, or REFUSED, which ends the step."""
    hits, sent_for, looked_up = 0, 0, step.computed[r] == 0
    if looked_up:
        hits = look_up(own, requests, step, pool, r)
        if not own.option[COUNTS_ADMITTED]:
            count_look_up(own, requests, step, r, hits)
        if step.word[TIERS]:
            least = 0 if step.word[TIERS] == ASYNC_LOADS else 1  # tokens left to compute
            held = min(step.below[r], length(requests, step, r) - least)
            sent_for = max(held - hits * own.option[BLOCK], 0)
            step.below[r] = UNKNOWN
    there = step.computed[r] + hits * own.option[BLOCK] + sent_for
    waits = sent_for > 0 and step.word[TIERS] == ASYNC_LOADS
    n = 0
    if not waits:
        n = capped(length(requests, step, r) - there, most)
        if not own.option[CHUNKED] and n > own.word[BUDGET]:
            return PASSED_OVER if own.option[PASSES_OVER] else REFUSED
        n = min(n, own.word[BUDGET])
    if not room_for(own, requests, step, pool, r, hits):
        return REFUSED
    spare = spare_blocks(own, step)
    if waits and own.option[HOLDERS_FIRST]:
        spare += kept_for_others(own, requests, step, queue)
    if not allocate(own, requests, step, pool, r, there + n, hits, spare):
        return REFUSED
    if looked_up and own.option[COUNTS_ADMITTED]:
        count_look_up(own, requests, step, r, hits)
    if sent_for:
        send_for(step, r, there - sent_for, there)
    if waits:
        step.status[r], step.below[r] = LOADING, there
        own.partial[r], own.arrived[r] = 1, 0
        return ADMITTED
    name_blocks(own, requests, step, pool, r, there + n)
    start(own, requests, step, r, there, n)
    return ADMITTED


@kernel
def spare_blocks(own: VllmTables, step: StepTable) -> int:
    """Blocks that a request which is not running has to leave free."""
    return own.option[WATERMARK] if step.word[N_RUNNING] else 0


@kernel
def room_for(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, r: int, hits: int) -> bool:
    """Whether all tokens that the request has so far would fit, where that is asked."""
    if own.option[RESERVE_PROMPT] == 0:
        return True
    whole = lacking(own, r, min(length(requests, step, r), own.option[MAX_LEN]), hits) + idle_hits(own, pool, hits)
    return whole + spare_blocks(own, step) <= pool.word[POOL_FREE]


@kernel
def send_for(step: StepTable, r: int, first: int, end: int) -> None:
    row = step.word[N_LOADS]
    step.load[row, 0], step.load[row, 1], step.load[row, 2] = r, first, end
    step.word[N_LOADS] = row + 1


@kernel
def start(own: VllmTables, requests: RequestTable, step: StepTable, r: int, there: int, n: int) -> None:
    """The request runs, with so many tokens there and n to compute."""
    step.computed[r], step.status[r] = there, RUNNING
    run_adapter(own, requests, r)
    own.partial[r] = there + n < length(requests, step, r)
    if step.cached[r] < 0:
        step.cached[r] = there
    own.running[step.word[N_RUNNING]] = r
    step.word[N_RUNNING] += 1
    add_row(own, step, r, n)


@kernel
def open_to_more(own: VllmTables, step: StepTable) -> bool:
    return own.word[BUDGET] > 0 and step.word[N_RUNNING] < own.option[MAX_SEQS]


@kernel
def settle(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, r: int) -> None:
    """What the request waited for is there: its blocks can be found, and at least one of its tokens is left to compute."""
    there, last = step.below[r], length(requests, step, r) - 1
    if own.option[HOLDERS_FIRST] == 0:  # all that its blocks have slots for counts as loaded
        there = min(own.held[r] * own.option[BLOCK], last)
    if there > 0:
        name_blocks(own, requests, step, pool, r, there)
    elif own.option[HOLDERS_FIRST]:
        free_blocks(own, pool, r)
    step.computed[r] = min(there, last)
    step.below[r], own.arrived[r] = UNKNOWN, 0
    again = own.option[HOLDERS_FIRST] and step.preemptions[r] > 0
    step.status[r] = PREEMPTED if again else WAITING


@kernel
def not_asked(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, r: int) -> bool:
    """Whether the tiers have to be asked for the request, which is noted."""
    if step.word[TIERS] == 0 or step.computed[r] != 0 or step.below[r] >= 0:
        return False
    step.word[ASKED] = r
    step.word[ON_DEVICE] = look_up(own, requests, step, pool, r) * own.option[BLOCK]
    return True


@outlined
def admit_holders(
    own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable, most: int
) -> int:
    """Start requests whose keys and values have come; 0, REFUSED when one does not fit, which ends the step, or ASK_TIER."""
    r = first_of(queue, HOLDING)
    while r != NONE and open_to_more(own, step):
        later = queue.behind[r]
        if step.status[r] != LOADING or own.arrived[r]:
            if step.status[r] == LOADING:
                settle(own, requests, step, pool, r)
            if lacks_slot(own, requests, r):
                r = later if later < end_of(queue, 0) else NONE
                continue
            if not_asked(own, requests, step, pool, r):
                return ASK_TIER
            if admit(own, requests, step, pool, queue, r, most) != ADMITTED:
                return REFUSED
            if step.status[r] == RUNNING:
                hold_no_more(own, queue, r)
                step.word[N_WAITING] -= 1
        r = later if later < end_of(queue, 0) else NONE
    return 0


@outlined
def admit_waiting(
    own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, queue: WaitingTable, most: int
) -> int:
    """Start waiting requests as long as they fit; 0, or ASK_TIER when the tiers have to be asked first."""
    while open_to_more(own, step):
        r = next_waiting(own, queue)
        if r == NONE:
            break
        if step.status[r] == LOADING:
            if not own.arrived[r]:
                pass_over(own, requests, queue, r)
                continue
            settle(own, requests, step, pool, r)
        if lacks_slot(own, requests, r):
            pass_over(own, requests, queue, r)
            continue
        if not_asked(own, requests, step, pool, r):
            return ASK_TIER
        became = admit(own, requests, step, pool, queue, r, most)
        if became == REFUSED:
            break
        if became == PASSED_OVER or (step.status[r] == LOADING and own.option[HOLDERS_FIRST] == 0):
            pass_over(own, requests, queue, r)
            continue
        wait_no_more(own, requests, queue, r)
        if step.status[r] == LOADING:
            hold(own, requests, queue, r)
        else:
            step.word[N_WAITING] -= 1
    wait_again(own, requests, queue)
    return 0


@kernel
def begin_step(own: VllmTables, step: StepTable) -> None:
    for word in range(8):  # the counts of rows
        step.word[word] = 0
    own.word[BUDGET] = own.option[MAX_TOKENS]


@kernel
def end_step(step: StepTable) -> int:
    total = 0
    for row in range(step.word[N_STEP]):
        total += step.tokens[row]
    step.word[N_TOKENS] = total
    return step.word[N_STEP]
