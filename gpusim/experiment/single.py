"""One run of values: a trace, a machine and policies, without files or a grid; its numbers are those of an experiment's run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.values import NONE
from gpusim.experiment import users
from gpusim.experiment.answerable import ALL, answerable
from gpusim.experiment.execute import RunProgram, result_of, shared
from gpusim.experiment.spec import AS_RECORDED, RunSpec
from gpusim.experiment.tasks import Task, under_oracle, without_limit
from gpusim.experiment.users import NOTHING, Given
from gpusim.machine.kernels.durations import load_own_times
from gpusim.machine.platforms import completed
from gpusim.machine.profile import Profile
from gpusim.programs import transforms
from gpusim.programs.managed.steps import ManagedProgram
from gpusim.results.references import against
from gpusim.results.result import Result
from gpusim.trace.answers import answers
from gpusim.trace.trace import Trace


def single(
    source: Trace | ManagedProgram, profile: Profile, spec: RunSpec, *, use: tuple[Path, ...] = (), given: Given = NOTHING,
    plan: Path | None = None, kernel_times: Path | None = None, bounds: bool = True,
) -> tuple[Result, Trace | ManagedProgram]:  # fmt: skip
    """Run the program as `spec` says, whose names of trace and profile are words for the result only; answers the program
    that ran, too: transformed.

    use, given  the user's own policies and transforms
    plan        the file that a plan policy reads
    kernel_times  the user's own measured times on this machine
    bounds      also run it without a memory limit and under oracle eviction, so that there is a slowdown

    Raises GpusimError for what the program or the machine cannot do.
    """
    managed = f"'{spec.trace}' is a managed program"
    if isinstance(source, ManagedProgram) and spec.unified == NONE:
        raise GpusimError(f"{managed}: it runs under unified memory only", hint='say unified="driver"')
    if isinstance(source, ManagedProgram) and spec.transform != AS_RECORDED:
        raise GpusimError(f"{managed}, which no transform can change")
    can = answers(source) if isinstance(source, Trace) else ALL
    task = Task(
        "", answerable(spec, can), Path(), Path(), use, Path(), spec.log, plan=plan, kernel_times=kernel_times, given=given
    )
    if isinstance(source, Trace) and spec.transform != AS_RECORDED:
        source = transforms.apply(source, spec.transform, users.of_task(task))
    measured = load_own_times(kernel_times, profile) if kernel_times else None
    program = RunProgram(source, completed(profile) if spec.unified != NONE else profile, measured, shared(spec))
    done = result_of(task, program)
    if not bounds or not can.times:
        return done, source
    free = [replace(task, spec=s, log=False, unlimited=True) for s in without_limit(task.spec, [spec.unified], [spec.place])]
    best = under_oracle(task.spec) if can.accesses else None
    references = {
        "bound_no_limit_ns": _makespans(free, program),
        "bound_oracle_ns": _makespans([] if best is None else [replace(task, spec=best, log=False)], program),
    }
    times = {f"{bound} {i}": time for bound, found in references.items() for i, time in enumerate(found)}
    keys = {bound: [f"{bound} {i}" for i in range(len(found))] for bound, found in references.items()}
    return against(done, keys, times.get), source


def _makespans(tasks: Iterable[Task], program: RunProgram) -> list[int]:
    """Of these references as far as they finish, ns."""
    ran = [result_of(task, program) for task in tasks]
    return [int(r.metrics["makespan_ns"]) for r in ran if r.finished and "makespan_ns" in r.metrics]
