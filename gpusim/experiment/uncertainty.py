"""Every run of a grid again, on machines drawn between the error bars of its profile, and with one number at a time pushed.

The runs of one program on one machine are one task: all meet the same drawn machines, so that their differences are paired,
and share what a program costs to prepare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.base.defaults import LATER
from gpusim.base.yaml.values import NONE
from gpusim.experiment import users
from gpusim.experiment.execute import RunProgram, capacity_of, program_of, simulated
from gpusim.experiment.executor import Executor
from gpusim.experiment.key import run_key
from gpusim.experiment.pool import Failure
from gpusim.experiment.reach import TrafficCounts, reach, weighs_times
from gpusim.experiment.spec import KINDS, Uncertainty
from gpusim.experiment.tasks import GridPlan, Task
from gpusim.machine.constants import machine
from gpusim.machine.kernels.bars import PREFIX, ClassBar
from gpusim.machine.profile import Profile
from gpusim.machine.quantity import Quantity
from gpusim.machine.sampling import Interval, draws, intervals, with_numbers
from gpusim.machine.unread import unread
from gpusim.results.metrics import same
from gpusim.results.result import Result
from gpusim.results.uncertainty import path_of, save
from gpusim.trace.trace import MOVES
from gpusim.trace.workload import Workload

if TYPE_CHECKING:
    from gpusim.experiment.execute import Source

Makespans = dict[str, int | None]  # by key of the run, None where it did not finish


@dataclass(frozen=True)
class SampledGroup:
    """The runs of one program on one machine.

    free      key of a run -> its references without a memory limit
    metrics   key of a run -> what it came to on the profile's own machine
    rivals    runs that compete with each other, some of which may be of other groups: key -> makespan
    """

    name: str
    out: Path
    settings: Uncertainty
    runs: tuple[Task, ...]
    free: Mapping[str, tuple[Task, ...]]
    metrics: Mapping[str, Mapping[str, int | float]]
    rivals: tuple[Mapping[str, float], ...]

    def __str__(self) -> str:
        return f"the samples of {self.runs[0].spec.trace} on {self.runs[0].spec.profile}"


def names(plan: GridPlan, settings: Uncertainty) -> list[str]:
    """What the samples of this plan are kept as; none when nothing is sampled."""
    return list(_programs(plan, settings)) if settings.samples else []


def waiting(plan: GridPlan, settings: Uncertainty) -> list[Task]:
    """The runs whose samples are not there yet."""
    groups = _programs(plan, settings) if settings.samples else {}
    return [task for name, tasks in groups.items() if not path_of(plan.out, name).is_file() for task in tasks]


def sample(
    plan: GridPlan, settings: Uncertainty, results: Sequence[Result], doing: Executor, *, force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[tuple[SampledGroup, Failure]]:  # fmt: skip
    """Sample all runs that have no samples yet; returns what failed.  `results` are those of the grid."""
    todo = [group for group in _groups(plan, settings, results) if force or not path_of(plan.out, group.name).is_file()]
    waiting, failures, ran = iter(todo), [], 0
    if todo:
        total = sum(map(_simulations, todo))
        progress(0, total)
        with closing(doing.carry_out(lambda: next(waiting, None), sample_group)) as ending:
            for group, outcome in ending:
                if isinstance(outcome, Failure):
                    failures.append((group, outcome))
                ran += _simulations(group)
                progress(ran, total)
    return failures


def _simulations(group: SampledGroup) -> int:
    """Runs on drawn machines, those without a limit among them."""
    return group.settings.samples * len({task.key for tasks in (*group.free.values(), group.runs) for task in tasks})


def sample_group(group: SampledGroup) -> None:
    """Simulate the runs of one program on its drawn and pushed machines, and keep what they came to."""
    # What unified memory costs is uncertain too where one of the runs has it; the others do not know these numbers.
    first = next((task for task in group.runs if task.spec.unified != NONE), group.runs[0])
    settings = group.settings
    program = program_of(first)
    every = {task.key: task for tasks in (*group.free.values(), group.runs) for task in tasks}
    source = program.work.trace if isinstance(program.work, Workload) else program.work
    silent = unread(source, {task.spec.tiers for task in every.values()})
    machine = [u for u in intervals(program.profile, settings.estimated) if u.path not in silent]
    uncertain = [*machine, *map(_of_class, program.classes)]
    drawn = draws(program.profile, uncertain, settings.samples, settings.seed)
    samples = []
    for numbers in drawn:
        samples.append(_makespans(every.values(), *_elsewhere(program, numbers)))
    save(
        group.out,
        group.name,
        {
            "trace": first.spec.trace,
            "transform": first.spec.transform,
            "profile": first.spec.profile,
            **asdict(settings),
            "numbers": [
                {"path": u.path, "low": u.low, "value": u.value, "high": u.high, "assumed": u.assumed,
                 "draws": [numbers[u.path] for numbers in drawn]}
                for u in uncertain
            ],
            "runs": {task.key: _columns(task, group, samples) for task in group.runs},
            "pushed": [
                {"path": u.path, "side": side, "at": u.quantity.text(value, 3), "instead": u.quantity.text(digits=3),
                 "makespan_ns": found}
                for u in uncertain
                for side, value in (("low", u.low), ("high", u.high))
                if value != u.value and (found := _pushed(group, program, u, value))
            ],
        },
    )  # fmt: skip


def _programs(plan: GridPlan, settings: Uncertainty) -> dict[str, list[Task]]:
    """The runs of each program on each machine, by the name under which their samples are kept."""
    found: dict[tuple[str, str, str], list[Task]] = {}
    for task in plan.grid:
        found.setdefault((task.spec.trace, task.spec.transform, task.spec.profile), []).append(task)
    return {
        run_key({**asdict(settings), "runs": [[t.key, *plan.no_limit.get(t.key, ())] for t in tasks]}): tasks
        for tasks in found.values()
    }


def _groups(plan: GridPlan, settings: Uncertainty, results: Sequence[Result]) -> list[SampledGroup]:
    by_key = {task.key: task for task in plan.tasks}
    done = {result.key: result for result in results}
    places = _rivals(plan.grid, done)
    found = []
    for name, tasks in _programs(plan, settings).items():
        tasks = [task for task in tasks if task.key in done]
        keys = {task.key for task in tasks}
        found.append(
            SampledGroup(
                name,
                plan.out,
                settings,
                tuple(tasks),
                {key: tuple(by_key[k] for k in plan.no_limit.get(key, ())) for key in sorted(keys)},
                {key: done[key].metrics for key in sorted(keys)},
                tuple(place for place in places if keys & set(place)),
            )
        )
    return [group for group in found if group.runs]


def _rivals(grid: Iterable[Task], done: Mapping[str, Result]) -> list[dict[str, float]]:
    """The runs that compete: those that differ only in their policies, or where all have the same, in program and machine."""
    tasks = [task for task in grid if task.key in done]
    decide = (*KINDS, "unified")
    policies = {tuple(getattr(task.spec, kind) for kind in decide) for task in tasks}
    differ = set(decide) if len(policies) > 1 else {"trace", "transform", "profile"}
    places: dict[tuple[Any, ...], dict[str, float]] = {}
    alone = all(done[task.key].oracle for task in tasks)  # oracles compete only where there is nothing else
    for task in tasks:
        result = done[task.key]
        if result.finished and (alone or not result.oracle):
            held = tuple(value for name, value in vars(task.spec).items() if name not in differ)
            places.setdefault(held, {})[task.key] = float(result.metrics["makespan_ns"])
    return [place for place in places.values() if len(place) > 1]


def _elsewhere(program: RunProgram, numbers: Mapping[str, float]) -> tuple[Source, Profile]:
    """The program on its machine with other numbers."""
    profile = with_numbers(program.profile, {path: value for path, value in numbers.items() if not path.startswith(PREFIX)})
    return program.elsewhere(profile, {path: value for path, value in numbers.items() if path.startswith(PREFIX)}), profile


def _of_class(bar: ClassBar) -> Interval:
    """The factor of a class of kernels: one for all of them, since their errors go together."""
    one = Quantity(value=1.0, basis="estimated", source="the model of kernel times")
    return Interval(bar.path, round(bar.low, 3), 1.0, round(bar.high, 3), False, one)


def _makespans(tasks: Iterable[Task], work: Source, profile: Profile) -> Makespans:
    ended = {task.key: simulated(task, work, profile) for task in tasks}
    return {key: int(done.metrics["makespan_ns"]) if done.finished else None for key, done in ended.items()}


def _columns(task: Task, group: SampledGroup, samples: Sequence[Makespans]) -> dict[str, list[float | None]]:
    """The run's metrics over the samples; slowdown is measured on the same drawn machine."""
    columns: dict[str, list[float | None]] = {"makespan_ns": [sample[task.key] for sample in samples]}
    if group.free[task.key]:
        columns["slowdown"] = []
        for sample in samples:
            least = min((m for t in group.free[task.key] if (m := sample[t.key])), default=None)
            own = sample[task.key]
            columns["slowdown"].append(own / least if own is not None and least else None)
    return columns


def _pushed(group: SampledGroup, program: RunProgram, number: Interval, value: float) -> Makespans:
    """The makespans, with one number changed, of the runs that it may put into another order."""
    work, profile = _elsewhere(program, {number.path: value})
    here = {task.key: task for task in group.runs}
    far = {key: _reach(task, group, program, work, profile) for key, task in here.items()}
    wanted = set()
    for place in group.rivals:
        best = min(place.values())
        winners = [key for key, makespan in place.items() if same(makespan, best)]
        for key, makespan in place.items():
            if key not in winners and any(makespan - far.get(key, 0) < place[w] + far.get(w, 0) for w in winners):
                wanted |= {key, *winners} & here.keys()
    return _makespans((task for key, task in here.items() if key in wanted), work, profile)


def _reach(task: Task, group: SampledGroup, program: RunProgram, work: Source, profile: Profile) -> float:
    """ns by which the run can differ on this machine at most."""
    if not (isinstance(work, Workload) and isinstance(program.work, Workload)):
        return math.inf
    if task.spec.grain != LATER["grain"] or task.spec.unified != NONE:
        return math.inf
    trace = work.trace
    counts = TrafficCounts(trace.ops, int(np.isin(trace.activity, MOVES).sum()), trace.events)
    kernels = float(np.abs(work.duration - program.work.duration).sum())
    machines = (machine(trace, p, capacity_of(task, work), task.spec.tiers) for p in (program.profile, profile))
    return reach(group.metrics[task.key], counts, weighs_times(task.spec, users.of_task(task)), kernels, *machines)
