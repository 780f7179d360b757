"""Tune an experiment: search its space, and say what the best of it is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from gpusim.base.errors import GpusimError, GridError
from gpusim.base.files import write_json
from gpusim.experiment.load import Loaded
from gpusim.experiment.pool import Failure
from gpusim.experiment.spec import expand
from gpusim.results.metrics import same
from gpusim.results.result import Result
from gpusim.studies.tuning.axes import names, put
from gpusim.studies.tuning.goals import Goal, goals, unmeasured
from gpusim.studies.tuning.search import Search, importance, optuna
from gpusim.studies.tuning.space import Knob, Point, Space, at, space
from gpusim.studies.tuning.trials import BACK, FOUND, GRID, SEARCH, WRITTEN, Trial, Trials

STATE = "tune.json"
BUDGET, BATCH = 200, 8
FORMAT, VERSION = "gpusim-tune", 1


@dataclass(frozen=True)
class Asked:
    """What a search is to do.

    goals   what is minimised or maximised
    budget  trials, the experiment as written among them
    seed    which points the search draws
    batch   points that are asked for before any of them is answered; with the seed it decides which points these are
    grid    also run the grid of the same budget
    """

    goals: tuple[Goal, ...]
    budget: int = BUDGET
    seed: int = 0
    batch: int = BATCH
    grid: bool = False


@dataclass(frozen=True)
class Tuned:
    """What a search came to.

    places      runs of each trial: one in each place where the question is asked
    complete    whether the trials are all that the space has
    importance  of each goal's metric, the share of each knob in reaching the best tenth; empty where too few trials finished
    results     of all runs, as the folder has them
    """

    question: str
    folder: Path
    asked: Asked
    space: Space
    trials: tuple[Trial, ...]
    places: int
    complete: bool
    importance: dict[str, dict[str, float]]
    results: list[Result]
    bugs: tuple[tuple[str, Failure], ...] = ()

    def of(self, *origins: str) -> list[Trial]:
        """The trials that come from there."""
        return [trial for trial in self.trials if trial.origin in origins]

    @cached_property
    def found(self) -> list[Trial]:
        """The trials that compete: all but those of the grid."""
        return competing(self.of(*FOUND))

    def best(self, goal: int = 0, origins: Sequence[str] = FOUND) -> Trial | None:
        """The best trial by one of the goals, the first among equals; None where none finished."""
        return _best(self.trials, self.asked.goals, origins, goal)

    def tied(self, goal: int = 0) -> list[Trial]:
        """The other trials within 1 % of the best."""
        best = self.best(goal)
        return [] if best is None else [t for t in self.found if t is not best and same(_value(t, goal), _value(best, goal))]

    def front(self, origins: Sequence[str] = FOUND) -> list[Trial]:
        """The Pareto front, by the first goal: trials than which none is as good in each goal and better in one."""
        signs = [goal.sign for goal in self.asked.goals]
        there: dict[tuple[float, ...], Trial] = {}
        for trial in competing(self.of(*origins)):
            there.setdefault(tuple(s * v for s, v in zip(signs, trial.values or (), strict=True)), trial)
        kept = [v for v in there if not any(o != v and all(a <= b for a, b in zip(o, v, strict=True)) for o in there)]
        return [there[values] for values in sorted(kept)]

    def back(self, knob: Knob) -> Trial | None:
        """The best trial with this knob as the experiment is written; None where that is what the best has."""
        best, written = self.best(), self.best(origins=(WRITTEN,))
        if best is None or written is None:
            return None
        if (wanted := _back(self.space, knob, best, written)) is None:
            return None
        return next((trial for trial in self.of(BACK) if trial.key == wanted.key), None)


def tune(
    loaded: Loaded, out: Path, *, minimise: Sequence[str] = (), maximise: Sequence[str] = (), per: str = "",
    budget: int = BUDGET, seed: int = 0, batch: int = BATCH, grid: bool = False, jobs: int | None = None,
    allow_large: bool = False, progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:  # fmt: skip
    """Search the space that the experiment's key `tune` and its lists of policies span.

    The same seed and batch give the same trials for any number of jobs.  What has a result is not run again, so that a search
    that was stopped goes on, and one with a larger budget begins where the other ended.

    minimise, maximise  metrics; several give a Pareto front
    per       the knob by which times are divided, where it is how much work a run does
    progress  called with (trials done, trials to do)

    Raises GpusimError for what cannot be searched, ResultError when the folder cannot be written, ConfigError with all mistakes
    of the key `tune`, GridError for more runs than the experiment's max_runs.
    """
    for name, number in (("budget", budget), ("batch", batch)):
        if number < 1:
            raise GpusimError(f"a {name} of {number} leaves nothing to run", hint=f"--{name} 1 or more")
    made = space(loaded)
    asked = Asked(goals(minimise, maximise, per, made, loaded.experiment), budget, seed, batch, grid)
    places = len(expand(at(loaded, made.given[0]).experiment, allow_large=True))
    _check_size(loaded, made, asked, places, allow_large)
    optuna()
    tuning = _Tuning(loaded, made, asked, out, jobs, progress)
    try:
        complete = tuning.search()
        tuning.set_back()
        tuning.compare()
    except KeyboardInterrupt:
        tuning.keep(places, complete=False)
        raise
    return tuning.keep(places, complete)


def _check_size(loaded: Loaded, made: Space, asked: Asked, places: int, allow_large: bool) -> None:
    if len(made.given) > asked.budget:
        said = f"the experiment as written has {len(made.given)} trials, and the budget is {asked.budget}"
        raise GpusimError(said, hint="raise --budget, or shorten its lists")
    runs, most = places * asked.budget * (1 + asked.grid), loaded.experiment.max_runs
    if runs > most and not allow_large:
        words = f"{asked.budget:,} trials{' and as many of the grid' * asked.grid} of {places:,} runs each"
        raise GridError(f"{words} are {runs:,} runs, more than max_runs = {most:,}",
                        hint="lower --budget, name fewer places with --set, or pass --allow-large")  # fmt: skip


class _Tuning:
    """A search while it goes on."""

    def __init__(
        self, loaded: Loaded, made: Space, asked: Asked, out: Path, jobs: int | None, progress: Callable[[int, int], None]
    ) -> None:
        self.loaded, self.space, self.asked, self.out = loaded, made, asked, out
        self.grid = made.grid(asked.budget) if asked.grid else []
        size = made.size()
        self.finite = size is not None and size <= asked.budget
        total = asked.budget + len(self.grid)
        self.runner = Trials(loaded, asked.goals, out, jobs, lambda done: progress(min(done, total), total))
        self.trials: list[Trial] = []

    def search(self) -> bool:
        """The experiment as written, then the rest of the budget; true when that is the whole space."""
        given = [Trial(WRITTEN, lines, self.space.point(lines)) for lines in self.space.given]
        self._run(given)
        if (goal := unmeasured(self.asked.goals, list(self.runner.results.values()))) is not None:
            raise GpusimError(f"no run of this experiment measures '{goal.metric}'", hint="`gpusim metrics` says what does")
        if self.finite:
            there = [trial.point for trial in self.trials if trial.point is not None]
            rest = [point for point in self.space.points(lambda knob: knob.levels(knob.count or 1)) if point not in there]
            left = self.asked.budget - len(self.trials)
            self._in_batches(SEARCH, rest[:left])
            return len(rest) <= left
        search = Search(self.space, self.asked.goals, self.asked.seed)
        for trial in self.trials:
            if trial.point is not None:
                search.begin(trial.point)
                search.tell(trial.point, trial.values, trial.shortfall)
        while (left := self.asked.budget - len(self.trials)) > 0:
            points = search.ask(min(self.asked.batch, left))
            if not points:
                break
            for trial in self._run([Trial(SEARCH, self.space.lines(point), point) for point in points]):
                search.tell(trial.point or {}, trial.values, trial.shortfall)
        return False

    def set_back(self) -> None:
        """The best with each knob alone as the experiment is written; what is better then is the best, until nothing is."""
        goal = self.asked.goals[0]
        while len(self.asked.goals) == 1:
            best, written = (_best(self.trials, self.asked.goals, origins) for origins in (FOUND, (WRITTEN,)))
            if best is None or written is None:
                return
            wanted = [trial for knob in self.space.knobs if (trial := _back(self.space, knob, best, written)) is not None]
            self._run(wanted)
            after = _best(self.trials, self.asked.goals, FOUND)
            if after is None or not goal.better(_value(after), _value(best)):
                return

    def compare(self) -> None:
        """The grid of the same budget."""
        self._in_batches(GRID, self.grid)

    def keep(self, places: int, complete: bool) -> Tuned:
        """What there is, in the folder as well."""
        results = self.runner.keep()
        shares = {}
        for i, goal in enumerate(self.asked.goals):
            known = [t for t in self.trials if t.point is not None and t.values is not None]
            points, values = [t.point or {} for t in known], [_value(t, i) for t in known]
            shares[goal.metric] = importance(self.space, goal, points, values)
        found = Tuned(self.loaded.experiment.question, self.out, self.asked, self.space, tuple(self.trials), places, complete,
                      shares, results, tuple(self.runner.bugs))  # fmt: skip
        if results:
            write_json(self.out / STATE, state(found))
        return found

    def _in_batches(self, origin: str, points: Iterable[Point]) -> None:
        wanted = [Trial(origin, self.space.lines(point), point) for point in points]
        for first in range(0, len(wanted), self.asked.batch):
            self._run(wanted[first : first + self.asked.batch])

    def _run(self, wanted: Sequence[Trial]) -> list[Trial]:
        found = self.runner.run(wanted) if wanted else []
        self.trials += found
        return found


def state(tuned: Tuned) -> dict[str, object]:
    """As plain values: what was asked, what it searched, and every trial; kept.load is the inverse."""
    asked = tuned.asked
    return {
        "format": FORMAT, "version": VERSION, "question": tuned.question,
        "goals": [{"metric": g.metric, "better": "lower" if g.sign > 0 else "higher", "per": g.per} for g in asked.goals],
        "budget": asked.budget, "seed": asked.seed, "batch": asked.batch, "grid": asked.grid,
        "optuna": optuna().__version__, "places": tuned.places, "complete": tuned.complete, "importance": tuned.importance,
        "space": asdict(tuned.space), "trials": [asdict(trial) for trial in tuned.trials],
    }  # fmt: skip


def competing(trials: Iterable[Trial]) -> list[Trial]:
    """The trials with values; of those outside of the space none that reads the future, unless there is nothing else."""
    there = [trial for trial in trials if trial.values is not None]
    return [trial for trial in there if trial.point is not None or not trial.oracle] or there


def _best(trials: Iterable[Trial], goals: Sequence[Goal], origins: Sequence[str], goal: int = 0) -> Trial | None:
    there = competing(trial for trial in trials if trial.origin in origins)
    return min(there, key=lambda trial: goals[goal].sign * _value(trial, goal), default=None)


def _back(made: Space, knob: Knob, best: Trial, written: Trial) -> Trial | None:
    """The best with this knob as written; None where there is no such knob in it, or it is at that value."""
    axis, there, here = knob.axis, made.point(written.lines) or {}, best.point or {}
    if knob.parameter and knob.name in names(axis, best.lines[axis]):
        text = knob.write(there[knob.path]) if knob.path in there else knob.default
        line = put(axis, best.lines[axis], {(knob.name, knob.parameter): text})
    elif not knob.parameter and here.get(knob.path) != there.get(knob.path, ""):
        line = written.lines[axis]
    else:
        return None
    lines = {**best.lines, axis: line}
    point = made.point(lines)
    return None if point is not None and point == best.point else Trial(BACK, lines, point)


def _value(trial: Trial, goal: int = 0) -> float:
    assert trial.values is not None
    return trial.values[goal]
