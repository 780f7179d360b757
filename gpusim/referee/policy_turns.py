"""Programs to which a policy gives turns on one GPU, as memory does not suffice for all: each log, the turns, and what moves.

The turns follow from the decisions in the logs (memory_turns.py), the times of kernels from the turns as under time slices.
Memory that leaves or comes back as a whole flows on the GPU's links beside the programs' own copies, and its end begins a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import Tenancy
from gpusim.referee import given_turns
from gpusim.referee.activities import NEVER
from gpusim.referee.clients import as_part
from gpusim.referee.ends import NOTHING, ROUNDING, Flow, Started
from gpusim.referee.given_turns import BlocksHeld, TurnRules
from gpusim.referee.memory_turns import ProgramMoved, TurnWalk, presence
from gpusim.referee.numbers import DEVICE_MEMORY, Route
from gpusim.referee.ranks import all_arrived
from gpusim.referee.report import Findings, Report
from gpusim.referee.tenants import Routes, followed, links_of, moving, settle
from gpusim.results.result import Result
from gpusim.trace.trace import COPY_IN, COPY_OUT, I64, Trace

PASSES = 8  # of memory that moves beside copies: when it has left says when it comes, which may slow what leaves later


def check(
    results: Sequence[Result], traces: Sequence[Trace], profiles: Sequence[Profile], tenancy: Tenancy, turns: TurnRules,
    own: OwnTimes | None = None,
) -> list[Report]:  # fmt: skip
    """A report for each program; all are unchecked (ok is None) without a log of each."""
    if any(result.log is None for result in results):
        return [Report(ok=None) for _ in results]
    found, turned = ([Findings() for _ in results] for _ in range(2))
    given = given_turns.given(results, turned)
    results, rows = zip(*(given_turns.without_turns(one) for one in results), strict=True)
    runs = followed(results, traces, profiles, own, found)
    if runs:
        held = [given_turns.held(one) for one in results]
        walk = TurnWalk(
            [presence(run, _ended(one)) for run, one in zip(runs, results, strict=True)], given, turns, tenancy.switch,
            lambda p, since, limit: given_turns.is_down(results[p], runs[p], held[p], since, limit), turned,
        )  # fmt: skip
        walk.walk()
        for blocks, bounds, said in zip(held, walk.bounds, turned, strict=True):
            _within(blocks, bounds, said)
        _together(results, runs, walk, found)
    return [given_turns.whole(its.report(), at, of.report()) for its, at, of in zip(found, rows, turned, strict=True)]


def _ended(result: Result) -> int:
    """When a program came to its end, ns."""
    log = result.log
    assert log is not None
    return int(result.metrics.get("makespan_ns", log["t"][-1] if len(log) else 0))


def _within(blocks: BlocksHeld, bounds: Sequence[tuple[int, int]], found: Findings) -> None:
    """A program's blocks take no more than it may have; while it comes down to a lower limit, what it may have had before."""
    times, limits = (np.array(column, np.int64) for column in zip(*bounds, strict=True))
    limit = limits[np.searchsorted(np.maximum.accumulate(times), blocks.time, side="left") - 1]
    found.count("blocks within a limit", len(limit))
    for i in np.flatnonzero(blocks.held > limit)[:1].tolist():
        what = f"the program's blocks take {blocks.held[i]} bytes at {blocks.time[i]} ns"
        found.say(-1, what, f"{limit[i]} at most, by the policy")


def _together(results: Sequence[Result], runs: Sequence[Started], walk: TurnWalk, found: Sequence[Findings]) -> None:
    """Every end, of kernels in their turns and of memory that moves, against the one that follows."""
    routes: Routes = [{name: (name,) for name in run.n.links} for run in runs]
    each = moving(runs, [as_part(changes) for changes in walk.parts], routes, results, found)
    out, back = ([runs[one.to].n.operators[kind] for one in walk.moved] for kind in (COPY_OUT, COPY_IN))
    comes = np.array([one.at + round(one.left / way.rate) for one, way in zip(walk.moved, out, strict=True)], np.int64)
    leave, come = (np.array([amount > 0 for amount in column], bool) for column in _sizes(walk.moved))
    for _ in range(PASSES if leave.any() else 0):
        left = all_arrived([*((one.flows, one.grants) for one in each), (_flows(walk.moved, comes, out, back), NOTHING)],
                           links_of(runs, routes))[-1].end[: int(leave.sum())]  # fmt: skip
        before, comes = comes, comes.copy()
        comes[leave] = left
        if (before == comes).all():
            break
    arrived = settle(results, runs, each, routes, found, _flows(walk.moved, comes, out, back)).end
    end = np.full(len(walk.moved), -1)
    end[leave] = arrived[: int(leave.sum())]
    end[come] = arrived[int(leave.sum()) :]
    for one, due in zip(walk.moved, end.tolist(), strict=True):
        walk.found[one.to].count("bytes that moved for turns", one.left + one.came)
        if one.until < NEVER and abs(due - one.until) > ROUNDING:
            what = f"memory that moves for a turn from {one.at} ns on has moved at {one.until} ns"
            walk.found[one.to].say(one.record, what, f"{due} ns: {one.left} bytes out, then {one.came} in, on this link")


def _sizes(moved: Sequence[ProgramMoved]) -> tuple[list[int], list[int]]:
    return [one.left for one in moved], [one.came for one in moved]


def _flows(moved: Sequence[ProgramMoved], comes: I64, out: Sequence[Route], back: Sequence[Route]) -> list[Flow]:
    """What leaves, one after the other from the moment on at which it begins to, and then all that comes."""
    found = list[Flow]()
    for ways, sizes, begin in zip((out, back), _sizes(moved), ([one.at for one in moved], comes.tolist()), strict=True):
        for i in (i for i, size in enumerate(sizes) if size):
            links = tuple(name for name in ways[i].links if name != DEVICE_MEMORY)
            size, alone = np.array([float(sizes[i])]), np.array([ways[i].rate])
            found.append(Flow(np.array([i]), np.array([begin[i]]), size, alone, np.ones(1), links))
    return found
