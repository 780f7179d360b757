"""What is minimised or maximised, and what the runs of a trial come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.ranges import NumberRange
from gpusim.experiment.spec import Experiment
from gpusim.results.metrics import Metric
from gpusim.results.metrics import metric as declared
from gpusim.results.references import RATIOS
from gpusim.results.result import Result
from gpusim.studies.tuning.axes import names, parts
from gpusim.studies.tuning.space import Point, Space

# Runs that differ in these are measured against others.
REFERENCED = ("transform", "profile", "active_thread_percentage", "parallel", "placement", "stragglers")
# How much work a transform's program does in one run, by a parameter of it, with its default.
WORK = {"batch": ("factor", 1.0), "sequence": ("factor", 1.0), "accumulate": ("steps", 2.0), "pipeline": ("microbatches", 4.0)}
COUNTED = {"batch": "to", "sequence": "to"}  # the parameter that says it as a number of samples


@dataclass(frozen=True)
class Goal:
    """A metric, `sign` 1 where less of it is wanted and -1 where more is; divided by the parameter `per`, "" for none."""

    metric: str
    sign: int = 1
    per: str = ""

    @property
    def declared(self) -> Metric:
        return declared(self.metric)

    @property
    def label(self) -> str:
        """In words: "slowdown", "makespan per transform.batch.factor"."""
        return self.declared.label + (f" per {self.per}" if self.per else "")

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is better than `b`."""
        return self.sign * a < self.sign * b

    def of(self, results: Sequence[Result], point: Point | None) -> float | None:
        """The geometric mean over the runs of a trial: each place counts alike; None where one does not say."""
        found = [result.metrics.get(self.metric, result.bounds.get(self.metric)) for result in results]
        known = [float(value) for value in found if value is not None and math.isfinite(value)]
        if not known or len(known) < len(found):
            return None
        mean = math.exp(math.fsum(map(math.log, known)) / len(known)) if min(known) > 0 else 0.0
        if not self.per:
            return mean
        return None if point is None else mean / float(point[self.per])


def goals(minimise: Sequence[str], maximise: Sequence[str], per: str, space: Space, e: Experiment) -> tuple[Goal, ...]:
    """What is asked for; by default slowdown, or makespan_ns where runs have no reference in common.

    per   path of a knob by whose value times are divided, "" for none
    Raises GpusimError for a metric that does not exist, that no run measures, or that does not compare these trials.
    """
    if not minimise and not maximise:
        minimise = ["slowdown" if e.bounds and not _several_references(space) else "makespan_ns"]
    names = [*minimise, *maximise]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise GpusimError(f"'{twice}' is named twice", hint="name each metric once")
    found = tuple(Goal(name, sign) for of, sign in ((minimise, 1), (maximise, -1)) for name in of)
    if per:
        _check_per(per, space)
    for goal in found:
        _check(goal, per, space, e)
    return tuple(Goal(g.metric, g.sign, per if per and g.declared.unit == "ns" else "") for g in found)


def _check(goal: Goal, per: str, space: Space, e: Experiment) -> None:
    name = goal.declared.name
    if name in RATIOS:
        varied = _several_references(space)
        if varied:
            said = f"'{name}' does not compare runs that differ in {varied}: each is measured against another reference"
            raise GpusimError(said, hint="minimise makespan_ns")
        if not e.bounds or (name == "over_best_plan" and e.bounds != "search"):
            wanted = "search" if name == "over_best_plan" else "true"
            said = f"nothing measures '{name}': bounds: {str(e.bounds).lower()} leaves out what it is measured against"
            raise GpusimError(said, hint=f"--set bounds={wanted}, or minimise makespan_ns")
    if goal.declared.unit == "ns" and (why := _other_work(space, per)):
        raise GpusimError(f"'{name}' does not compare these trials: {why}", hint=_hint_of_work(space))


def _several_references(space: Space) -> str:
    """The varied axis whose values have references of their own, "" where there is none."""
    return next((knob.axis for knob in space.knobs if knob.axis in REFERENCED), "")


def _check_per(per: str, space: Space) -> None:
    knob = next((knob for knob in space.knobs if knob.path == per), None)
    if knob is None or not isinstance(knob.values, NumberRange):
        known = ", ".join(k.path for k in space.knobs if isinstance(k.values, NumberRange))
        raise GpusimError(f"--per {per}: no number of this name is tuned", hint=f"known: {known}" if known else "")
    if knob.parameter and any(knob.name not in names(knob.axis, text) for text in space.texts(knob.axis)):
        raise GpusimError(f"--per {per}: not every trial has one", hint=f"let each value of {knob.axis} have {knob.name}")
    if knob.values.low <= 0:
        raise GpusimError(f"--per {per}: its range begins at {knob.values.low:g}", hint="begin it above 0")


def _other_work(space: Space, per: str) -> str:
    """Why a run of one trial does more work than that of another; "" when all do the same, or `per` accounts for it."""
    varied = [knob for knob in space.knobs if knob.axis == "transform" and _counts(knob.name, knob.parameter)]
    if others := [knob.path for knob in varied if knob.path != per]:
        return f"another {others[0]} is another amount of work"
    texts = space.texts("transform") if "transform" in space.axes else ()
    works = {work(text, {knob.name for knob in varied}): text for text in texts}
    return f"{' and '.join(map(repr, list(works.values())[:2]))} do different amounts of work" if len(works) > 1 else ""


def _hint_of_work(space: Space) -> str:
    numbers = [k for k in space.knobs if isinstance(k.values, NumberRange) and _counts(k.name, k.parameter)]
    return f"--per {numbers[0].path} divides by it" if numbers else "list transforms that do the same work, or minimise bytes"


def _counts(name: str, parameter: str) -> bool:
    return name in WORK and parameter in (WORK[name][0], COUNTED.get(name))


def work(chain: str, ignored: set[str]) -> tuple[float, str]:
    """How much work a chain of transforms makes of a recording: a factor, and what says it as a number of samples."""
    factor, counted = 1.0, ""
    for name, given in parts("transform", chain):
        if name in ignored or name not in WORK:
            continue
        parameter, default = WORK[name]
        factor *= float(given.get(parameter, default))
        counted += f" {name}={given[COUNTED[name]]}" if COUNTED.get(name, "") in given else ""
    return round(factor, 9), counted


def unmeasured(goals: Sequence[Goal], results: Sequence[Result]) -> Goal | None:
    """The goal that no finished run of these measures, None when each is measured by one."""
    finished = [result for result in results if result.finished]
    known: set[str] = {name for result in finished for table in (result.metrics, result.bounds) for name in table}
    return next((goal for goal in goals if finished and goal.metric not in known), None)


def values(goals: Sequence[Goal], results: Sequence[Result], point: Point | None) -> tuple[float, ...] | None:
    """What the finished runs of a trial come to, a number for each goal; None where one is not measured."""
    found = [goal.of(results, point) for goal in goals]
    return None if None in found else tuple(value for value in found if value is not None)
