"""What to look at of very many runs: the best, the trade of memory against time, and which axis matters how much.

Runs that differ in their seed only are one point, with the mean over them; a point some of whose runs did not finish is none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.values.pareto import HELD, front
from gpusim.show.view import REFERENCE, contenders, ending, main_metric, place_name, text, value, varying

LISTED = 200  # runs from which on they are not listed one by one
MOST = 10  # points of a kind that are named
MOST_PROGRAMS = 4  # programs on machines whose points are named
SEED = "seed"


@dataclass(frozen=True)
class RunsPoint:
    """Runs that differ in their seed only.

    value   mean of the metric
    memory  mean of the bytes that they held at most, None where that is not known
    """

    runs: tuple[Result, ...]
    value: float
    memory: float | None


@dataclass(frozen=True)
class AxisLevel:
    """The runs with one value of an axis: how many, how many of them finished, and mean and best of the metric over these."""

    name: str
    runs: int
    finished: int
    mean: float | None
    best: float | None


@dataclass(frozen=True)
class Effect:
    """How much of the metric's variance over the runs that finished an axis explains.

    alone     the variance of the means over its levels (first-order index; Sobol 1993), share of all
    together  the mean variance that is left where all other axes are held (total index; Homma and Saltelli 1996), share of all
    """

    axis: str
    alone: float
    together: float
    levels: tuple[AxisLevel, ...]


@dataclass(frozen=True)
class ProgramPicks:
    """One program on one machine: its best points, best first, and its front, least memory first."""

    name: str
    best: tuple[RunsPoint, ...]
    front: tuple[RunsPoint, ...]


@dataclass(frozen=True)
class Picked:
    """What there is to see of these runs.

    endings   how runs ended that did not finish -> how many
    programs  those with most runs first
    effects   of the axes, the strongest first; none where nothing varies
    """

    metric: str
    runs: int
    keys: tuple[str, ...]
    endings: dict[str, int]
    programs: tuple[ProgramPicks, ...]
    effects: tuple[Effect, ...]


def picked(results: Sequence[Result], metric: str = "") -> Picked:
    """All of it; `metric` is by default what the results are compared by."""
    metric = metric or main_metric(results)
    keys = varying(results)
    programs: dict[str, list[Result]] = {}
    where = [key for key in REFERENCE if key in keys]
    names: dict[tuple[str, ...], str] = {}
    for r in contenders(results):
        place = tuple(str(r.spec.get(key)) for key in where)
        if place not in names:
            names[place] = place_name(r, where)
        programs.setdefault(names[place], []).append(r)
    found = [_program(name, runs, keys, metric) for name, runs in programs.items()]
    return Picked(
        metric, len(results), tuple(keys), dict(Counter(ending(r) for r in results if not r.finished)), tuple(found),
        effects(results, metric),
    )  # fmt: skip


def _program(name: str, runs: Sequence[Result], keys: Sequence[str], metric: str) -> ProgramPicks:
    found = points(runs, keys, metric)
    sign = -1 if declared(metric).better == "higher" else 1
    return ProgramPicks(name, tuple(sorted(found, key=lambda p: sign * p.value)[:MOST]), tuple(front(found, sign)))


def points(results: Sequence[Result], keys: Sequence[str], metric: str) -> list[RunsPoint]:
    """The results as points; `keys` are those in which they differ, the seed apart."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for r in results:
        groups.setdefault(tuple(str(r.spec.get(key)) for key in keys), []).append(r)
    found = []
    for runs in groups.values():
        values = [value(r, metric) if r.finished else None for r in runs]
        if None not in values:
            held = [next((v for name in HELD if (v := value(r, name)) is not None), None) for r in runs]
            found.append(RunsPoint(tuple(runs), _mean(values), None if None in held else _mean(held)))
    return found


def effects(results: Sequence[Result], metric: str) -> tuple[Effect, ...]:
    """Of every axis in which the results differ, the seed among them."""
    axes = varying(results)
    if len({r.spec.get(SEED) for r in results}) > 1:
        axes = [*axes, SEED]
    found = np.array([math.nan if v is None else v for v in (value(r, metric) if r.finished else None for r in results)])
    there = np.isfinite(found)
    levels = {axis: _levels(results, axis) for axis in axes}
    total = float(np.var(found[there])) if there.any() else 0.0
    made = []
    for axis, (names, code) in levels.items():
        others = _joined([levels[other][1][there] for other in axes if other != axis], int(there.sum()))
        alone = _between(found[there], code[there]) / total if total else 0.0
        together = 1.0 - _between(found[there], others) / total if total else 0.0
        made.append(Effect(axis, alone, max(together, 0.0), _summary(names, code, found, declared(metric).better)))
    return tuple(sorted(made, key=lambda e: (-e.together, -e.alone, e.axis)))


def _levels(results: Sequence[Result], axis: str) -> tuple[list[str], npt.NDArray[Any]]:
    """The values of an axis as text, and which of them each run has."""
    known: dict[str, int] = {}
    texts: dict[str, str] = {}
    code = []
    for r in results:
        raw = r.spec.get(axis)
        if (written := repr(raw)) not in texts:
            texts[written] = text(axis, raw)
        code.append(known.setdefault(texts[written], len(known)))
    return list(known), np.array(code, np.int64)


def _summary(names: Sequence[str], code: Any, found: Any, better: str) -> tuple[AxisLevel, ...]:
    made = []
    for i, name in enumerate(names):
        here = found[code == i]
        known = here[np.isfinite(here)]
        best = None if not len(known) else float(known.max() if better == "higher" else known.min())
        made.append(AxisLevel(name, len(here), len(known), float(known.mean()) if len(known) else None, best))
    return tuple(made)


def _between(values: Any, code: Any) -> float:
    """The variance of the means of the groups, each counted as often as it has values."""
    if not len(values):
        return 0.0
    counts = np.bincount(code)
    sums = np.bincount(code, values)
    there = counts > 0
    means = sums[there] / counts[there]
    return float(np.average((means - values.mean()) ** 2, weights=counts[there]))


def _joined(codes: Sequence[Any], runs: int) -> Any:
    """One number for each combination."""
    joined = np.zeros(runs, np.int64)
    for code in codes:
        joined = np.unique(joined * (int(code.max(initial=0)) + 1) + code, return_inverse=True)[1]
    return joined


def _mean(values: Sequence[Any]) -> float:
    return math.fsum(values) / len(values)
