"""A metric by policy, over memory or another number: lines, their distance from the best, and what none of them can beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import by_line, grouped, mean, oracles, ranked
from gpusim.show.interval import F64, HIGH, LOW, interval, samples
from gpusim.show.view import POLICIES, Layout, along, ending, layout, least_makespan, main_metric, value

COMPARED = ("slowdown", "makespan_ns")  # the metrics that have references and a bound


@dataclass(frozen=True)
class PolicyPoint:
    """The repetitions of one line in one place; all numbers in the metric's unit."""

    x: float  # the value along the axis, 0 without one
    value: float | None  # the mean of those that finished; None where none did
    low: float | None  # the extremes of those that finished
    high: float | None
    interval: tuple[float, float] | None  # p10 and p90 over sampled machines
    ending: str  # how the first that did not finish ended, "" when all did
    no_limit: float | None = None  # with memory for everything
    oracle: float | None = None  # under oracle eviction
    bound: float | None = None  # no eviction policy gets below it
    sampled: F64 | None = field(default=None, compare=False, repr=False)  # on each sampled machine

    @property
    def spread(self) -> tuple[float, float] | None:
        """The interval over sampled machines, or else the extremes of repetitions; None where there is neither."""
        return self.interval or _apart(self.low, self.high)


@dataclass(frozen=True)
class PolicyLine:
    """One competitor: a combination of policies, or a machine or program where these are compared."""

    name: str
    oracle: bool  # it reads the future
    points: tuple[PolicyPoint, ...]  # by rising x

    def at(self, x: float) -> PolicyPoint | None:
        return next((point for point in self.points if point.x == x), None)


@dataclass(frozen=True)
class PolicyPanel:
    """One place: a machine and a program."""

    name: str
    lines: tuple[PolicyLine, ...]  # in the order of `PolicyComparison.names`

    def level(self, of: str) -> tuple[tuple[float, float], ...]:
        """(x, lowest of the lines) of "no_limit", "oracle" or "bound", where it is known."""
        found: dict[float, float] = {}
        for point in chain.from_iterable(line.points for line in self.lines):
            height = getattr(point, of)
            if height is not None:
                found[point.x] = min(height, found.get(point.x, height))
        return tuple(sorted(found.items()))

    @property
    def along(self) -> tuple[float, ...]:
        """The values along the axis, rising."""
        return tuple(sorted({point.x for line in self.lines for point in line.points}))


@dataclass(frozen=True)
class PolicyComparison:
    """Everything that a comparison of policies shows.

    references  whether the lines of a panel have one reference, so that it can be drawn as one level
    """

    metric: str
    plan: Layout
    names: tuple[str, ...]  # of the lines, best first, as in all figures
    panels: tuple[PolicyPanel, ...]
    references: bool

    @property
    def points(self) -> list[PolicyPoint]:
        return [point for panel in self.panels for line in panel.lines for point in line.points]

    @property
    def oracle_apart(self) -> bool:
        """Whether oracle eviction is one reference of all lines, and none of them itself."""
        return self.references and set(self.plan.lines) <= set(POLICIES) and not self.future

    @property
    def future(self) -> set[str]:
        """The lines that read the future."""
        return {line.name for panel in self.panels for line in panel.lines if line.oracle}


def comparison(results: Sequence[Result], metric: str = "", plan: Layout | None = None) -> PolicyComparison:
    """The results by panel, line and value along the axis; the main metric and the usual layout unless others are given."""
    metric, plan = metric or main_metric(results), plan or layout(results)
    names, future = ranked(results, metric), oracles(results, plan.lines)
    panels = []
    for where, runs in grouped(results, plan.panels).items():
        lines = by_line(runs, plan.lines)
        made = (PolicyLine(name, name in future, _points(lines[name], plan.across, metric)) for name in names if name in lines)
        panels.append(PolicyPanel(where, tuple(made)))
    alike = metric == "slowdown" or bool(set(plan.lines) & set(POLICIES))  # else each line has a reference of its own
    return PolicyComparison(metric, plan, tuple(names), tuple(panels), alike)


def _points(runs: Sequence[Result], across: str, metric: str) -> tuple[PolicyPoint, ...]:
    places: dict[float, list[Result]] = {}
    for run in runs:
        places.setdefault(along(run, across) if across else 0.0, []).append(run)
    return tuple(_point(x, places[x], metric) for x in sorted(places))


def _point(x: float, runs: Sequence[Result], metric: str) -> PolicyPoint:
    found = [v for r in runs if (v := value(r, metric)) is not None]
    return PolicyPoint(
        x, mean(runs, metric), min(found, default=None), max(found, default=None), interval(runs, metric),
        next((how for r in runs if (how := ending(r))), ""), *_references(runs, metric), sampled=samples(runs, metric),
    )  # fmt: skip


def _references(runs: Sequence[Result], metric: str) -> tuple[float | None, float | None, float | None]:
    """Without a limit, under oracle eviction, and the bound."""
    if metric not in COMPARED:
        return None, None, None
    free, oracle, least = [], [], []
    for run in runs:
        alone, over, mine = value(run, "bound_no_limit_ns"), value(run, "over_oracle"), value(run, metric)
        unit = alone if metric == "slowdown" else 1.0
        if alone and unit:
            free.append(alone / unit)
        if (lowest := bound_of(run, metric)) is not None:
            least.append(lowest)
        # Without eviction there is no other eviction.  The metric over its distance from the oracle is the oracle's.
        if over and mine is not None and run.spec.get("evict") not in (None, "none"):
            oracle.append(mine / over)
    return min(free, default=None), min(oracle, default=None), min(least, default=None)


def bound_of(run: Result, metric: str) -> float | None:
    """What no eviction policy beats in this run's place, as makespan or slowdown; None where that is not known."""
    least, alone = least_makespan(run), value(run, "bound_no_limit_ns")
    if least is None or metric != "slowdown":
        return least
    return least / alone if alone else None


@dataclass(frozen=True)
class Ratio:
    """How many times as much as the best of its place, 1 for the best itself; less than 1 only of an oracle.

    Where higher is better, it is how many times less.
    """

    x: float
    value: float | None  # None where no run of the line finished, or the metric is 0 there
    low: float | None = None  # the extremes over repetitions
    high: float | None = None
    interval: tuple[float, float] | None = None  # p10 and p90 of the ratio on the same sampled machines
    ending: str = ""

    @property
    def spread(self) -> tuple[float, float] | None:
        """The interval over sampled machines, or else the extremes of repetitions; None where there is neither."""
        return self.interval or _apart(self.low, self.high)


def _apart(low: float | None, high: float | None) -> tuple[float, float] | None:
    return (low, high) if low is not None and high is not None and high > low else None


def ratios(panel: PolicyPanel, metric: str) -> Mapping[str, tuple[Ratio, ...]]:
    """The lines of a panel against the best in each place, by name; the best is no oracle unless all are."""
    upwards = declared(metric).better == "higher"
    best = {x: _best(panel, x, upwards) for x in panel.along}
    return {line.name: tuple(_ratio(p, best[p.x], upwards) for p in line.points) for line in panel.lines}


def _best(panel: PolicyPanel, x: float, upwards: bool) -> PolicyPoint | None:
    there = [(line.oracle, p) for line in panel.lines if (p := line.at(x)) is not None and p.value is not None]
    fair = [p for oracle, p in there if not oracle] or [p for _, p in there]
    return (max if upwards else min)(fair, key=lambda p: p.value or 0.0, default=None)


def _ratio(point: PolicyPoint, best: PolicyPoint | None, upwards: bool) -> Ratio:
    if best is None or not best.value or not point.value:
        return Ratio(point.x, None, ending=point.ending)
    base = best.value

    def over(one: float) -> float:
        return base / one if upwards else one / base

    ends = sorted(over(end) for end in (point.low, point.high) if end)
    low, high = min(ends, default=None), max(ends, default=None)
    return Ratio(point.x, over(point.value), low, high, _sampled(point, best, upwards), point.ending)


def _sampled(point: PolicyPoint, best: PolicyPoint, upwards: bool) -> tuple[float, float] | None:
    if point.sampled is None or best.sampled is None or len(point.sampled) != len(best.sampled):
        return None
    above, below = (best.sampled, point.sampled) if upwards else (point.sampled, best.sampled)
    usable = np.isfinite(above) & np.isfinite(below) & (below > 0)
    if not usable.any():
        return None
    found = above[usable] / below[usable]
    return float(np.quantile(found, LOW)), float(np.quantile(found, HIGH))
