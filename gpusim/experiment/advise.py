"""A search for hints over one run of an experiment under unified memory: its candidates run side by side."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusim.base.errors import ResultError
from gpusim.base.files import read_json, write_json
from gpusim.engine.pages import advisor
from gpusim.experiment.execute import beside_others, program_of, simulated
from gpusim.experiment.pool import cores, run_tasks
from gpusim.experiment.tasks import Task
from gpusim.results.result import Result

SHORT = 0.5   # seconds that a run may take for its search not to be asked for
APART = 4.0   # seconds of work from which worker processes are worth their start


@dataclass(frozen=True)
class HintTrial:
    """A run that says something more to the driver, and where its makespan goes."""

    task: Task
    said: str
    out: Path


def seconds(result: Result) -> float:
    """About how long one simulation of this run takes: by its work, so that every machine decides alike."""
    m = result.metrics
    work = result.faults.counts["touches"] / 1.5e7 if result.faults is not None else 0.0
    return work + (m.get("gpu_faults", 0) + m.get("cpu_faults", 0)) / 1e6 + m.get("kernels", 0) * 1e-4


def search(
    task: Task, result: Result, most: int = advisor.MOST, progress: Callable[[int], object] = lambda count: None
) -> advisor.Advised:
    """Hints that make this run faster; `progress` hears of each run that ends.  Raises ResultError without a fault report."""
    if result.faults is None or not result.finished:
        raise ResultError("this run has no fault report to begin with", task.key, "advice is for runs under unified memory")
    names = advisor.candidates(result.faults)
    jobs = cores() if seconds(result) * most > APART else 1
    with tempfile.TemporaryDirectory() as folder:

        def simulate(said: Sequence[str]) -> list[float]:
            tasks = [HintTrial(task, words, Path(folder) / f"{i}.json") for i, words in enumerate(said)]
            for index, failure in run_tasks(tasks, carry_out, jobs):
                if failure is not None:
                    raise ResultError(f"'{said[index]}' was not simulated: {failure.message}", task.key)
                progress(1)
            return [float(read_json(t.out)["makespan_ns"] or math.inf) for t in tasks]

        beside = str(dict(task.spec.unified.params).get("advice", ""))
        return advisor.search(names, simulate, float(result.metrics["makespan_ns"]), most, "" if beside == "none" else beside)


def carry_out(candidate: HintTrial) -> None:
    """Simulate a candidate and leave its makespan; none of a program that fails."""
    task = candidate.task
    spec = task.spec.unified
    params = tuple((name, value) for name, value in spec.params if name != "advice")
    changed = replace(task.spec, unified=replace(spec, params=(*params, ("advice", candidate.said))))
    task = replace(task, spec=changed)
    program = program_of(task)
    done = beside_others(task, program) if task.beside else simulated(
        task, program.work, program.profile, several=program.several
    )
    write_json(candidate.out, {"makespan_ns": done.metrics["makespan_ns"] if done.finished else None})
