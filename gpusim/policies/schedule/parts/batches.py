"""Batches that run as a whole: all prompts in one step, then a token for each row until the longest output is made.

Each request of a batch holds KV blocks for the longest sequence, whatever it needs of them.  A row whose output is made is
computed on, as padding is, until the batch is over.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import Placed, by_pointer, kernel, outlined, tables_at
from gpusim.base.errors import PolicyError
from gpusim.base.tables import filled, signature
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.arriving import misfit, note_arrival
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable
from gpusim.policies.schedule.parts.waiting import (
    IN_LINE,
    WAITING_TABLE,
    WaitingTable,
    first_of,
    join_last,
    leave_ring,
    waiting_table,
)

i8 = np.int64
MOST, MAX_LEN, MAX_TOKENS, EACH, TOGETHER, DELAY, OPTIONS = range(7)
SIZE, STEPS_DONE, LONGEST, BATCH_WORDS = range(4)
TO_REQUESTS, TO_STEP, TO_QUEUE = range(3)


@by_pointer
class BatchTables(NamedTuple):
    """Options, the batch under way (size, steps done, the longest output in it) and sizes that are preferred."""

    at: Annotated[Any, i8, 3]
    option: Annotated[Any, i8, OPTIONS]
    word: Annotated[Any, i8, BATCH_WORDS]
    batch: Annotated[Any, i8, "seqs"]
    preferred: Annotated[Any, i8, "sizes"]  # ascending


BATCHES = signature(BatchTables)
batches_at = tables_at(BATCHES)


def batch_state(shared: InCommon, limits: EngineLimits, together: bool, delay: int, preferred: list[int]) -> list[Placed]:
    """The tables of a batching scheduler, its own first.

    delay      ns that the first request waits at most for others
    preferred  sizes of batches that need not wait, ascending; none: the largest batch

    Raises PolicyError where not even one sequence has room, and for a preferred size above the largest batch.
    """
    each = -(-limits.max_len // limits.block_size)
    most = min(limits.max_seqs, limits.blocks // each)
    if most == 0:
        said = f"one sequence of {limits.max_len} tokens needs {each} KV blocks, and there are {limits.blocks}"
        raise PolicyError(said, hint="lower the longest sequence, or give it more memory")
    if preferred and preferred[-1] > most:
        said = f"a batch of {preferred[-1]} is preferred; the largest is {most}, of {limits.max_seqs} requests at once"
        raise PolicyError(f"{said} and {limits.blocks} KV blocks, {each} for each of them")
    sizes = np.array(preferred or [most], i8)
    own = filled(BatchTables, {"seqs": most}, preferred=sizes)
    queue = Placed(waiting_table(shared.requests.arrival.size, False), WAITING_TABLE)
    own.at[:] = shared.requests_at, shared.step_at, queue.address
    own.option[:] = most, limits.max_len, limits.max_tokens, each, together, delay
    shared.step.word[t.FREE] = shared.step.word[t.BLOCKS] = limits.blocks
    return [Placed(own, BATCHES), queue]


@outlined
def join(own: BatchTables, requests: RequestTable, step: StepTable, queue: WaitingTable, r: int) -> int:
    """The request waits; or why it is refused."""
    reason = note_arrival(step, r, misfit(requests, r, own.option[MAX_LEN], False))
    if reason == 0:
        join_last(queue, IN_LINE, r)
    return reason


@outlined
def start_batch(
    own: BatchTables, requests: RequestTable, step: StepTable, queue: WaitingTable, size: int
) -> None:
    """So many of those that wait make up a batch, the first first."""
    own.word[SIZE], own.word[STEPS_DONE], own.word[LONGEST] = size, 0, 0
    for i in range(size):
        r = first_of(queue, IN_LINE)
        leave_ring(queue, IN_LINE, r)
        own.batch[i] = r
        own.word[LONGEST] = max(own.word[LONGEST], requests.output[r])
        step.status[r], step.cached[r] = t.RUNNING, 0
    step.word[t.N_WAITING] -= size
    step.word[t.N_RUNNING] = size
    step.word[t.FREE] -= size * own.option[EACH]


@outlined
def next_step(own: BatchTables, requests: RequestTable, step: StepTable) -> int:
    """The batch's next step: its prompts, or a token for each of its rows; how many rows."""
    total = 0
    for i in range(own.word[SIZE]):
        r = own.batch[i]
        first = own.word[STEPS_DONE] == 0
        step.request[i], step.tokens[i] = r, requests.prompt[r] if first else 1
        step.before[i] = 0 if first else requests.prompt[r] + own.word[STEPS_DONE] - 1
        total += step.tokens[i]
    step.word[t.N_STEP], step.word[t.N_TOKENS] = own.word[SIZE], total
    step.word[t.STEPS] += 1
    return own.word[SIZE]


@kernel
def clear_counts(step: StepTable) -> None:
    for word in range(8):  # the counts of rows
        step.word[word] = 0
    step.word[t.WAKE] = 0


@outlined
def step_over(own: BatchTables, requests: RequestTable, step: StepTable) -> int:
    """Each row has a token more; how many requests have their answer: those with all their tokens, or all with the last."""
    own.word[STEPS_DONE] += 1
    done, ended = own.word[STEPS_DONE] == own.word[LONGEST], 0
    for i in range(own.word[SIZE]):
        r = own.batch[i]
        step.computed[r] = requests.prompt[r] + own.word[STEPS_DONE] - 1
        if step.status[r] != t.RUNNING or (own.option[TOGETHER] and not done):
            continue
        step.made[r] = min(own.word[STEPS_DONE], requests.output[r])
        if step.made[r] == requests.output[r]:
            step.status[r] = t.FINISHED
            step.ended[ended] = r
            ended += 1
    if done:
        step.word[t.FREE] += own.word[SIZE] * own.option[EACH]
        own.word[SIZE] = step.word[t.N_RUNNING] = 0
    step.word[t.N_ENDED] = ended
    return ended


@outlined
def go_away(step: StepTable, queue: WaitingTable, r: int) -> None:
    """The client of a request goes away; in a batch its row is still computed."""
    if step.status[r] == t.WAITING:
        leave_ring(queue, IN_LINE, r)
        step.word[t.N_WAITING] -= 1
    if step.status[r] <= t.SWAPPED:
        step.status[r] = t.ABORTED
