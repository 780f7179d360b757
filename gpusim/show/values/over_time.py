"""What fills the memory of a run over time: requested, allocated, reserved and swapped-out bytes, against the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.base.text import join
from gpusim.base.units import show_bytes, show_time
from gpusim.results.result import Result
from gpusim.show.groups import in_order
from gpusim.show.moments import Floats, end, moments, rows, timed
from gpusim.show.steps import visible
from gpusim.show.view import ending, pick, run_name, varying

MOST = 9
LEVELS = ("requested", "allocated", "reserved", "host")  # the last swapped out, to whatever tier
PLAN = "bound_plan_bytes"


@dataclass(frozen=True)
class Levels:
    """One run: bytes at each moment, each until the next; `host` changes all the while in between.

    time      ns, or events of the program where no times are known
    until     when the run ends or stops; the levels reach as far
    capacity  bytes of the device's memory; None where it has no limit
    plan      bytes that a static plan of the whole program takes, without eviction; None where that is not known
    """

    name: str
    oracle: bool
    timed: bool
    time: Floats
    bytes: dict[str, Floats]
    until: float
    capacity: float | None
    plan: float | None
    ending: str  # how it stopped, "" when it finished

    @property
    def highest(self) -> float:
        return max(float(level.max(initial=0)) for level in self.bytes.values())

    def seen(self, level: str, columns: int) -> tuple[Floats, Floats]:
        """The points of one level that make a difference in so many columns of pixels."""
        return visible(self.time, self.bytes[level], columns, step=level != "host")


@dataclass(frozen=True)
class OverTime:
    """Runs that one figure shows, in the order of all figures; what that answers, and a note of what is left out."""

    runs: tuple[Levels, ...]
    shown: tuple[Result, ...]
    answer: str
    note: str


def over_time(results: Sequence[Result], most: int = MOST) -> OverTime:
    """At most so many of the runs that have recorded their memory over time."""
    known = [r for r in results if rows(r)]
    shown, note = pick(known, most)
    shown, keys = in_order(shown, results), varying(shown)
    return OverTime(tuple(levels(r, run_name(r, keys)) for r in shown), tuple(shown), _answer(shown, keys), note)


def levels(run: Result, name: str) -> Levels:
    """The levels of a run that has a timeline."""
    time, found = moments(run), {name: column(run, f"{name}_bytes") for name in LEVELS}
    if run.finished and end(run) > time[-1]:  # nothing changes after the last allocation
        time = np.append(time, end(run))
        found = {name: np.append(level, level[-1]) for name, level in found.items()}
    plan = run.bounds.get(PLAN)
    return Levels(
        name, run.oracle, timed(run), time, found, end(run), capacity(run), None if plan is None else float(plan), ending(run)
    )


def column(run: Result, name: str) -> Floats:
    """A column of the timeline; zeros where it has no such."""
    return np.asarray(run.timeline.get(name, np.zeros(rows(run))), np.float64)


def capacity(run: Result) -> float | None:
    """Bytes of the device's memory; None without a limit."""
    found = run.spec.get("capacity", run.spec.get("memory"))
    return float(found) if isinstance(found, int | float) else None


def _answer(shown: Sequence[Result], keys: Sequence[str]) -> str:
    """For one run its peaks; for several, which fit."""
    if not shown:
        return ""
    if len(shown) == 1:
        run = shown[0]
        parts = [f"{name} {show_bytes(column(run, f'{name}_bytes').max(initial=0))}" for name in LEVELS[:3]]
        most = capacity(run)
        limit = f" of {show_bytes(most)}" if most is not None else ""
        peak = f"At its peak the program has {join(parts)}{limit}"
        return peak + (f", then the run stops: {ending(run)}." if not run.finished else ".")
    failed = [f"{run_name(r, keys)} ({ending(r)} at {_when(r)})" for r in shown if not r.finished]
    most_out = max(shown, key=lambda r: float(column(r, "host_bytes").max(initial=0)))
    host = float(column(most_out, "host_bytes").max(initial=0))
    swapped = f"{run_name(most_out, keys)} has most swapped out, {show_bytes(host)}." if host else "Nothing is swapped out."
    return (f"These do not fit: {join(failed)}. " if failed else "All runs fit. ") + swapped


def _when(run: Result) -> str:
    return show_time(end(run)) if timed(run) else f"event {end(run):,.0f}"
