"""Points of a space as runs of a results folder, where each is kept under its key like any other run: none is done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.experiment import grid, load
from gpusim.experiment.load import Loaded
from gpusim.experiment.pool import Failure
from gpusim.experiment.resolved import resolved
from gpusim.experiment.spec import expand
from gpusim.experiment.tasks import GridPlan, Task, inputs, plan, read
from gpusim.results.folder import has_result
from gpusim.results.references import RATIOS
from gpusim.results.result import Result
from gpusim.studies.tuning.goals import Goal, values
from gpusim.studies.tuning.search import Values
from gpusim.studies.tuning.space import Lines, Point, Value, at
from gpusim.trace.trace import Trace

WRITTEN, SEARCH, GRID, BACK = "written", "search", "grid", "back"
"""Where a trial comes from: the experiment as written, the search, the grid of the same budget, the best with one knob back."""
FOUND = (WRITTEN, SEARCH, BACK)
REFUSED = 2.0  # the shortfall of a run that does not even begin; one that runs out of memory has less

_REFERENCES = {"bound_no_limit_ns": "no_limit", "bound_oracle_ns": "oracle", "bound_best_plan_ns": "searched"}


@dataclass(frozen=True)
class Trial:
    """One setting of all knobs, and what its runs came to.

    lines      what the experiment has on the axes that are varied
    point      the same as values of the knobs; None outside of the space
    values     one for each goal, None where it has none: then `why`, and `shortfall`, the larger the farther from finishing
    runs       keys of its runs in the folder
    oracle     whether one of them reads the future
    """

    origin: str
    lines: Lines
    point: Point | None
    values: Values | None = None
    why: str = ""
    shortfall: float = 0.0
    runs: tuple[str, ...] = ()
    oracle: bool = False

    @property
    def key(self) -> tuple[tuple[str, Value], ...]:
        """Equal for trials of equal runs: the point, or outside of the space the lines."""
        return tuple(sorted((self.lines if self.point is None else self.point).items()))


class Trials:
    """Runs trials in one folder.

    results  of all runs that ended, by key
    bugs     runs that ended by a mistake of the simulator's own
    """

    def __init__(
        self, loaded: Loaded, goals: Sequence[Goal], out: Path, jobs: int | None, progress: Callable[[int], None]
    ) -> None:
        self._loaded, self._goals, self._out, self._jobs = loaded, goals, out, jobs
        self._progress = progress  # called with the trials that are done
        self._plans: list[GridPlan] = []
        self._known: dict[tuple[tuple[str, Value], ...], Trial] = {}
        self._text, self._inputs = resolved(loaded.experiment), inputs(loaded)
        self.results: dict[str, Result] = {}
        self.bugs: list[tuple[str, Failure]] = []
        self.done = 0

    def run(self, wanted: Sequence[Trial]) -> list[Trial]:
        """These trials with what they come to; a batch whose runs wait for each other.  Raises ResultError when nothing can be
        kept."""
        new = {trial.key: trial for trial in reversed(wanted) if trial.key not in self._known}
        planned = {key: self._planned(trial.lines) for key, trial in reversed(new.items())}
        plans = [found for found in planned.values() if isinstance(found, GridPlan)]
        self._plans += plans
        failures = self._execute(together(self._out, plans)) if plans else {}
        self._known |= {key: self._ended(new[key], found, failures) for key, found in planned.items()}
        self.done += len(wanted)
        self._progress(self.done)
        return [replace(self._known[trial.key], origin=trial.origin) for trial in wanted]

    def keep(self) -> list[Result]:
        """Make the folder that of a grid of all runs that ended; their results, in the order of the trials."""
        whole = together(self._out, self._plans)
        finished = _part(whole, {task.key for task in whole.tasks if has_result(self._out, task.key)}, _REFERENCES.values())
        return grid.run(finished, self._text, self._inputs).results if finished.grid else []

    def _planned(self, lines: Lines) -> GridPlan | GpusimError:
        """The runs of a trial, each with the references that its goals ask for; or why it cannot run."""
        try:
            there = at(self._loaded, lines)
            made = plan(
                replace(there, experiment=self._loaded.experiment), self._out, runs=expand(there.experiment, allow_large=True)
            )
            load.foresee(there, made.tasks)
        except GpusimError as error:
            return error
        needed = {"bound_no_limit_ns", *(RATIOS[goal.metric] for goal in self._goals if goal.metric in RATIOS)}
        return _part(made, {task.key for task in made.tasks}, [name for bound, name in _REFERENCES.items() if bound in needed])

    def _execute(self, todo: GridPlan) -> dict[str, Failure]:
        """Run what waits; why runs failed, by key."""
        done = grid.run(todo, self._text, self._inputs, jobs=self._jobs)
        self.results |= {result.key: result for result in done.results}
        failures = {task.key: failure for task, failure in done.failures if isinstance(task, Task)}
        self.bugs += [(str(task), failure) for task, failure in done.failures if failure.is_bug]
        return failures

    def _ended(self, trial: Trial, planned: GridPlan | GpusimError, failures: dict[str, Failure]) -> Trial:
        if isinstance(planned, GpusimError):
            return replace(trial, why=planned.message, shortfall=REFUSED)
        tasks = planned.grid
        trial = replace(trial, runs=tuple(task.key for task in tasks))
        results = [self.results.get(task.key) for task in tasks]
        if missing := [task for task, result in zip(tasks, results, strict=True) if result is None]:
            failure = next((failures[task.key] for task in missing if task.key in failures), None)
            return replace(trial, why=failure.message if failure else "a run has no result", shortfall=REFUSED)
        ended = [result for result in results if result is not None]
        trial = replace(trial, oracle=any(result.oracle for result in ended))
        short = [(task, result) for task, result in zip(tasks, ended, strict=True) if not result.finished]
        if short:
            least = sum(self._short(task, result) for task, result in short) / len(tasks)
            return replace(trial, why=short[0][1].outcome, shortfall=least)
        found = values(self._goals, ended, trial.point)
        return replace(trial, values=found) if found else replace(trial, why="not measured", shortfall=REFUSED)

    def _short(self, task: Task, result: Result) -> float:
        """How far a run was from its end, above 0 and at most 2: the share of the program that did not run, and that of the
        memory that it lacked."""
        program = read(task.trace, task.spec.transform, self._loaded.own)
        total = program.events if isinstance(program, Trace) else 0
        undone = 1 - float(result.metrics.get("events", 0)) / total if total else 0.0
        failure, capacity = result.failure or {}, float(result.spec.get("capacity") or 0)
        lacks = float(failure.get("request") or 0) - float(failure.get("free") or 0)
        lacked = min(max(lacks, 0.0) / capacity, 1.0) if capacity else 0.0
        return max(min(max(undone, 0.0), 1.0) + lacked, 1e-6)


def together(out: Path, plans: Sequence[GridPlan]) -> GridPlan:
    """Several plans as one; what they share is in it once."""
    return _plan(
        out, [task for each in plans for task in each.grid], [task for each in plans for task in each.references],
        {name: {key: keys for each in plans for key, keys in getattr(each, name).items()} for name in _REFERENCES.values()},
    )  # fmt: skip


def _part(each: GridPlan, there: set[str], names: Iterable[str]) -> GridPlan:
    """The runs with these keys, and of their references those of these names."""
    measured = {
        name: {run: found for run, keys in getattr(each, name).items()
               if run in there and (found := tuple(key for key in keys if key in there))}
        for name in names
    }  # fmt: skip
    needed = {key for of in measured.values() for keys in of.values() for key in keys}
    return _plan(
        each.out, [t for t in each.grid if t.key in there], [t for t in each.references if t.key in needed], measured
    )


def _plan(
    out: Path, tasks: Iterable[Task], references: Iterable[Task], measured: Mapping[str, dict[str, tuple[str, ...]]]
) -> GridPlan:
    runs, others = ({task.key: task for task in some} for some in (tasks, references))
    no_limit, oracle, searched = (measured.get(name, {}) for name in _REFERENCES.values())
    return GridPlan(out, tuple(runs.values()), tuple(others.values()), no_limit, oracle, searched)
