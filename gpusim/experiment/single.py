"""One run of values: a trace, a machine and policies, without files or a grid; its numbers are those of an experiment's run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.values import NONE
from gpusim.experiment import users
from gpusim.experiment.answerable import ALL, answerable
from gpusim.experiment.execute import RunProgram, ranks_of, result_of, shared
from gpusim.experiment.spec import AS_RECORDED, RunSpec
from gpusim.experiment.tasks import Task, before_ranks, under_oracle, without_limit
from gpusim.experiment.users import NOTHING, Given
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.kernels.durations import load_own_times
from gpusim.machine.platforms import completed
from gpusim.machine.profile import Profile
from gpusim.machine.topology.topology import Topology
from gpusim.programs import transforms
from gpusim.programs.managed.steps import ManagedProgram
from gpusim.programs.ranks.layout import AS_RECORDED as AS_RANKED
from gpusim.programs.ranks.layout import NO_LAYOUT
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.programs.ranks.stragglers import is_clock_file
from gpusim.results.references import against
from gpusim.results.result import Result
from gpusim.trace.answers import answers
from gpusim.trace.trace import Trace


def single(
    source: Trace | ManagedProgram | RankPrograms, machine: Profile | Topology, spec: RunSpec, *, use: tuple[Path, ...] = (),
    given: Given = NOTHING, plan: Path | None = None, kernel_times: Path | None = None, bounds: bool = True,
) -> tuple[Result, Trace | ManagedProgram | RankPrograms]:  # fmt: skip
    """Run the program as `spec` says, whose names of trace and profile are words for the result only; answers the program
    that ran, too: transformed.

    machine     of one GPU, or of several, over which spec.parallel divides the program
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
    if isinstance(source, RankPrograms):
        spec = _as_ranked(source, machine, spec)
    can = answers(source) if isinstance(source, Trace) else source.answers if isinstance(source, RankPrograms) else ALL
    task = Task(
        "", answerable(spec, can), Path(), Path(), use, Path(), spec.log, plan=plan, kernel_times=kernel_times, given=given,
        clocks=Path(spec.stragglers) if is_clock_file(spec.stragglers) else None,
    )
    if isinstance(source, Trace) and spec.transform != AS_RECORDED:
        own = users.of_task(task)
        source = transforms.apply(source, before_ranks(spec, own), own)
    run = _runner(source, machine, spec, kernel_times)
    done = run(task)
    if not bounds or not can.times:
        return done, source
    free = [replace(task, spec=s, log=False, unlimited=True) for s in without_limit(task.spec, [spec.unified], [spec.place])]
    best = under_oracle(task.spec) if can.accesses else None
    references = {
        "bound_no_limit_ns": _makespans(free, run),
        "bound_oracle_ns": _makespans([] if best is None else [replace(task, spec=best, log=False)], run),
    }
    times = {f"{bound} {i}": time for bound, found in references.items() for i, time in enumerate(found)}
    keys = {bound: [f"{bound} {i}" for i in range(len(found))] for bound, found in references.items()}
    return against(done, keys, times.get), source


def _as_ranked(source: RankPrograms, machine: Profile | Topology, spec: RunSpec) -> RunSpec:
    """The run of programs of many ranks.  Raises GpusimError for what they cannot be combined with."""
    recorded = f"'{spec.trace}' was recorded on {len(source.programs)} ranks"
    if isinstance(machine, Profile):
        raise GpusimError(f"{recorded}, and {spec.profile} is one GPU", hint='name a machine of several: on="hgx-h100"')
    for axis, plain in (("parallel", NO_LAYOUT), ("transform", AS_RECORDED)):
        if getattr(spec, axis) != plain:
            raise GpusimError(f"{recorded}: {axis} changes the program of one GPU", hint=f"leave out {axis}")
    return replace(spec, parallel=AS_RANKED)


def _runner(
    source: Trace | ManagedProgram | RankPrograms, machine: Profile | Topology, spec: RunSpec, kernel_times: Path | None
) -> Callable[[Task], Result]:
    """What carries out a run of this program on this machine.  Raises GpusimError where one of them is not of several GPUs."""
    if isinstance(machine, Profile):
        assert not isinstance(source, RankPrograms), "refused before"
        if spec.parallel != NO_LAYOUT:
            alone = f"{spec.profile} is one GPU, which cannot be shared by ranks"
            raise GpusimError(alone, hint='name a machine: on="hgx-h100"')
        measured = load_own_times(kernel_times, machine) if kernel_times else None
        program = RunProgram(source, completed(machine) if spec.unified != NONE else machine, measured, shared(spec))
        return lambda task: result_of(task, program)
    if isinstance(source, ManagedProgram):
        on = completed(machine.profile(next(iter(machine.gpus))))
        of_several = RunProgram(source, on, several=machine)
        return lambda task: result_of(task, of_several)
    if spec.parallel == NO_LAYOUT:
        many = f"{spec.profile} has {len(machine.gpus)} GPUs: say how the program is divided over them"
        raise GpusimError(many, hint='write parallel="data=8", or name the profile of one GPU')
    if spec.unified != NONE or spec.plan != NONE:
        raise GpusimError("unified memory and plans are simulated on one GPU, not for ranks")
    collectives = CollectiveTimes(machine)
    return lambda task: ranks_of(task, source, collectives)


def _makespans(tasks: Iterable[Task], run: Callable[[Task], Result]) -> list[int]:
    """Of these references as far as they finish, ns."""
    ran = [run(task) for task in tasks]
    return [int(r.metrics["makespan_ns"]) for r in ran if r.finished and "makespan_ns" in r.metrics]
