"""Does the referee find faults that are consistent: whose sums, orders and hashes are right?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fault_tools import untold

from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.programs.generate.synth import random_program
from gpusim.referee import check
from gpusim.results.log import COPY, CREATE, END, ISSUE, START
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

PROFILE = load("l4")
RUNS = ({"evict": "lru"}, {"evict": "lru", "prefetch": "next_k"}, {"evict": "fifo", "place": "best_fit"})


def ran(seed: int, share: float = 0.7, **policies: Any) -> tuple[Result, Trace]:
    trace = random_program(seed, ops=60)
    peak = int(simulate(trace, PROFILE).metrics["requested_peak_bytes"])
    return untold(simulate(trace, PROFILE, capacity_bytes=int(peak * share), log=True, **policies)), trace


def intervals(log: Any, kind: int) -> list[tuple[int, int]]:
    """Start and end record of every activity that was submitted by a record of this kind."""
    number = set(log["addr"][log["kind"] == kind].tolist())
    start = {int(a): i for i, a in enumerate(log["a"]) if log["kind"][i] == START}
    end = {int(a): i for i, a in enumerate(log["a"]) if log["kind"][i] == END}
    return [(start[n], end[n]) for n in sorted(number) if n in start and n in end]


def warped(log: Any, begin: int, end: int, length: int) -> Any:
    """Time as it is up to `begin`; from there to `end` it takes `length`; all later is as much earlier or later."""
    out, t = log.copy(), log["t"]
    inside = begin + (t - begin) * length // max(1, end - begin)
    out["t"] = np.where(t <= begin, t, np.where(t < end, inside, t + length - (end - begin)))
    return out


def consistent(result: Result, log: Any) -> Result:
    """The result with this log, and with the sums that follow from it; what is left of the stalls is for launches."""
    m, makespan = dict(result.metrics), int(log["t"].max())
    spans = [(int(log["t"][a]), int(log["t"][b])) for a, b in intervals(log, ISSUE)]
    old, busy = m["makespan_ns"], sum(b - a for a, b in spans)
    m["makespan_ns"], m["compute_busy_ns"] = makespan, busy
    m["compute_idle_share"] = 1 - busy / makespan
    stall = max(b for _, b in spans) - busy
    m["stall_launch_ns"] += stall - m["stall_ns"]
    m["stall_ns"] = stall
    for name in ("h2d_busy_share", "d2h_busy_share", "swaps_per_s"):
        m[name] = m[name] * old / makespan
    return dataclasses.replace(result, log=log, metrics=m)


def _one(rng: Any, rows: list[Any]) -> Any:
    return rows[int(rng.integers(len(rows)))]


def _times(log: Any, pair: tuple[int, int]) -> tuple[int, int]:
    return int(log["t"][pair[0]]), int(log["t"][pair[1]])


def short_kernel(log: Any, rng: Any) -> Any:
    a, b = _times(log, _one(rng, intervals(log, ISSUE)))
    return warped(log, a, b, 1)


def long_kernel(log: Any, rng: Any) -> Any:
    a, b = _times(log, _one(rng, intervals(log, ISSUE)))
    return warped(log, a, b, 2 * (b - a) + 10)


def half_swap(log: Any, rng: Any) -> Any:
    a, b = _times(log, _one(rng, intervals(log, COPY)))
    return warped(log, a, b, (b - a) // 2)


def slow_swap(log: Any, rng: Any) -> Any:
    a, b = _times(log, _one(rng, intervals(log, COPY)))
    return warped(log, a, b, (b - a) * 3 // 2)


def idle(log: Any, rng: Any) -> Any:
    t = int(log["t"][int(rng.integers(1, len(log)))])
    return warped(log, t, t + 1, 100_000_001)


def all_short(log: Any, rng: Any) -> Any:
    out = log
    for pair in intervals(log, ISSUE):
        a, b = _times(out, pair)
        out = warped(out, a, b, 1)
    return out


def late_start(log: Any, rng: Any) -> Any:
    """An activity starts later and ends as much later; what else happens stays where it is, as far as order allows."""
    out = log.copy()
    a, b = _one(rng, intervals(log, _one(rng, [ISSUE, COPY])))
    room = [int(log["t"][i + 1] - log["t"][i]) if i + 1 < len(log) else 10 for i in (a, b)]
    shift = min(room)
    out["t"][[a, b]] += shift
    return out if shift else None


def fast_host(log: Any, rng: Any) -> Any:
    """The host needs no time between two of its records."""
    host = np.flatnonzero(~np.isin(log["kind"], (START, END)))
    gaps = [i for i in range(len(host) - 1) if log["t"][host[i + 1]] > log["t"][host[i]]]
    i = _one(rng, gaps)
    return warped(log, int(log["t"][host[i]]), int(log["t"][host[i + 1]]), 0)


def slow_host(log: Any, rng: Any) -> Any:
    host = np.flatnonzero(np.isin(log["kind"], (CREATE, ISSUE)))
    t = int(log["t"][_one(rng, host.tolist())])
    return warped(log, t - 1, t, 5_000) if t else None


def early_end(log: Any, rng: Any) -> Any:
    out = log.copy()
    _, b = _one(rng, intervals(log, _one(rng, [ISSUE, COPY])))
    shift = int(log["t"][b] - log["t"][b - 1])
    out["t"][b] -= shift
    return out if shift > 2 else None


KINDS: tuple[Callable[[Any, Any], Any], ...] = (
    short_kernel, long_kernel, half_swap, slow_swap, idle, all_short, late_start, fast_host, slow_host, early_end,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("policies", RUNS, ids=str)
def test_runs_are_right_and_every_fault_in_time_is_found(policies: dict[str, Any]) -> None:
    rng = np.random.Generator(np.random.PCG64(17))
    missed, planted = [], 0
    for seed in range(3):
        result, trace = ran(seed, **policies)
        assert check(result, trace, PROFILE).ok is True, check(result, trace, PROFILE).violations[:3]
        for kind in KINDS:
            for _ in range(6):
                log = kind(result.log, rng)
                if log is None or not (np.diff(log["t"]) >= 0).all() or (log["t"] == result.log["t"]).all():
                    continue
                planted += 1
                if check(consistent(result, log), trace, PROFILE).ok is not False:
                    missed.append((seed, kind.__name__))
    assert planted > 100
    assert missed == []


# What nothing in the log decides: what the allocator could have given in one piece.
OF_THE_ALLOCATOR = ("frag_external", "frag_failures")


@pytest.mark.slow
@pytest.mark.parametrize("policies", RUNS, ids=str)
def test_every_changed_metric_is_found(policies: dict[str, Any]) -> None:
    result, trace = ran(1, **policies)
    missed = []
    for name, value in result.metrics.items():
        wrong = {**result.metrics, name: value + 1 if isinstance(value, int) else value * 1.01 + 0.001}
        if check(dataclasses.replace(result, metrics=wrong), trace, PROFILE).ok is not False:
            missed.append(name)
    assert set(missed) <= {*OF_THE_ALLOCATOR, "defrags"}


@pytest.mark.slow
def test_every_changed_column_of_the_timeline_is_found() -> None:
    result, trace = ran(1, evict="lru")
    missed = []
    for name, column in result.timeline.items():
        for row in range(2, len(column), 7):
            wrong = column.copy()
            wrong[row] += 12_345_678
            if check(dataclasses.replace(result, timeline={**result.timeline, name: wrong}), trace, PROFILE).ok is not False:
                missed.append((name, row))
    assert missed == []
