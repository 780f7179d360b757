"""Which point is tried next: Optuna's tree-structured Parzen estimator, asked in batches.

A trial that ran out of memory is infeasible; by how much orders it among its like, so that the search finds its way to where
programs fit.

Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; with constraints, Watanabe and Hutter,
"c-TPE: Tree-structured Parzen Estimator with Inequality Constraints for Expensive Hyperparameter Optimization", IJCAI 2023;
importance of parameters, Watanabe et al., "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces", IJCAI 2023.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.ranges import NumberRange
from gpusim.studies.tuning.goals import Goal
from gpusim.studies.tuning.space import Knob, Point, Space, Value

Values = tuple[float, ...]
REPEATED = 64  # points asked for, for each one that is wanted and new, before the rest of a batch is drawn at random


def optuna() -> Any:
    """The package, which is an extra.  GpusimError where it is absent."""
    try:
        import optuna as package
    except ImportError:
        raise GpusimError("a search needs Optuna", hint="pip install 'gpusim[tune]'") from None
    return package


class Search:
    """A search of a space: the same questions for the same answers, however long these take.

    seed  decides where it begins, and what it draws
    """

    def __init__(self, space: Space, goals: Sequence[Goal], seed: int) -> None:
        self._space, self._optuna = space, optuna()
        self._goals = goals
        self._waiting: dict[frozenset[tuple[str, Value]], list[Any]] = {}
        self._told: dict[frozenset[tuple[str, Value]], tuple[Values | None, float]] = {}
        with self._quiet():
            sampler = self._optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
            self._study = self._optuna.create_study(sampler=sampler, directions=_directions(goals))
            self._random = self._optuna.samplers.RandomSampler(seed=seed)

    def ask(self, most: int) -> list[dict[str, Value]]:
        """At most so many points that were not asked for or told before; none once a finite space has no others."""
        found: list[dict[str, Value]] = []
        sampler = self._study.sampler
        with self._quiet():
            for tried in range(2 * REPEATED * most):
                if len(found) == most:
                    break
                if tried == REPEATED * most:  # it has made up its mind: what is left of the budget looks elsewhere
                    self._study.sampler = self._random
                trial = self._study.ask()
                point = self._suggested(trial)
                if (answer := self._told.get(_key(point))) is not None:
                    self._answer(trial, *answer)
                    continue
                if _key(point) not in self._waiting:
                    found.append(point)
                self._waiting.setdefault(_key(point), []).append(trial)
        self._study.sampler = sampler
        return found

    def begin(self, point: Point) -> None:
        """Ask for this point, before any other."""
        with self._quiet():
            self._study.enqueue_trial(dict(point))
            trial = self._study.ask()
            self._waiting.setdefault(_key(self._suggested(trial)), []).append(trial)

    def tell(self, point: Point, values: Values | None, shortfall: float = 0.0) -> None:
        """What the runs at a point came to; None, and by how much they fell short (above 0), where they did not finish."""
        self._told[_key(point)] = values, shortfall
        with self._quiet():
            for trial in self._waiting.pop(_key(point), []):
                self._answer(trial, values, shortfall)

    def _answer(self, trial: Any, values: Values | None, shortfall: float) -> None:
        if values is None:
            trial.set_constraint("shortfall", shortfall)
        self._study.tell(trial, list(values) if values is not None else [goal.sign * math.inf for goal in self._goals])

    def _suggested(self, trial: Any) -> dict[str, Value]:
        point = {knob.path: _suggest(trial, knob) for knob in self._space.chosen}
        return point | {knob.path: _suggest(trial, knob) for knob in self._space.active(point)}

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        with quiet(self._optuna):
            yield


def importance(space: Space, goal: Goal, points: Sequence[Point], values: Sequence[float]) -> dict[str, float]:
    """The share of each knob in reaching the best tenth of these points, most important first; empty for too few points.

    A parameter that only some points have is judged by these.
    """
    package = optuna()
    if len(points) < _FEWEST or len(set(values)) < 2:
        return {}
    with quiet(package):
        study = package.create_study(directions=_directions([goal]))
        distributions = {knob.path: _distribution(package, knob) for knob in space.knobs}
        for point, value in zip(points, values, strict=True):
            study.add_trial(package.trial.create_trial(
                params=dict(point), value=value,
                distributions={path: distributions[path] for path in point},
            ))  # fmt: skip
        found = package.importance.get_param_importances(study, evaluator=package.importance.PedAnovaImportanceEvaluator())
    return {path: float(share) for path, share in found.items()}


_FEWEST = 20  # points of which the best tenth says something


@contextmanager
def quiet(package: Any) -> Iterator[None]:
    """Without what the package says of itself: that a study was made, and that some of what it offers may change."""
    before = package.logging.get_verbosity()
    package.logging.set_verbosity(package.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        package.logging.set_verbosity(before)


def _directions(goals: Sequence[Goal]) -> list[str]:
    return ["minimize" if goal.sign > 0 else "maximize" for goal in goals]


def _suggest(trial: Any, knob: Knob) -> Value:
    values = knob.values
    if not isinstance(values, NumberRange):
        return str(trial.suggest_categorical(knob.path, values))
    if values.whole:
        return int(trial.suggest_int(knob.path, values.low, _last(values), step=int(values.step or 1), log=values.log))
    return values.rounded(trial.suggest_float(knob.path, values.low, _last(values), step=values.step, log=values.log))


def _distribution(package: Any, knob: Knob) -> Any:
    values = knob.values
    if not isinstance(values, NumberRange):
        return package.distributions.CategoricalDistribution(values)
    if values.whole:
        return package.distributions.IntDistribution(values.low, _last(values), log=values.log, step=int(values.step or 1))
    return package.distributions.FloatDistribution(values.low, _last(values), log=values.log, step=values.step)


def _last(values: NumberRange) -> int | float:
    """The greatest number of the range: with a step it may lie before the end."""
    if values.step is None:
        return values.high
    return values.low + ((values.count or 1) - 1) * values.step




def _key(point: Point) -> frozenset[tuple[str, Value]]:
    return frozenset(point.items())
