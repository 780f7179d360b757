"""The best plan that a search finds: the other planners' plans and what a local search makes of the best of them.

moves  changes that are tried by the quick estimate (`gpusim.policies.plan.parts.swap.estimate`)
runs   changes that are tried in the engine itself, after all plans to start from have run there
seed   of the search's random numbers

A bound to compare with rather than a policy for use: never slower than any planner of `policies/plan` with its defaults,
those that run operators again included, nor than no plan at all.  A move lets an idle tensor leave, keeps one that left, or
brings one back earlier or later; it stays when the time is not longer than before.

Source: none; hill climbing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.policies import registry
from gpusim.policies.forms import PlanPolicy
from gpusim.policies.plan.parts.swap.estimate import estimate
from gpusim.policies.plan.parts.swap.moves import Moves
from gpusim.policies.planning import NOTHING, Schedule, View
from gpusim.trace import workload
from gpusim.trace.trace import Trace

PARAMS = {"moves": 2000, "runs": 100, "seed": 0}
KNOWS = "future"
LEFT_OUT = ("search", "file", "checkmate")  # the last one is exact and takes minutes to say that a program is too large for it


def rewrite(view: View, moves: int = 2000, runs: int = 100, seed: int = 0) -> Trace:
    """The program of the planner that is fastest with its own plan; that of the trace when none of them changes it."""
    best, shortest = view.work.trace, math.inf
    for policy in _planners():
        try:
            program = view.work.trace if policy.rewrite is None else policy.program(view)
            seen = view if program is view.work.trace else _of(view, program)
            schedule = NOTHING if policy.plan is None else policy.schedule(seen)
        except GpusimError:
            continue
        took = estimate(seen, schedule) if view.measure is None else view.measure(schedule, program)
        if took < shortest:
            best, shortest = program, took
    return best


def plan(view: View, moves: int = 2000, runs: int = 100, seed: int = 0) -> Schedule:
    if not view.tiers:
        return NOTHING
    starts = list(_schedules(view))
    times = [estimate(view, start) for start in starts]
    draw = Moves(view, seed)
    best = _climb(starts[int(np.argmin(times))], lambda made: estimate(view, made), draw, moves)
    if view.measure is None:
        return best
    starts.append(best)
    times = [view.measure(start) for start in starts]
    return _climb(starts[int(np.argmin(times))], view.measure, draw, runs)


def _planners() -> Iterator[PlanPolicy]:
    for entry in registry.entries("plan"):
        if entry.builtin and entry.name not in LEFT_OUT:
            yield registry.get("plan", entry.name)


def _of(view: View, program: Trace) -> View:
    """The view of another program, whose operators have times of their own but for what moves over links."""
    return View(workload.build(program, np.maximum(program.duration, 0)), view.capacity, view.tiers)


def _schedules(view: View) -> Iterator[Schedule]:
    """No plan, and what the planners say of this program as it is."""
    yield NOTHING
    for policy in _planners():
        if policy.plan is not None:
            try:
                made = policy.schedule(view)
            except GpusimError:
                continue
            if len(made.actions) or len(made.remote):
                yield made


def _climb(start: Schedule, time: Callable[[Schedule], float], draw: Moves, moves: int) -> Schedule:
    draw.begin(start)
    shortest = time(start) if moves else math.inf
    best = start
    for _ in range(moves):
        made = draw.changed()
        took = time(made)
        if took <= shortest:
            shortest, best = took, made
            draw.keep()
    return best
