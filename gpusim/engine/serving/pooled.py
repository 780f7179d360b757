"""A service with a mixed pool: where the parts of a request go, and keys and values on their way between engines."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.serving import pool
from gpusim.engine.serving.pool import pool_at
from gpusim.engine.serving.tables import REJECTED, SENT_FOR, Service
from gpusim.engine.serving.telling import V_ARRIVE, V_LEAVE, call, has_come, note
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.tables import NEVER, requests_at, step_at


@outlined
def choose_in_pool(s: Service, r: int) -> int:
    """The engine of a mixed pool that computes the prompt of a request, perhaps its tokens, too."""
    p = pool_at(s.pool[0])
    for e in range(s.engine.size):
        p.member[e].waits = step_at(s.engine[e].step).word[told.PARTS]
    e = pool.assign(p, requests_at(s.requests[0]), s.engine, r)
    step_at(s.engine[e].step).part[r] = told.ALL if p.tokens_at[r] == e else told.PROMPT_ONLY
    return e


@outlined
def promise(s: Service, r: int) -> None:
    """A request has come into the pool: its tokens are owed, and memory is promised, where prompt and tokens are to be."""
    p, requests, e = pool_at(s.pool[0]), requests_at(s.requests[0]), s.outcome[r].engine
    k = p.tokens_at[r]
    p.member[k].promised += requests.prompt[r] + requests.output[r]
    if k != e:
        p.member[e].promised += requests.prompt[r] + 1
        s.engine[e].owes -= 1
        s.engine[k].owes += 1


@outlined
def hand_on(s: Service, r: int) -> None:
    """A prompt of the pool has been computed: its keys and values set out to another engine, which makes the tokens."""
    p, x = pool_at(s.pool[0]), s.outcome[r]
    x.prefilled, x.engine = x.engine, p.tokens_at[r]
    s.engine[x.engine].under_way += 1
    set_out(s, r)


@outlined
def set_out(s: Service, r: int) -> None:
    """Keys and values are on their way, or will try again when there is no room for them."""
    p, x, now = pool_at(s.pool[0]), s.outcome[r], s.clock[0].now
    tokens = requests_at(s.requests[0]).prompt[r]
    step_at(s.engine[x.engine].step).part[r] = told.TOKENS_ONLY
    answer = call(s, x.engine, V_ARRIVE, r)
    if answer > 0:
        refuse(s, r, answer)
        return
    if answer == told.NOT_NOW:
        p.number[pool.FAILED] = 0 if anything_goes_on(s) else p.number[pool.FAILED] + 1
        if p.number[pool.FAILED] <= p.number[pool.TRIPS]:  # else all of them have tried since something happened
            pool.depart(p, r, now + p.number[pool.RETRY], 0)
        return
    p.number[pool.FAILED] = 0
    way = p.way[x.prefilled, x.engine]
    x.handed += tokens
    x.asked = now
    note(s, SENT_FOR, r, x.engine, tokens)
    pool.depart(p, r, now + max(1, round(way[0] + way[1] * tokens)), 1)


@outlined
def refuse(s: Service, r: int, why: int) -> None:
    """The engine of its tokens can never take the request, whose prompt was computed for nothing."""
    p, requests, x = pool_at(s.pool[0]), requests_at(s.requests[0]), s.outcome[r]
    x.refused = why
    note(s, REJECTED, r, x.engine, why)
    s.engine[x.engine].under_way -= 1
    s.engine[x.engine].owes -= 1
    s.course[0].in_flight -= 1
    leave_pool(s, r)
    call(s, x.prefilled, V_LEAVE, r)
    s.engine[x.prefilled].woken = 1
    p.member[x.prefilled].promised -= requests.prompt[r] + 1


@kernel
def anything_goes_on(s: Service) -> bool:
    """Something may happen beside trips that try again."""
    c, on = s.course[0], pool_at(s.pool[0]).number[pool.MOVING] > 0
    for e in range(s.engine.size):
        on = on or s.engine[e].ends < NEVER or s.engine[e].woken != 0
    comes = c.arrived < s.outcome.size and (c.at_once == 0 or c.in_flight < c.at_once)
    return bool(on or comes or c.left < s.leaving.size)


@outlined
def end_trip(s: Service) -> None:
    """Keys and values have come, and leave the engine that they come from; or they try again."""
    p, requests = pool_at(s.pool[0]), requests_at(s.requests[0])
    r, moves = pool.next_trip(p)
    x = s.outcome[r]
    gone = x.ended < NEVER
    if not gone and not moves:
        set_out(s, r)
        return
    if not gone:
        has_come(s, r)
    call(s, x.prefilled, V_LEAVE, r)
    s.engine[x.prefilled].woken = 1
    p.member[x.prefilled].promised -= requests.prompt[r] + 1


@outlined
def leave_pool(s: Service, r: int) -> None:
    """A request of the pool has ended, or goes away; what it has on its way there stays until it has come."""
    p, requests, x = pool_at(s.pool[0]), requests_at(s.requests[0]), s.outcome[r]
    k = p.tokens_at[r]
    p.member[k].promised -= requests.prompt[r] + requests.output[r]
    if x.engine != k:
        p.member[x.engine].promised -= requests.prompt[r] + 1
        s.engine[k].owes -= 1
        s.engine[x.engine].owes += 1
