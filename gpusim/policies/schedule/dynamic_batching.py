"""Dynamic batching as the Triton Inference Server's: a batch starts at a preferred size, or when its first request has waited.

The engine, when it is free, takes the largest preferred size that those that wait make up; fewer wait for others until the
delay of the first is over.  A delay of 0 does not wait, and takes all that are there, up to a preferred size.  One instance
of the model; a batch runs as a whole, as with static batching.

preferred_batch_size  sizes, as 4,8; none: the largest batch
max_queue_delay_us  us that a request waits at most for others
together  1: all answers are returned when the batch is over; 0: each token when it is made

Source: Triton Inference Server, core/src/dynamic_batch_scheduler.cc, GetDynamicBatch (BSD-3-Clause), its rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import Placed, kernel
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import batches as b
from gpusim.policies.schedule.parts.batch_options import P_DELAY, P_PREFERRED, P_TOGETHER
from gpusim.policies.schedule.parts.batches import BatchTables
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.tables import VERB, WAKE, RequestTable, StepTable, requests_at, step_at
from gpusim.policies.schedule.parts.waiting import IN_LINE, WaitingTable, first_of, waiting_at

NUMBERS = "gpusim.policies.schedule.parts.batch_options"
PARAMS = {"preferred_batch_size": "", "max_queue_delay_us": 0.0, "together": 1}


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError for a preferred size above the largest batch."""
    preferred = [int(size) for size in params[P_PREFERRED:]]
    return b.batch_state(shared, limits, params[P_TOGETHER] > 0, round(params[P_DELAY] * 1000), preferred)


@kernel
def size_of_batch(own: BatchTables, requests: RequestTable, step: StepTable, queue: WaitingTable, now: int) -> int:
    """How many of those that wait start now; 0: they wait for others, until WAKE at most."""
    count, delay, last = queue.count[IN_LINE], own.option[b.DELAY], own.preferred.size - 1
    most = min(count, own.option[b.MOST])
    if most == 0:
        return 0
    best = 0
    for i in range(last + 1):
        if own.preferred[i] <= most:
            best = own.preferred[i]
    begins = requests.arrival[first_of(queue, IN_LINE)] + delay
    late = delay > 0 and now >= begins
    if best > 0 and not late:
        return int(best)
    if late or delay == 0 or count > own.option[b.MOST] or most >= own.preferred[last]:
        return int(most)
    step.word[WAKE] = begins
    return 0


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
        size = size_of_batch(own, requests, step, queue, now)
        if size == 0:
            return 0
        b.start_batch(own, requests, step, queue, size)
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
