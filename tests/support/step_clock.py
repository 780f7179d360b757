"""A compiled loop over the verbs of a scheduler whose clock counts steps: each takes 1, and so does a step without work.

One that schedules ahead has up to two steps under way: each takes 1 from when the next has been composed.
What a served run adds is the time of a step; this is what a scheduler costs, and what it can be compared by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from gpusim.base.compiled import direct, kept
from gpusim.policies.schedule.parts.running import Running, ScheduleVerbs
from gpusim.policies.schedule.parts.tables import (
    AHEAD,
    ASK_TIER,
    ASKED,
    BLOCKS,
    FREE,
    N_LOADS,
    N_RUNNING,
    N_WAITING,
    NEVER,
    REQUESTS,
    STEP,
    RequestTable,
    StepTable,
)
from gpusim.policies.verb_table import called

I64 = types.Array(types.int64, 1, "C")
PLAY = types.UniTuple(types.int64, 3)(
    types.Array(types.int64, 2, "C"), types.int64, REQUESTS, STEP, I64, I64, I64, types.int64, types.int64
)
IDLE = 50  # steps without work after which no more come
as_arrive, V_ARRIVE = called(ScheduleVerbs, "arrive")
as_compose, V_COMPOSE = called(ScheduleVerbs, "compose")
as_over, V_OVER = called(ScheduleVerbs, "over")
as_leave, V_LEAVE = called(ScheduleVerbs, "leave")
as_loaded, V_LOADED = called(ScheduleVerbs, "loaded")


@kept(PLAY)
def play(
    verbs: Any, own: int, requests: RequestTable, step: StepTable,
    leaving: Any, below: Any, loads: Any, load_steps: int, most: int,
) -> tuple[int, int, int]:  # fmt: skip
    """(steps, rows of all of them, tokens) of a run to its end, or of `most` steps.

    leaving     requests whose clients go away, in the order in which they do
    below       leading tokens of each request that a tier holds; a load takes `load_steps`
    loads       room for the loads under way
    """
    arrive, compose = as_arrive(verbs[V_ARRIVE, 0], verbs[V_ARRIVE, 1]), as_compose(verbs[V_COMPOSE, 0], verbs[V_COMPOSE, 1])
    over, leave = as_over(verbs[V_OVER, 0], verbs[V_OVER, 1]), as_leave(verbs[V_LEAVE, 0], verbs[V_LEAVE, 1])
    loaded = as_loaded(verbs[V_LOADED, 0], verbs[V_LOADED, 1])
    n, come, gone, idle, now, rows, tokens, first, last, queued = requests.arrival.size, 0, 0, 0, 0, 0, 0, 0, 0, 0
    word = step.word
    while now < most and idle <= IDLE and (
        come < n or queued > 0 or word[N_RUNNING] + word[N_WAITING] > 0 or word[FREE] < word[BLOCKS]
    ):
        late = gone
        while late < leaving.size and requests.leaves[leaving[late]] <= now:
            if word[AHEAD] == 0 or leaving[late] % 2 == 0:
                leave(own, leaving[late], now)
            late += 1
        while come < n and requests.arrival[come] <= now:
            arrive(own, come, now)
            come += 1
        found = compose(own, 0, now)
        while found == ASK_TIER:
            step.below[word[ASKED]] = below[word[ASKED]]
            found = compose(own, 0, now)
        for i in range(word[N_LOADS] if load_steps else 0):
            loads[last % loads.size] = (now + load_steps) * n + step.load[i, 0]
            last += 1
        rows += found
        for row in range(found):
            tokens += step.tokens[row]
        while gone < late:  # scheduled ahead, odd requests leave while the engine waits for an output
            if word[AHEAD] and leaving[gone] % 2:
                leave(own, leaving[gone], now)
            gone += 1
        queued += found > 0
        if word[AHEAD] == 0 or queued == 2 or (queued == 1 and found == 0):
            over(own, 0, now)
            queued -= queued > 0
        now += 1
        while first < last and loads[first % loads.size] < (now + 1) * n:
            loaded(own, loads[first % loads.size] % n, now)
            first += 1
        idle = 0 if found or come < n else idle + 1
    return now, rows, tokens


def ready(running: Running, below: Any = 0, load_steps: int = 0, most: int = NEVER) -> Callable[[], tuple[int, int, int]]:
    """What plays the scheduler's requests, whose times count steps, to their end: `play` with all its arguments."""
    leaves = running.requests.leaves
    leaving = np.argsort(leaves, kind="stable")[: int((leaves < NEVER).sum())]
    held = np.array(np.broadcast_to(below, leaves.shape), np.int64)
    room = np.zeros(max(running.step.load.shape[0] * max(load_steps, 1), 1), np.int64)
    verbs, compiled = running.verbs, direct(play)

    def run() -> tuple[int, int, int]:  # keeps `running` alive, whose tables compiled code finds by their addresses
        found: tuple[int, int, int] = compiled(
            verbs, running.own, running.requests, running.step, leaving, held, room, load_steps, most
        )
        return found

    return run
