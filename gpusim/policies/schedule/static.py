"""Static batching: those that wait make up a batch, as many as there is room for, and the next batch starts when it is over.

No request joins a batch under way, and a row whose output is made is computed on until the longest is.  Each row holds KV
blocks for the longest sequence.

together  1: all answers are returned when the batch is over, as from one call of the model; 0: each token when it is made

Source: request-level scheduling as G.-I. Yu and others describe it, Orca (OSDI 2022), section 2.
"""

from __future__ import annotations

from gpusim.base.compiled import Placed
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import batches as b
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.tables import VERB, requests_at, step_at
from gpusim.policies.schedule.parts.waiting import IN_LINE, waiting_at

PARAMS = {"together": 1}
LIMITS = {"together": 1}


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError where not even one sequence has room."""
    return b.batch_state(shared, limits, params[0] > 0, 0, [])


@verb(VERB)
def arrive(at: int, r: int, now: int) -> int:
    own = b.batches_at(at)
    return b.join(own, requests_at(own.at[b.TO_REQUESTS]), step_at(own.at[b.TO_STEP]), waiting_at(own.at[b.TO_QUEUE]), r)


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = b.batches_at(at)
    requests, step, queue = requests_at(own.at[b.TO_REQUESTS]), step_at(own.at[b.TO_STEP]), waiting_at(own.at[b.TO_QUEUE])
    b.clear_counts(step)
    if own.word[b.SIZE] == 0:
        b.start_batch(own, requests, step, queue, min(queue.count[IN_LINE], own.option[b.MOST]))
    return b.next_step(own, requests, step)


@verb(VERB)
def over(at: int, r: int, now: int) -> int:
    own = b.batches_at(at)
    return b.step_over(own, requests_at(own.at[b.TO_REQUESTS]), step_at(own.at[b.TO_STEP]))


@verb(VERB)
def leave(at: int, r: int, now: int) -> int:
    own = b.batches_at(at)
    b.go_away(step_at(own.at[b.TO_STEP]), waiting_at(own.at[b.TO_QUEUE]), r)
    return 0


@verb(VERB)
def loaded(at: int, r: int, now: int) -> int:
    return 0  # it sends for nothing
