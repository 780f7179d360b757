"""What becomes of requests: they come and are given to an engine, have their tokens, end, or their clients go away."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.serving import managed
from gpusim.engine.serving.pool import pool_at
from gpusim.engine.serving.pooled import choose_in_pool, hand_on, leave_pool, promise
from gpusim.engine.serving.sampling import sample_tokens
from gpusim.engine.serving.tables import (
    ARRIVED,
    DECODE,
    ENDED,
    FIRST_TOKEN,
    GIVEN,
    LEAST_BUSY,
    LEAST_TOKENS,
    MIXED_POOL,
    OCTAVES,
    PER_OCTAVE,
    PREFILL,
    REJECTED,
    WENT_AWAY,
    WHOLE,
    Service,
)
from gpusim.engine.serving.telling import V_ARRIVE, V_LEAVE, call, note, owed_for
from gpusim.engine.serving.tiers import tiers_at
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable, StepTable, requests_at


@kernel
def is_due(s: Service, requests: RequestTable) -> bool:
    """The next request arrives now: its time has come, and there is a client that waits for nothing."""
    c = s.course[0]
    if c.arrived == requests.arrival.size or requests.arrival[c.arrived] > s.clock[0].now:
        return False
    return bool(c.at_once == 0 or c.in_flight < c.at_once)


@kernel
def takes(s: Service, r: int, role: int, e: int) -> bool:
    """Engine e has this role in the service of a request."""
    return bool(s.engine[e].role == role and s.engine[e].service == s.outcome[r].service)


@kernel
def choose(s: Service, r: int, role: int) -> int:
    """The engine of this role, or of all, that takes a request."""
    c, best, least, count = s.course[0], -1, 0, 0
    if c.routing == GIVEN:
        return int(s.outcome[r].engine)
    for e in range(s.engine.size):
        count += takes(s, r, role, e)
    turn = s.outcome[r].nth % max(count, 1)
    for e in range(s.engine.size):
        if takes(s, r, role, e):
            if c.routing == LEAST_BUSY or c.routing == LEAST_TOKENS:
                has = s.engine[e].under_way if c.routing == LEAST_BUSY else s.engine[e].owes
                if best < 0 or has < least:
                    best, least = e, has
            elif turn == 0:
                best = e
            turn -= 1
    return best


@kernel
def enter(s: Service, r: int, e: int) -> None:
    """An engine is given a request, which it takes or refuses."""
    x, engine = s.outcome[r], s.engine[e]
    x.engine = e
    x.refused = call(s, e, V_ARRIVE, r)
    if x.refused:
        note(s, REJECTED, r, e, x.refused)
    else:
        engine.under_way += 1
        engine.owes += owed_for(s, r)
        engine.woken = 1


@kernel
def arrive(s: Service, r: int) -> None:
    """A request comes."""
    pooled, x = s.course[0].routing == MIXED_POOL, s.outcome[r]
    e = choose_in_pool(s, r) if pooled else choose(s, r, PREFILL) if s.course[0].split else -1
    if e < 0:
        e = choose(s, r, WHOLE)
    x.came = s.clock[0].now
    note(s, ARRIVED, r, e, 0)
    enter(s, r, e)
    if pooled and x.refused == 0:
        promise(s, r)
    if x.refused == 0:
        s.course[0].in_flight += 1


@kernel
def hand_over(s: Service, r: int) -> None:
    """A prompt has been computed: another engine goes on with the request, and fetches its keys and values."""
    x = s.outcome[r]
    x.prefilled = x.engine
    enter(s, r, choose(s, r, DECODE))
    if x.refused:
        s.course[0].in_flight -= 1


@kernel
def leave(s: Service, r: int) -> None:
    """A client goes away; of a request that has not ended the scheduler is told."""
    x = s.outcome[r]
    if x.refused == 0 and x.ended == NEVER and x.engine >= 0:
        call(s, x.engine, V_LEAVE, r)
        x.ended = s.clock[0].now
        s.engine[x.engine].under_way -= 1
        s.engine[x.engine].owes -= owed_for(s, r)
        if s.course[0].routing == MIXED_POOL:
            leave_pool(s, r)
        s.course[0].in_flight -= 1
        s.engine[x.engine].woken = 1
        note(s, WENT_AWAY, r, x.engine, x.made)


@kernel
def gap_class(gap: int) -> int:
    """The row of `gaps` for so many ns between two tokens of a request."""
    octave = 0
    while gap >> (octave + 1):
        octave += 1
    within = int((gap / float(1 << octave) - 1.0) * PER_OCTAVE)
    return min(octave, OCTAVES - 1) * PER_OCTAVE + min(within, PER_OCTAVE - 1)


@kernel
def give_tokens(s: Service, e: int, step: StepTable) -> None:
    """Requests of the step that is over, whose outputs are longer than before."""
    now, total, gap, row = s.clock[0].now, 0, -1, 0
    if s.engine[e].role == PREFILL:
        return
    for i in range(step.word[told.N_STEP]):
        r = step.request[i]
        x = s.outcome[r]
        new = step.made[r] - x.made
        if new > 0 and x.ended == NEVER:
            if x.made == 0:
                x.first = now
                s.engine[e].owes -= owed_for(s, r) - 1
                note(s, FIRST_TOKEN, r, e, 0)
            else:
                if now - x.last != gap:  # most requests of a step had their last token in the same step
                    gap = now - x.last
                    row = gap_class(gap)
                s.gaps[s.engine[e].service, row] += 1
            x.made, x.last = step.made[r], now
            total += new
    s.engine[e].output_tokens += total
    sample_tokens(s, e, 0, total)


@kernel
def end_requests(s: Service, e: int, step: StepTable) -> None:
    """Requests that the scheduler has ended: they have all their tokens, or it has given them up."""
    pooled = s.course[0].routing == MIXED_POOL
    for i in range(step.word[told.N_ENDED]):
        r = step.ended[i]
        s.engine[e].under_way -= 1
        if pooled and pool_at(s.pool[0]).tokens_at[r] != e and step.made[r] < requests_at(s.requests[0]).output[r]:
            hand_on(s, r)
            continue
        s.engine[e].owes -= owed_for(s, r)
        if s.engine[e].role == PREFILL and step.status[r] != told.REJECTED:
            hand_over(s, r)
            continue
        if pooled:
            leave_pool(s, r)
        if tiers_at(s.tiers[0]).managed[0]:
            managed.finish(tiers_at(s.tiers[0]), requests_at(s.chunked[0]), e, r)
        s.outcome[r].ended = s.clock[0].now
        s.course[0].in_flight -= 1
        if step.status[r] == told.REJECTED:
            s.outcome[r].refused = told.NO_ROOM
            note(s, REJECTED, r, e, told.NO_ROOM)
        else:
            note(s, ENDED, r, e, step.made[r])
