"""The loop of a service: what happens next, and what each engine does when its step is over.

An engine whose scheduler works ahead has two steps at most: one under way, and one that begins when that ends.  It composes the
latter when the former begins; where nothing can run then, not again before the step is over.

At equal times what flows goes first, then what comes within a mixed pool, clients that go away, arrivals, and steps that end,
engines in their order; only then do engines that stand still compose their next steps, so that these know of all of it.
"""

from __future__ import annotations

from typing import Any

from numba import types

from gpusim.base.compiled import entry, function_at, kernel
from gpusim.engine.clock import links, sharing
from gpusim.engine.serving import devices, managed, pool, slowing, tiers
from gpusim.engine.serving.pool import pool_at
from gpusim.engine.serving.pooled import end_trip
from gpusim.engine.serving.requests import arrive, end_requests, give_tokens, is_due, leave
from gpusim.engine.serving.sampling import sample_preemption, sample_to, sample_tokens
from gpusim.engine.serving.tables import (
    ADMITTED,
    ASK,
    COST,
    DECODE,
    FINISHED,
    LATER,
    LOG_FULL,
    MIXED_POOL,
    PREEMPTED,
    REACHED,
    RESUMED,
    SENT_FOR,
    SERVICE,
    STEP,
    STOPPED,
    STUCK,
    Service,
)
from gpusim.engine.serving.telling import V_COMPOSE, V_OVER, call, has_come, note
from gpusim.engine.serving.tiers import tiers_at
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable, StepTable, requests_at, step_at

as_cost = function_at(COST)
GOES_ON = -1


@kernel
def next_time(s: Service, requests: RequestTable) -> int:
    """When something happens next, ns; NEVER when nothing will."""
    c = s.course[0]
    time = min(s.fluid[0].tick, tiers.next_copy(tiers_at(s.tiers[0])))
    if c.routing == MIXED_POOL:
        time = min(time, pool.next_arrival(pool_at(s.pool[0])))
    if c.arrived < requests.arrival.size and (c.at_once == 0 or c.in_flight < c.at_once):
        time = min(time, max(requests.arrival[c.arrived], s.clock[0].now))
    if c.left < s.leaving.size:
        time = min(time, requests.leaves[s.leaving[c.left]])
    for e in range(s.engine.size):
        time = min(time, s.engine[e].ends, s.engine[e].wakes)
    return int(min(time, devices.next_change(s)))


@kernel
def start_step(s: Service, e: int, rows: int, took: int) -> None:
    """A step of engine e begins now."""
    engine, now = s.engine[e], s.clock[0].now
    engine.working, engine.began, engine.took, engine.known = 1, now, took, 0
    if engine.device >= 0:
        devices.add(s, e, took)
    else:
        engine.ends = now + took
        slowing.changed(s)
    note(s, STEP, rows, e, took)


@kernel
def end_step(s: Service, e: int) -> None:
    """The step of engine e is over."""
    engine, now = s.engine[e], s.clock[0].now
    if engine.device >= 0:
        engine.busy += engine.took
        s.device[engine.device].changed = 1
    else:
        engine.busy += now - engine.began
        if now > engine.began + engine.took:
            engine.slowed += now - engine.began - engine.took
            note(s, LATER, 0, e, now - engine.began - engine.took)
    engine.ends = NEVER
    engine.working, engine.woken, engine.tried = 0, 1, 0
    slowing.changed(s)
    call(s, e, V_OVER, 0)
    step, below = step_at(engine.step), tiers_at(s.tiers[0])
    if below.managed[0]:
        managed.send_off(below, requests_at(s.chunked[0]), step, e, now)
    else:
        tiers.offer(below, requests_at(s.chunked[0]), step, e, now)
    give_tokens(s, e, step)
    end_requests(s, e, step)
    if engine.next_takes > 0:
        start_step(s, e, engine.next_rows, engine.next_takes)
        slowing.take_needs(s, e)
        engine.next_takes = 0
    if s.course[0].routing == MIXED_POOL and step.word[told.N_RUNNING] + step.word[told.N_WAITING] == 0:
        pool.go_home(pool_at(s.pool[0]), e)


@kernel
def begin_copy(s: Service) -> None:
    """The first copy whose latency is over begins to flow."""
    t, way = tiers_at(s.tiers[0]), 0
    while t.way[way].begins != s.clock[0].now:
        way += 1
    w = t.way[way]
    w.begins = NEVER
    links.catch_up_to(s, s.clock[0].now)
    x = links.put(s, 0, 0, way, t.transfer[w.first - 1].bytes, w.rate)
    x.route, x.route_end, x.passes = w.route, w.route_end, 0


@kernel
def end_copy(s: Service) -> None:
    """The copy that ends next has ended now."""
    process, _, way = links.take_ended(s)
    if way == slowing.OWN:
        s.engine[process].ends = s.clock[0].now
        return
    t, requests = tiers_at(s.tiers[0]), requests_at(s.chunked[0])
    if t.managed[0]:
        r = managed.arrive_there(t, requests, way, s.clock[0].now)
    else:
        r = tiers.arrive_there(t, requests, way, s.clock[0].now)
    if r >= 0:
        has_come(s, r)


@kernel
def reschedule(s: Service) -> None:
    """What flows has changed: the links are shared anew."""
    fluid = s.fluid[0]
    if fluid.flows > 0 and s.course[0].shares:
        slowing.share(s)
    elif fluid.flows > 0:
        links.share(s)
    fluid.reshare = 0
    sharing.note_end(s)


@kernel
def owe_swaps(engine: Any, step: StepTable) -> None:
    """Blocks move between the device and the host before the next step computes anything: out, then in."""
    took, count = 0.0, step.word[told.N_SWAPS]
    for i in range(count):
        took += step.swap[i, 1] * (engine.swap_out if step.swap[i, 2] == told.OUT else engine.swap_in)
    engine.owed += round(took) + (engine.swap_latency if count else 0)


@kernel
def find_below(s: Service, t: tiers.TierTables, e: int, r: int, there: int) -> int:
    """Leading tokens of the request that the device, which has `there`, and its tiers have."""
    chunks = requests_at(s.chunked[0])
    if t.managed[0]:
        return int(managed.look_up(t, chunks, e, r, there))
    return int(tiers.look_up(t, chunks, e, r, there))


@kernel
def compose(s: Service, e: int, step: StepTable, below: tiers.TierTables) -> int:
    """The scheduler composes the next step; of prompts that it asks about it is told what lies below the device."""
    rows = call(s, e, V_COMPOSE, 0)
    while rows == told.ASK_TIER:
        asked = step.word[told.ASKED]
        if s.engine[e].role == DECODE:
            step.below[asked] = max(requests_at(s.requests[0]).prompt[asked], step.word[told.ON_DEVICE])
        else:
            step.below[asked] = find_below(s, below, e, asked, step.word[told.ON_DEVICE])
        rows = call(s, e, V_COMPOSE, 0)
    return rows


@kernel
def send_for(s: Service, e: int, step: StepTable, below: tiers.TierTables) -> None:
    """What the step has found below the device, or at the engine that computed the prompt, sets out for the device."""
    chunks, now = requests_at(s.chunked[0]), s.clock[0].now
    for i in range(step.word[told.N_LOADS]):
        r = step.load[i, 0]
        tokens = step.load[i, 2] - step.load[i, 1]
        s.outcome[r].asked = now
        note(s, SENT_FOR, r, e, tokens)
        if s.engine[e].role == DECODE:
            s.outcome[r].handed += tokens
            tiers.fetch(below, e, step.load[i], s.outcome[r].prefilled, now)
            continue
        s.outcome[r].sent_for += tokens
        if below.managed[0]:
            managed.load(below, chunks, e, step.load[i], now)
        elif tiers.load(below, chunks, e, step.load[i], now) == 0:
            has_come(s, r)


@kernel
def begin_step(s: Service, e: int) -> int:
    """Engine e begins its next step if anything can run, now or after the one under way; GOES_ON, or why Python is needed."""
    engine, now = s.engine[e], s.clock[0].now
    step, below, requests = step_at(engine.step), tiers_at(s.tiers[0]), requests_at(s.requests[0])
    rows = compose(s, e, step, below)
    if rows == told.ASK:
        s.course[0].asking = 1 + e
        return ASK
    if rows == told.STOPPED:
        return STOPPED
    engine.woken, engine.wakes, engine.tried = 0, NEVER, engine.working
    owe_swaps(engine, step)
    end_requests(s, e, step)
    chunks = requests_at(s.chunked[0])
    if below.managed[0] and rows > 0:
        managed.reserve(below, chunks, step, e)
    elif below.managed[0] == 0:
        tiers.save(below, chunks, step, e, engine.each, now)
    send_for(s, e, step, below)
    for i in range(step.word[told.N_PREEMPTED]):
        s.outcome[step.preempted[i]].stopped = 1
        note(s, PREEMPTED, step.preempted[i], e, 0)
        sample_preemption(s, e)
    if rows == 0:
        # A request that has given up blocks, or has been refused, leaves room for others.
        engine.woken = int(step.word[told.N_PREEMPTED] + step.word[told.N_ENDED] > 0)
        if step.word[told.WAKE] > now:
            engine.wakes = step.word[told.WAKE]
        return GOES_ON
    prompt = 0
    for i in range(rows):
        x = s.outcome[step.request[i]]
        if x.admitted == NEVER:
            x.admitted = now
            if x.sent_for == 0 and below.managed[0] == 0:
                tiers.use_leading(below, requests, e, step.request[i], step.before[i])
            note(s, ADMITTED, step.request[i], e, step.cached[step.request[i]])
        elif x.stopped == 1:
            x.stopped = 0
            note(s, RESUMED, step.request[i], e, 0)
        if x.made == 0 and step.before[i] < requests.prompt[step.request[i]]:
            prompt += step.tokens[i]
    took = as_cost(s.cost[e, 0], s.cost[e, 1])(engine.cost, engine.step) + engine.owed
    engine.owed = 0
    if engine.tried:
        engine.next_takes, engine.next_rows = took, rows
        slowing.foresee_needs(s, e)
    else:
        start_step(s, e, rows, took + (step.word[told.BESIDE] if engine.ahead else 0))
        engine.woken = engine.ahead
        if engine.ahead:  # the next step is composed into the same table
            slowing.foresee_needs(s, e)
            slowing.take_needs(s, e)
    engine.steps += 1
    engine.prompt_tokens += prompt
    sample_tokens(s, e, prompt, 0)
    return GOES_ON


@kernel
def happen(s: Service, requests: RequestTable) -> None:
    """The first of the things that happen now."""
    c, now = s.course[0], s.clock[0].now
    if s.fluid[0].tick == now:
        end_copy(s)
    elif tiers.next_copy(tiers_at(s.tiers[0])) == now:
        begin_copy(s)
    elif c.routing == MIXED_POOL and pool.next_arrival(pool_at(s.pool[0])) == now:
        end_trip(s)
    elif c.left < s.leaving.size and requests.leaves[s.leaving[c.left]] == now:
        c.left += 1
        leave(s, s.leaving[c.left - 1])
    elif is_due(s, requests):
        c.arrived += 1
        arrive(s, c.arrived - 1)
    elif not devices.is_over(s, now):
        e = 0
        while s.engine[e].ends != now and s.engine[e].wakes != now:
            e += 1
        if s.engine[e].ends == now:
            end_step(s, e)
        else:
            s.engine[e].wakes, s.engine[e].woken = NEVER, 1


@kernel
def idle(s: Service) -> int:
    """An engine that may have something to run and is not full; -1: there is none."""
    for e in range(s.engine.size):
        x = s.engine[e]
        if x.woken and (x.working == 0 or (x.ahead and x.tried == 0)):
            return e
    return -1


@kernel
def log_is_full(s: Service) -> bool:
    """A step may write so many records that they find no room."""
    c, most = s.course[0], 0
    if c.log_on == 0:
        return False
    for e in range(s.engine.size):
        most = max(most, step_at(s.engine[e].step).request.size)
    return c.logged + 4 * most + 4 > s.log.size


@kernel
def left_over(s: Service) -> bool:
    """Requests are under way."""
    under_way = 0
    for e in range(s.engine.size):
        under_way += s.engine[e].under_way
    return under_way > 0


@entry(types.int64(SERVICE, types.int64))
def serve_until(s: Service, until: int) -> int:
    """Serve up to, not including, time `until`, ns; returns why it stopped.

    FINISHED: nothing will happen any more.  STUCK: requests are under way, and nothing will.  ASK: the scheduler of engine
    `asking - 1` is in Python.  LOG_FULL: the log is to be emptied.  STOPPED: a real engine
    would end with an error now.
    """
    clock, requests = s.clock[0], requests_at(s.requests[0])
    while True:
        if log_is_full(s):
            return LOG_FULL
        if s.fluid[0].reshare:
            reschedule(s)
        time, e = next_time(s, requests), idle(s)
        if time > clock.now and e >= 0:
            reason = begin_step(s, e)
            if reason != GOES_ON:
                return reason
        elif time > clock.now and devices.changed(s) >= 0:
            devices.arbitrate(s, devices.changed(s))
        elif time >= until:
            return REACHED if time < NEVER else STUCK if left_over(s) else FINISHED
        else:
            sample_to(s, time)
            clock.now = time
            happen(s, requests)
