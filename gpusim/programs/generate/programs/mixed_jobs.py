"""A day of a shared process or memory pool: training, inference and notebooks come and go, each on a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import typeof, types

from gpusim.base.compiled import entry
from gpusim.base.tables import table
from gpusim.programs.generate.registry import schedule
from gpusim.programs.generate.schedule import PLAY, RequestSchedule
from gpusim.programs.generate.tape import ROW

SMALL_LLAMA = "model=llama, layers=12, width=1024, heads=16, kv_heads=4, hidden=4096, vocabulary=32000"
SERVED = "graphs=1, batch=8, longest=4096, layers=12, width=1024, heads=16, kv_heads=4, hidden=4096, vocabulary=32000"
JOBS = (
    ("variable_training", "steps_per_hour=1200"),
    ("variable_training", "steps_per_hour=600, checkpointing=1, lengths=azure-conv, longest=2048, batch=4"),
    ("variable_training", f"steps_per_hour=400, batch=4, {SMALL_LLAMA}"),
    ("growing_cache", f"requests_per_hour=1200, chunk=64, {SERVED}"),
    ("growing_cache", f"requests_per_hour=1800, cache=pages, chunk=32, {SERVED}"),
    ("notebook", ""),
    ("notebook", "cells_per_hour=1000, largest=64 MiB, variables=200"),
)
LONGEST = 1000  # ms that what happens at one time of a schedule is spread over, at most


def mixed_jobs(
    hours: float = 24.0, lanes: int = 4, job_hours: float = 1.5, pause_hours: float = 0.25, turn: int = 64, seed: int = 0
) -> RequestSchedule:
    """Jobs of several kinds in one process or pool: variable_training, growing_cache and notebook, of several settings.

    Each lane runs one job after another on its own stream; a job gives everything back when it ends.  Requests of jobs that
    run at once take turns in the order of time.

    hours        how long it goes on; jobs that run then end with it
    lanes        jobs at once, at most
    job_hours    how long a job runs, on average (exponential)
    pause_hours  how long a lane is empty between two jobs, on average (exponential)
    turn         requests of one job in a row, at most, while others have some at the same time
    seed         of the kinds of the jobs, their times, and all that is random in them
    """
    kinds = [schedule(f"{name}({text})") for name, text in JOBS]
    offset = np.cumsum([0, *(len(kind.rows) for kind in kinds)])
    rows = table(int(offset[-1]), ROW)
    rows[:] = np.concatenate([kind.rows for kind in kinds])
    units = max(kind.units for kind in kinds)
    jobs = [_jobs(np.random.Generator(np.random.PCG64([seed, lane])), hours, job_hours, pause_hours) for lane in range(lanes)]

    def runs(number: int) -> Iterator[tuple[int, float, RequestSchedule]]:
        for kind, start, length, job_seed in jobs[number]:
            name, text = JOBS[kind]
            yield kind, start, schedule(f"{name}({text}, hours={length!r}, ends=1, seed={job_seed})")

    def lane(number: int) -> Iterator[Any]:
        for kind, start, job in runs(number):
            for plays in job.plays():
                cut = turns(plays, turn)
                cut["time"] += round(start * 3_600_000)
                cut["first"] += offset[kind]
                cut["end"] += offset[kind]
                cut["base"] += number * units
                cut["stream"] = number
                yield cut

    total = sum(job.total for number in range(lanes) for _, _, job in runs(number))
    return RequestSchedule("mixed_jobs", rows, lambda: merge([lane(n) for n in range(lanes)]), lanes * units, total)


def _jobs(rng: np.random.Generator, hours: float, job_hours: float, pause_hours: float) -> list[tuple[int, float, float, int]]:
    """Jobs of one lane, one after another: (index into JOBS, start and length in hours, seed)."""
    found = []
    now = float(rng.exponential(pause_hours))
    while now < hours:
        length = min(max(float(rng.exponential(job_hours)), 0.01), hours - now)
        found.append((int(rng.integers(len(JOBS))), now, length, int(rng.integers(1 << 31))))
        now += length + max(float(rng.exponential(pause_hours)), 0.001)
    return found


def merge(lanes: list[Iterator[Any]]) -> Iterator[Any]:
    """All plays in order of time, those of one time in order of the lanes."""
    waiting = [next(lane, None) for lane in lanes]
    while any(plays is not None for plays in waiting):
        until = min(plays["time"][-1] for plays in waiting if plays is not None)
        parts = []
        for i, plays in enumerate(waiting):
            if plays is None:
                continue
            count = int(np.searchsorted(plays["time"], until, "right"))
            parts.append(plays[:count])
            waiting[i] = plays[count:] if count < len(plays) else next(lanes[i], None)
        ends = np.cumsum([0, *map(len, parts)])
        merged = table(int(ends[-1]), PLAY)
        together = np.concatenate([part.view(np.int64) for part in parts]).view(PLAY)  # numpy copies records field by field
        in_time(together, ends[:-1].copy(), ends[1:].copy(), merged)
        yield merged


def turns(plays: Any, turn: int) -> Any:
    """The plays in pieces of at most `turn` requests; those of one time are spread until the next, LONGEST at most."""
    made = table(int((-(-(plays["end"] - plays["first"]) // turn)).sum()), PLAY)
    take_turns(plays, turn, made)
    return made


PLAYS, I64 = typeof(table(1, PLAY)), types.Array(types.int64, 1, "C")


@entry(types.int64(PLAYS, types.int64, PLAYS))
def take_turns(plays: Any, turn: int, out: Any) -> int:
    n, begin = 0, 0
    while begin < plays.size:
        time, end, total = plays[begin].time, begin, 0
        while end < plays.size and plays[end].time == time:
            total += plays[end].end - plays[end].first
            end += 1
        span, before = min(plays[end].time - time, LONGEST) if end < plays.size else 0, 0
        for p in range(begin, end):
            play = plays[p]
            for first in range(play.first, play.end, turn):
                out[n] = play
                row = out[n]
                row.time = time + before * span // total
                row.first, row.end = first, min(first + turn, play.end)
                before += row.end - first
                n += 1
        begin = end
    return n


@entry(types.int64(PLAYS, I64, I64, PLAYS))
def in_time(plays: Any, at: Any, ends: Any, out: Any) -> int:
    """Merge the runs plays[at[i]:ends[i]], each in order."""
    for n in range(out.size):
        best = -1
        for i in range(at.size):
            if at[i] < ends[i] and (best < 0 or plays[at[i]].time < plays[at[best]].time):
                best = i
        out[n] = plays[at[best]]
        at[best] += 1
    return len(out)
