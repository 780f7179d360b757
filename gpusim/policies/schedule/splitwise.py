"""SplitwiseSim's scheduler of one machine: whole prompts beside tokens of running requests, prompts first.

A batch is chosen when a request ends or comes: parts that were passed over `max_preemptions` times go first, then prompts,
then tokens of requests that were preempted, of those that run, and of others, up to the requests and the tokens of a step; a
prompt above that runs first in its batch.  What runs and is not chosen waits, with its memory.  What interrupts a batch does
so after its step.  Prompts are not cut; a prompt takes room for itself and a token when it begins, the tokens after it for all
of them.  Prompt and tokens of a request may run on two machines (`part`).

max_preemptions  how often a part is passed over at most before others

Source: SplitwiseSim (Mutinifni/splitwise-sim @8f99e7dc, MIT), instance.py and task.py, rules in own words, compared request
by request.
"""

from __future__ import annotations

from gpusim.base.compiled import Placed, kernel, outlined
from gpusim.base.errors import PolicyError
from gpusim.base.tables import filled
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import splitwise_step as steps
from gpusim.policies.schedule.parts import splitwise_tables as w
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.arriving import misfit
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.splitwise_tables import SPLITWISE, SplitwiseTables, splitwise_at
from gpusim.policies.schedule.parts.tables import VERB, RequestTable, StepTable, requests_at, step_at
from gpusim.policies.schedule.parts.waiting import (
    HOLDING,
    IN_LINE,
    WAITING_TABLE,
    WaitingTable,
    join_last,
    leave_ring,
    waiting_at,
    waiting_table,
)

PARAMS = {"max_preemptions": 4}


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError where parts may not be passed over even once."""
    if params[0] < 1:
        raise PolicyError(f"parameter 'max_preemptions' of policy 'splitwise' is {params[0]:g}", hint="at least 1")
    n = shared.requests.arrival.size
    queue = Placed(waiting_table(n, False), WAITING_TABLE)
    own = filled(w.SplitwiseTables, {"requests": n, "parts": 2 * n, "seqs": limits.max_seqs})
    own.at[:] = shared.requests_at, shared.step_at, queue.address
    room = limits.blocks * limits.block_size
    own.option[:] = limits.max_seqs, limits.max_tokens, limits.max_len, limits.block_size, room, params[0]
    shared.step.word[t.FREE] = shared.step.word[t.BLOCKS] = limits.blocks
    return [Placed(own, SPLITWISE), queue]


@kernel
def told(own: SplitwiseTables, step: StepTable) -> None:
    """What the loop reads."""
    word, block = own.word, own.option[w.BLOCK]
    step.word[t.N_RUNNING], step.word[t.N_WAITING] = word[w.RUNS], word[w.KNOWN] - word[w.RUNS]
    step.word[t.PARTS] = word[w.WAITS]
    step.word[t.FREE] = step.word[t.BLOCKS] - (word[w.HELD] + block - 1) // block


@kernel
def refusal(own: SplitwiseTables, requests: RequestTable, r: int) -> int:
    """Why a request can never run; 0: it can."""
    reason = misfit(requests, r, own.option[w.MAX_LEN], False)
    if reason == 0 and requests.prompt[r] + requests.output[r] > own.option[w.CAPACITY]:
        return t.NO_ROOM
    return reason


@outlined
def admit(own: SplitwiseTables, requests: RequestTable, step: StepTable, queue: WaitingTable, r: int) -> int:
    reason = refusal(own, requests, r)
    if reason:
        step.status[r] = t.REJECTED
        step.word[t.REFUSED] += 1
        return reason
    if step.part[r] == t.TOKENS_ONLY:
        if own.word[w.HELD] + requests.prompt[r] + 1 > own.option[w.CAPACITY]:
            return t.NOT_NOW
        w.hold(own, r, requests.prompt[r] + 1)
        own.part[r], step.made[r], step.computed[r] = w.TOKEN, 1, requests.prompt[r]
        step.status[r], step.cached[r] = t.LOADING, 0
    else:
        step.status[r], step.cached[r] = t.WAITING, 0
        w.know(own, r)
        join_last(queue, IN_LINE, r)
        steps.come(own, requests, step, queue, 2 * r)
        if step.part[r] == t.ALL and requests.output[r] > 1:
            steps.come(own, requests, step, queue, 2 * r + 1)
    told(own, step)
    return 0


@verb(VERB)
def arrive(at: int, r: int, now: int) -> int:
    own = splitwise_at(at)
    requests, step, queue = requests_at(own.at[w.TO_REQUESTS]), step_at(own.at[w.TO_STEP]), waiting_at(own.at[w.TO_QUEUE])
    return admit(own, requests, step, queue, r)


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = splitwise_at(at)
    requests, step = requests_at(own.at[w.TO_REQUESTS]), step_at(own.at[w.TO_STEP])
    for word in range(8):  # the counts of rows
        step.word[word] = 0
    total = 0
    for i in range(own.word[w.RUNS]):
        request = own.batch[i]
        step.request[i], step.tokens[i] = request, w.rows_of(requests, w.present(own, request))
        step.before[i] = requests.prompt[request] + step.made[request] - 1 if own.part[request] == w.TOKEN else 0
        total += step.tokens[i]
    step.word[t.N_PREEMPTED], own.word[w.PREEMPTED_NOW] = own.word[w.PREEMPTED_NOW], 0
    step.word[t.N_STEP], step.word[t.N_TOKENS] = own.word[w.RUNS], total
    step.word[t.STEPS] += own.word[w.RUNS] > 0
    told(own, step)
    return own.word[w.RUNS]


@outlined
def goes_on(own: SplitwiseTables, requests: RequestTable, step: StepTable, r: int) -> bool:
    """The batch is over; a request stays in it, or its part has ended, and with the last one its tokens leave."""
    if step.status[r] == t.ABORTED:
        w.hold(own, r, -own.held[r])
    elif own.part[r] == w.PROMPT:
        own.part[r], own.state[r] = w.TOKEN, w.IDLE
        if requests.output[r] > 1 and step.part[r] == t.ALL:
            step.status[r] = t.WAITING
            return False
        step.status[r] = t.FINISHED
        if requests.output[r] == 1:
            w.hold(own, r, -own.held[r])
    elif step.made[r] < requests.output[r]:
        return True
    else:
        step.status[r] = t.FINISHED
        w.hold(own, r, -own.held[r])
    w.know_no_more(own, r)
    return False


@verb(VERB)
def over(at: int, r: int, now: int) -> int:
    own = splitwise_at(at)
    requests, step, queue = requests_at(own.at[w.TO_REQUESTS]), step_at(own.at[w.TO_STEP]), waiting_at(own.at[w.TO_QUEUE])
    own.word[w.TO_GO] -= 1
    ended = left = 0
    for i in range(own.word[w.RUNS]):
        request = own.batch[i]
        step.made[request] += 1
        step.computed[request] = requests.prompt[request] + step.made[request] - 1
    if own.word[w.TO_GO] <= 0:
        for i in range(own.word[w.RUNS]):
            request = own.batch[i]
            if goes_on(own, requests, step, request):
                own.batch[left] = request
                left += 1
            elif step.status[request] == t.FINISHED:
                step.ended[ended] = request
                ended += 1
        own.word[w.RUNS] = left
        steps.next_batch(own, requests, step, queue)
    step.word[t.N_ENDED] = ended
    told(own, step)
    return ended


@outlined
def give_up(own: SplitwiseTables, requests: RequestTable, step: StepTable, queue: WaitingTable, r: int) -> None:
    """The request needs nothing here any more; in a batch its row is still computed."""
    was = step.status[r]
    if was == t.RUNNING:
        step.status[r] = t.ABORTED
        own.word[w.TO_GO] = 1
    elif was == t.WAITING or was == t.PREEMPTED:
        if own.part[r] == w.PROMPT:
            leave_ring(queue, IN_LINE, r)
        elif own.state[r] == w.BLOCKED:
            leave_ring(queue, HOLDING, r)
        w.wait_no_more(own, w.present(own, r))
        w.know_no_more(own, r)
    first = own.part[r] == w.PROMPT and (was == t.RUNNING or was == t.WAITING)
    if first and step.part[r] == t.ALL and requests.output[r] > 1:
        w.wait_no_more(own, 2 * r + 1)
    if was != t.RUNNING:
        w.hold(own, r, -own.held[r])
        if was != t.FINISHED:
            step.status[r] = t.ABORTED


@verb(VERB)
def leave(at: int, r: int, now: int) -> int:
    own = splitwise_at(at)
    requests, step, queue = requests_at(own.at[w.TO_REQUESTS]), step_at(own.at[w.TO_STEP]), waiting_at(own.at[w.TO_QUEUE])
    if step.status[r] != t.ABSENT:
        give_up(own, requests, step, queue, r)
        steps.room_again(own, requests, step, queue)
        told(own, step)
    return 0


@verb(VERB)
def loaded(at: int, r: int, now: int) -> int:
    own = splitwise_at(at)
    requests, step, queue = requests_at(own.at[w.TO_REQUESTS]), step_at(own.at[w.TO_STEP]), waiting_at(own.at[w.TO_QUEUE])
    if step.status[r] == t.LOADING:
        step.status[r] = t.WAITING
        w.know(own, r)
        steps.come(own, requests, step, queue, 2 * r + 1)
        told(own, step)
    return 0
