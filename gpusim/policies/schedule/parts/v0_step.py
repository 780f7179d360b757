"""A step of vLLM v0's scheduler: prompts alone, else a token for each running request, and swapped requests come back.

With chunked prefill the tokens of running requests go first, then swapped ones, then new prompts, all in one step.

Source: vLLM 0.9.2 core/scheduler.py (Apache-2.0), its rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.tables import (
    HIT,
    IN,
    N_ENDED,
    N_PREEMPTED,
    N_STEP,
    N_SWAPS,
    N_WAITING,
    OUT,
    PREEMPTED,
    PREEMPTIONS,
    QUERIED,
    REFUSED,
    REJECTED,
    RUNNING,
    SWAPPED,
    RequestTable,
    StepTable,
)
from gpusim.policies.schedule.parts.v0_blocks import (
    LATER,
    NEVER,
    YES,
    append,
    can_start,
    can_swap,
    found_in_cache,
    free,
    free_of,
    start,
    swap,
    touched_by_next,
)
from gpusim.policies.schedule.parts.v0_tables import (
    BEGAN,
    BLOCK,
    CACHING,
    CAME,
    CHUNKED,
    COUNTED,
    DEVICE,
    HOST,
    KEPT,
    MAX_LEN,
    MAX_SEQS,
    MAX_TOKENS,
    NO_SWAP_SPACE,
    RUNS,
    SWAPS,
    TAKEN,
    TIME,
    UNSORTED,
    BlockPools,
    V0Tables,
)
from gpusim.policies.schedule.parts.vllm_blocks import length
from gpusim.policies.schedule.parts.waiting import (
    HOLDING,
    IN_LINE,
    NONE,
    WaitingTable,
    first_of,
    goes_before,
    join_first,
    join_last,
    leave_ring,
)


@kernel
def new_tokens(own: V0Tables, requests: RequestTable, step: StepTable, r: int, found: int, cuts: bool) -> int:
    """Tokens of the request to be computed now, of which `found` are in the cache; 0 where the step has none left for it."""
    if own.decodes[r]:
        n = 1
    else:
        n = length(requests, step, r) - step.computed[r] - reused(own, requests, step, r, found)
    if cuts:
        left = own.option[MAX_TOKENS] - own.word[TAKEN]
        if own.option[CACHING]:
            left = left // own.option[BLOCK] * own.option[BLOCK]
        n = min(n, left)
    return n


@kernel
def reused(own: V0Tables, requests: RequestTable, step: StepTable, r: int, found: int) -> int:
    """Tokens found that need not be computed; of a request of which all are found the last one is."""
    if own.decodes[r] or own.option[CACHING] == 0:
        return 0
    there = max(found - step.computed[r], 0)
    return there - int(there == length(requests, step, r) - step.computed[r])


@kernel
def add_row(own: V0Tables, step: StepTable, r: int, n: int, there: int) -> None:
    """n of the request's tokens are computed, behind `there` more that were found."""
    row = step.word[N_STEP]
    step.request[row], step.tokens[row], step.before[row] = r, n, step.computed[r] + there
    own.chunk[r] = n + there
    step.word[N_STEP] = row + 1
    own.word[TAKEN] += n
    own.used[r] = own.word[TIME]


@kernel
def refuse(step: StepTable, r: int) -> None:
    """There is not, and will not be, room for the request."""
    step.status[r] = REJECTED
    step.word[REFUSED] += 1
    step.ended[step.word[N_ENDED]] = r
    step.word[N_ENDED] += 1


# Waiting requests.


@kernel
def prompt_limit(own: V0Tables) -> int:
    return own.option[MAX_LEN] if own.option[CHUNKED] else min(own.option[MAX_LEN], own.option[MAX_TOKENS])


@outlined
def admit_prompts(
    own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, queue: WaitingTable
) -> None:
    """Waiting requests start in order, as long as there are tokens, places and blocks."""
    if own.word[TAKEN] >= own.option[MAX_TOKENS]:
        return
    r = first_of(queue, IN_LINE)
    while r != NONE:
        found = found_in_cache(own, requests, step, pools, r) if own.option[CACHING] else 0
        n = new_tokens(own, requests, step, r, found, own.option[CHUNKED] != 0)
        there = reused(own, requests, step, r, found)
        fits = can_start(own, requests, step, pools, r)
        impossible = n + there > prompt_limit(own) or fits == NEVER
        if not impossible:
            room = own.word[TAKEN] + n <= own.option[MAX_TOKENS] and own.word[COUNTED] < own.option[MAX_SEQS]
            if fits == LATER or own.word[TAKEN] >= own.option[MAX_TOKENS] or n <= 0 or not room:
                break
        leave_ring(queue, IN_LINE, r)
        step.word[N_WAITING] -= 1
        if impossible:
            refuse(step, r)
        else:
            _begin(own, requests, step, pools, r, found, n)
        r = first_of(queue, IN_LINE)


@kernel
def _begin(
    own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int, found: int, n: int
) -> None:
    there = reused(own, requests, step, r, found)
    start(own, requests, step, pools, r)
    own.found[r] = found
    if step.cached[r] < 0:
        step.cached[r] = there
    if own.option[CACHING]:
        step.word[QUERIED] += length(requests, step, r)
        step.word[HIT] += there
    step.status[r] = RUNNING
    add_row(own, step, r, n, there)
    own.word[COUNTED] += 1
    own.began[own.word[BEGAN]] = r
    own.word[BEGAN] += 1


# Preemption.


@outlined
def preempt(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int) -> bool:
    """The request gives its blocks up, for good or to the host's memory; False where there is no room there."""
    if own.option[SWAPS]:
        if can_swap(own, requests, step, pools, r, HOST) != YES:
            own.word[NO_SWAP_SPACE] = 1
            return False
        swap(own, requests, step, pools, r, HOST)
        _note_swap(own, step, r, OUT)
        step.status[r] = SWAPPED
    else:
        free(own, pools, r, DEVICE)
        step.status[r], step.computed[r], own.decodes[r] = PREEMPTED, 0, 0
    step.preemptions[r] += 1
    step.preempted[step.word[N_PREEMPTED]] = r
    step.word[N_PREEMPTED] += 1
    step.word[PREEMPTIONS] += 1
    step.word[N_WAITING] += 1
    return True


@kernel
def _note_swap(own: V0Tables, step: StepTable, r: int, way: int) -> None:
    row = step.word[N_SWAPS]
    step.swap[row, 0], step.swap[row, 1], step.swap[row, 2] = r, own.held[r], way
    step.word[N_SWAPS] = row + 1


@kernel
def queue_preempted(own: V0Tables, step: StepTable, queue: WaitingTable, first: int) -> None:
    """After the step those preempted last are the first in line; swapped ones stand in a line of their own, the first first."""
    for i in range(first, step.word[N_PREEMPTED]):
        r = step.preempted[i]
        if step.status[r] == SWAPPED:
            join_last(queue, HOLDING, r)
        else:
            join_first(queue, IN_LINE, r)
            own.word[UNSORTED] = 1


# Running requests.


@outlined
def run_on(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools) -> None:
    """Running requests get their next tokens, in order; where one finds no block, the last of them gives its own up."""
    cuts = own.option[CHUNKED] != 0
    at, end = 0, own.word[RUNS]
    while at < end:
        r = own.running[at]
        n = new_tokens(own, requests, step, r, own.found[r], cuts)
        if n <= 0:
            break
        at += 1
        there = True
        while there and touched_by_next(own, requests, step, r) > free_of(pools, DEVICE):
            victim = r
            if at < end:
                end -= 1
                victim = own.running[end]
            if not preempt(own, requests, step, pools, victim):
                return
            there = victim != r
        if there:
            append(own, requests, step, pools, r)
            own.kept[own.word[KEPT]] = r
            own.word[KEPT] += 1
            own.word[COUNTED] += int(cuts)
            add_row(own, step, r, n, reused(own, requests, step, r, own.found[r]))
    for i in range(at, end):
        own.running[i - at] = own.running[i]
    own.word[RUNS] = end - at


@outlined
def close_ranks(own: V0Tables, requests: RequestTable, step: StepTable) -> None:
    """The order of those that run from now on: not reached, come back, going on, begun.

    With chunks those that decode stand before prompts, and prompts that end with this step before others.
    """
    count = own.word[RUNS]
    if own.option[CHUNKED]:
        for prompts in range(2):
            for i in range(own.word[CAME]):
                if own.decodes[own.came[i]] != prompts:
                    own.running[count] = own.came[i]
                    count += 1
    for kind in range(3):
        for i in range(own.word[KEPT]):
            if kind == _kind(own, requests, step, own.kept[i]):
                own.running[count] = own.kept[i]
                count += 1
    if own.option[CHUNKED] == 0:
        for i in range(own.word[CAME]):
            own.running[count] = own.came[i]
            count += 1
    for i in range(own.word[BEGAN]):
        own.running[count] = own.began[i]
        count += 1
    own.word[RUNS] = count


@kernel
def _kind(own: V0Tables, requests: RequestTable, step: StepTable, r: int) -> int:
    """0 of a request that decodes, 1 of a prompt that this step ends, 2 of another."""
    if own.decodes[r]:
        return 0
    return 1 if step.computed[r] + own.chunk[r] == length(requests, step, r) else 2


@outlined
def come_back(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, queue: WaitingTable) -> None:
    """Swapped requests come back in order, as long as there is room for them."""
    r = first_of(queue, HOLDING)
    while r != NONE:
        fits = can_swap(own, requests, step, pools, r, DEVICE)
        if fits == LATER:
            break
        n = new_tokens(own, requests, step, r, own.found[r], False)
        if fits == YES and (
            n <= 0 or own.word[TAKEN] + n > own.option[MAX_TOKENS] or own.word[COUNTED] >= own.option[MAX_SEQS]
        ):
            break
        leave_ring(queue, HOLDING, r)
        step.word[N_WAITING] -= 1
        if fits == NEVER:
            refuse(step, r)  # what it has in the host's memory is never freed
        else:
            swap(own, requests, step, pools, r, DEVICE)
            _note_swap(own, step, r, IN)
            append(own, requests, step, pools, r)
            step.status[r] = RUNNING
            add_row(own, step, r, n, reused(own, requests, step, r, own.found[r]))
            own.word[COUNTED] += 1
            own.came[own.word[CAME]] = r
            own.word[CAME] += 1
        r = first_of(queue, HOLDING)


# Priorities.


@outlined
def by_priority(
    own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, queue: WaitingTable
) -> None:
    """Running requests that matter less than the first in line give their blocks up for it; then both lines are sorted."""
    for i in range(own.word[RUNS]):
        own.kept[i] = own.running[i]
    _sort(own, requests, own.word[RUNS])
    for i in range(own.word[RUNS]):
        own.running[i] = own.kept[i]
    r = first_of(queue, IN_LINE)
    if r != NONE:
        found = found_in_cache(own, requests, step, pools, r) if own.option[CACHING] else 0
        n = new_tokens(own, requests, step, r, found, False)
        while own.word[RUNS] > 0:
            last = own.running[own.word[RUNS] - 1]
            if goes_before(requests.priority, last, r):
                break
            fits = can_start(own, requests, step, pools, r) == YES and n > 0
            if fits and own.word[TAKEN] + n <= own.option[MAX_TOKENS] and own.word[COUNTED] < own.option[MAX_SEQS]:
                break
            own.word[RUNS] -= 1
            own.word[COUNTED] -= 1
            preempt(own, requests, step, pools, last)
            join_first(queue, IN_LINE, last)
            own.word[UNSORTED] = 1
    if own.word[UNSORTED]:
        _sort_line(own, requests, queue)
    own.word[UNSORTED] = 0


@kernel
def _sort_line(own: V0Tables, requests: RequestTable, queue: WaitingTable) -> None:
    """Those that wait stand by priority, then by arrival; `kept` is free for it while `running` is not being built."""
    count = 0
    while first_of(queue, IN_LINE) != NONE:
        own.kept[count] = first_of(queue, IN_LINE)
        leave_ring(queue, IN_LINE, own.kept[count])
        count += 1
    _sort(own, requests, count)
    for i in range(count):
        join_last(queue, IN_LINE, own.kept[i])


@outlined
def _sort(own: V0Tables, requests: RequestTable, count: int) -> None:
    """The first `count` of `kept` by priority and arrival: a heap sort."""
    for root in range(count // 2 - 1, -1, -1):
        _sink(own, requests, root, count)
    for end in range(count - 1, 0, -1):
        own.kept[0], own.kept[end] = own.kept[end], own.kept[0]
        _sink(own, requests, 0, end)


@kernel
def _sink(own: V0Tables, requests: RequestTable, at: int, count: int) -> None:
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and goes_before(requests.priority, own.kept[child], own.kept[child + 1]):
            child += 1
        if not goes_before(requests.priority, own.kept[at], own.kept[child]):
            break
        own.kept[at], own.kept[child] = own.kept[child], own.kept[at]
        at = child
