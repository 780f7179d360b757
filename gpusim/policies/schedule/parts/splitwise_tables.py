"""What the splitwise scheduler keeps beside the tables of the contract: parts of requests that wait, the batch, tokens held.

A request has two parts, its prompt and the tokens after the first; a part's number is 2 * request, or that + 1.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel, tables_at
from gpusim.base.tables import signature
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable
from gpusim.policies.schedule.parts.waiting import (
    HOLDING,
    IN_LINE,
    WaitingTable,
    join_last,
    leave_ring,
)

u1, i4, i8 = np.uint8, np.int32, np.int64
TO_REQUESTS, TO_STEP, TO_QUEUE = range(3)  # addresses
MAX_SEQS, MAX_TOKENS, MAX_LEN, BLOCK, CAPACITY, MAX_PREEMPTIONS, OPTIONS = range(7)  # CAPACITY: tokens

# Words: tokens held; lengths of the lists; prompts in the batch; tokens of the batch when it was chosen; steps that it makes
# before the next choice; of a choice its number, parts and tokens so far, and what memory would hold; parts preempted since the
# last step began.
(
    HELD, WAITS, KNOWN, RUNS, PROMPTS, BATCH_TOKENS, TO_GO, CHOICE, CHOSEN, TOKENS, MEMORY, PREEMPTED_NOW,
    SPLITWISE_WORDS,
) = range(13)  # fmt: skip
PROMPT, TOKEN = 0, 1                  # parts
IDLE, RUNS_NOW, BLOCKED = range(3)    # what the present part of a request does: it has not begun, or waits again


@by_pointer
class SplitwiseTables(NamedTuple):
    """Lists in order. Prompts that wait, and parts that were preempted, are the two rings of a WaitingTable."""

    at: Annotated[Any, i8, 3]
    option: Annotated[Any, i8, OPTIONS]
    word: Annotated[Any, i8, SPLITWISE_WORDS]
    waits: Annotated[Any, i4, "parts"]      # parts by how often they were passed over when they came here, then by arrival
    passed: Annotated[Any, i4, "parts"]     # how often each was passed over
    known: Annotated[Any, i4, "requests"]   # requests with parts here, by arrival
    batch: Annotated[Any, i4, "seqs"]       # requests
    chosen: Annotated[Any, i4, "seqs"]
    part: Annotated[Any, u1, "requests"]    # the present one
    state: Annotated[Any, u1, "requests"]   # of that
    held: Annotated[Any, i8, "requests"]    # tokens
    choice: Annotated[Any, i8, "requests"]  # the latest that took it


SPLITWISE = signature(SplitwiseTables)
splitwise_at = tables_at(SPLITWISE)


@kernel
def need(requests: RequestTable, part: int) -> int:
    """Tokens that a part takes room for when it begins: the prompt and a token; all others."""
    r = part >> 1
    return int(requests.prompt[r] + 1 if part & 1 == PROMPT else requests.output[r] - 1)


@kernel
def rows_of(requests: RequestTable, part: int) -> int:
    """Tokens of a step that a part computes."""
    return int(requests.prompt[part >> 1]) if part & 1 == PROMPT else 1


@kernel
def present(own: SplitwiseTables, r: int) -> int:
    """The part of a request that is its turn."""
    return 2 * r + int(own.part[r])


@kernel
def wait(own: SplitwiseTables, part: int) -> None:
    """A part waits, behind those that were passed over as often and came earlier, as a binary search finds the place."""
    low, high = 0, own.word[WAITS]
    while low < high:
        middle = (low + high) // 2
        other = own.waits[middle]
        fewer = own.passed[part] < own.passed[other]
        if fewer or (own.passed[part] == own.passed[other] and part >> 1 < other >> 1):
            high = middle
        else:
            low = middle + 1
    for i in range(own.word[WAITS], low, -1):
        own.waits[i] = own.waits[i - 1]
    own.waits[low] = part
    own.word[WAITS] += 1


@kernel
def wait_no_more(own: SplitwiseTables, part: int) -> None:
    i = 0
    while own.waits[i] != part:
        i += 1
    own.word[WAITS] -= 1
    for k in range(i, own.word[WAITS]):
        own.waits[k] = own.waits[k + 1]


@kernel
def know(own: SplitwiseTables, r: int) -> None:
    """A request has parts here."""
    i = own.word[KNOWN]
    while i > 0 and own.known[i - 1] > r:
        own.known[i] = own.known[i - 1]
        i -= 1
    own.known[i] = r
    own.word[KNOWN] += 1


@kernel
def know_no_more(own: SplitwiseTables, r: int) -> None:
    i, high = 0, own.word[KNOWN]
    while i < high:
        middle = (i + high) // 2
        if own.known[middle] < r:
            i = middle + 1
        else:
            high = middle
    own.word[KNOWN] -= 1
    for k in range(i, own.word[KNOWN]):
        own.known[k] = own.known[k + 1]


@kernel
def hold(own: SplitwiseTables, r: int, tokens: int) -> None:
    """The request holds so many tokens more."""
    own.held[r] += tokens
    own.word[HELD] += tokens


@kernel
def begin_part(own: SplitwiseTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    """The present part of a request joins the batch."""
    part = present(own, r)
    wait_no_more(own, part)
    if own.state[r] == BLOCKED:
        leave_ring(queue, HOLDING, r)
    else:
        hold(own, r, need(requests, part))
        if part & 1 == PROMPT:
            leave_ring(queue, IN_LINE, r)
    own.word[PROMPTS] += part & 1 == PROMPT
    own.state[r] = RUNS_NOW
    own.batch[own.word[RUNS]] = r
    own.word[RUNS] += 1


@kernel
def preempt(own: SplitwiseTables, step: StepTable, queue: WaitingTable, r: int) -> None:
    """A part that runs waits again; it keeps its tokens."""
    own.state[r] = BLOCKED
    wait(own, present(own, r))
    join_last(queue, HOLDING, r)
    step.preempted[own.word[PREEMPTED_NOW]] = r
    own.word[PREEMPTED_NOW] += 1
    step.preemptions[r] += 1
    step.word[t.PREEMPTIONS] += 1
    step.status[r] = t.PREEMPTED
