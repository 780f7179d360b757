"""One run: from names and files to a result on disk.

What a run shares with others (the trace, its workload on a machine, the traffic bound) is kept for the next run of the
same process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpusim.base.defaults import LATER
from gpusim.base.yaml.find import is_of_ranks
from gpusim.base.yaml.values import NONE, Capacity, PolicySpec
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import settings
from gpusim.engine.run.simulate import simulate
from gpusim.experiment import machine_of, users
from gpusim.experiment.answerable import ALL, answered, read_ranks
from gpusim.experiment.bounds import Bounds, of_run
from gpusim.experiment.ranked import collectives_of, simulated_ranks
from gpusim.experiment.spec import AS_RECORDED, KINDS
from gpusim.experiment.tasks import Task, before_ranks, read, read_trace
from gpusim.experiment.tenants import on_one_gpu
from gpusim.machine import sharing
from gpusim.machine.kernels import bars
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import SCALED, durations, model_error, own_times_of, shares
from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.kernels.user_table import tables
from gpusim.machine.platforms import completed
from gpusim.machine.profile import Profile, changed
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs import transforms
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.programs.ranks.stragglers import paces
from gpusim.results.folder import save_result
from gpusim.results.metrics import avoidable
from gpusim.results.result import Result
from gpusim.trace.answers import answers
from gpusim.trace.grain import parse as parse_grain
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload, build

if TYPE_CHECKING:
    from gpusim.experiment.spec import RunSpec
    from gpusim.machine.collectives.times import CollectiveTimes
    from gpusim.machine.topology.topology import Topology
    from gpusim.programs.managed.steps import ManagedProgram

    Source = Workload | ManagedProgram  # what runs on a machine

# Memory of a run "without a limit", in footprints: more than an allocator wastes (Robson 1977: log2(n) / 2 times).
NO_LIMIT = 16


def execute(task: Task) -> None:
    """Simulate the run and keep its result in its folder.  Raises GpusimError."""
    save_result(task.out, task.key, result(task))


def result(task: Task) -> Result:
    """The result of the run, under the names that the experiment gives to its inputs."""
    return result_of_ranks(task) if task.spec.parallel != LATER["parallel"] else result_of(task, program_of(task))


def result_of(task: Task, program: RunProgram) -> Result:
    """The result of the run of this program, wherever that came from."""
    spec = task.spec
    alone = partial(simulated, several=program.several)
    done = beside_others(task, program) if task.beside else alone(task, program.work, program.profile, log=task.log)
    capacity = int(done.spec["capacity"])
    named = _named(spec, capacity, None if spec.host_memory == Capacity() else _host_memory(task, program.work))
    metrics = {**done.metrics, **program.basis}
    if program.error is not None:
        metrics["duration_error"] = program.error
    if program.recorded_ns and spec.transform == AS_RECORDED:
        metrics["recorded_ns"] = program.recorded_ns
    bounds = dict(done.bounds)
    if program.bounds is not None and spec.unified == NONE:
        bounds |= of_run(done, program.bounds, program.profile).at(capacity)
    if done.finished and spec.unified == NONE:
        metrics["avoidable_share"] = avoidable({**metrics, **bounds})
    can = answers(program.work.trace) if isinstance(program.work, Workload) else ALL
    return replace(
        done,
        spec={
            **named, **{k: v for k, v in done.spec.items() if k not in named},
            **({"kernel_times": str(task.kernel_times)} if program.measured is not None and task.kernel_times else {}),
            **({"unanswered": list(can.missing)} if can.missing else {}),
        },
        metrics=answered(metrics, can),
        bounds=answered(bounds, can),
        timeline=done.timeline if can.times else {k: v for k, v in done.timeline.items() if not k.endswith("_ns")},
    )  # fmt: skip


def result_of_ranks(task: Task) -> Result:
    """The result of a run of all ranks of its program."""
    own = users.of_task(task)
    of_ranks = is_of_ranks(task.trace)
    trace = read_ranks(task.trace) if of_ranks else read_trace(task.trace, before_ranks(task.spec, own), own)
    return ranks_of(task, trace, collectives_of(task.profile, task.spec.profile))


def ranks_of(task: Task, trace: Trace | RankPrograms, collectives: CollectiveTimes) -> Result:
    """The result of a run of all ranks of this program, wherever that and the machine came from.

    trace  after the transforms that come before ranks divide it
    """
    spec, own = task.spec, users.of_task(task)

    def memory(footprint: int) -> int | None:
        return _capacity(task, footprint)

    def host_memory(footprint: int) -> int | None:
        return None if spec.host_memory == Capacity() else spec.host_memory.resolve(footprint, 0)

    done = simulated_ranks(
        trace, collectives, spec.parallel, spec.placement, own, slower=paces(spec.stragglers, task.clocks), memory=memory,
        host_memory=host_memory, fold=spec.fold, after=transforms.around_ranks(spec.transform, own)[1], **chosen(task),
        log=task.log,
    )  # fmt: skip
    footprint = max(int(rank.spec["footprint"]) for rank in done.ranks)
    named = _named(spec, int(done.spec["capacity"]), host_memory(footprint))
    can = trace.answers if isinstance(trace, RankPrograms) else answers(trace)
    return replace(
        done,
        spec={
            **named, **{k: v for k, v in done.spec.items() if k not in named}, "footprint": footprint,
            **({"unanswered": list(can.missing)} if can.missing else {}),
        },
        metrics=answered(done.metrics, can),
    )  # fmt: skip


def _named(spec: RunSpec, capacity: int, host_memory: int | None) -> dict[str, Any]:
    """What a result is called by: the axes of the grid."""
    return {
        "trace": spec.trace,
        "transform": spec.transform,
        "profile": spec.profile,
        "memory": capacity,
        "memory_share": spec.memory.fraction,
        "host_memory": host_memory,
        **_policies(spec),
        **{name: word for name, word in spec.later.items() if name not in ("transform", "share", "active_thread_percentage")},
        "seed": spec.seed,
    }


def chosen(task: Task) -> dict[str, Any]:
    """The policies of a run and what else it is told, as `simulate` takes them."""
    spec, own = task.spec, users.of_task(task)
    return {
        **{kind: users.ready(own, kind, getattr(spec, kind)) for kind in KINDS if kind != "plan"},
        "plan": users.ready(own, "plan", _located(spec.plan, task.plan)), "grain": parse_grain(spec.grain), "tiers": spec.tiers,
        "share": spec.share, "active_thread_percentage": spec.active_thread_percentage, "seed": spec.seed,
    }  # fmt: skip


def _policies(spec: RunSpec) -> dict[str, str]:
    """The policies of the run; under unified memory only the allocator of a recorded program: the driver does the rest."""
    kinds = ("place",) if spec.unified != NONE else ("place", "evict", "prefetch", "defrag")
    return {kind: str(getattr(spec, kind)) for kind in kinds}


def simulated(
    task: Task, work: Source, profile: Profile, *, log: bool = False, several: Topology | None = None
) -> Result:
    """The bare run: its program on this machine, which may be another one than its own.

    several  the machine of which the profile is a GPU
    """
    spec = task.spec
    profile = on_host(task, work, profile)
    if spec.unified != NONE:
        return simulate_unified(
            work, profile, settings=settings(spec.unified, users.of_task(task)), capacity_bytes=capacity_of(task, work),
            place=users.ready(users.of_task(task), "place", spec.place), share=spec.share,
            active_thread_percentage=spec.active_thread_percentage, seed=spec.seed, log=log, machine=several,
        )  # fmt: skip
    assert isinstance(work, Workload), "a managed program runs under unified memory"
    return simulate(work.trace, profile, **chosen(task), capacity_bytes=capacity_of(task, work), log=log, work=work)


def neighbours(task: Task, program: RunProgram) -> list[RunProgram]:
    """The programs that have the GPU beside it."""
    return [RunProgram(read(file), program.profile, program.measured, program.share) for file in task.beside]


def beside_others(task: Task, program: RunProgram) -> Result:
    """The run of the program on its GPU together with others, which have the policies of the run too."""
    works = [program, *neighbours(task, program)]
    held = [footprint(one.work) for one in works]
    of_all = task.spec.unified != NONE  # one memory, whose pages are of all of them
    limited = task.spec.memory != Capacity() or task.unlimited
    memory = _capacity(task, sum(held) if of_all else held[0]) if limited else None
    gpu = on_host(task, program.work, program.profile)
    own = users.of_task(task)
    return on_one_gpu(task.spec, gpu, [_on(work) for work in works], memory, own, **chosen(task), log=task.log)


def _on(program: RunProgram) -> Callable[[Profile], Source]:
    return lambda machine: program.elsewhere(machine)


def _located(plan: PolicySpec, file: Path | None) -> PolicySpec:
    """The plan policy with its file, wherever the experiment runs."""
    return plan if file is None else replace(plan, params=tuple((k, str(file) if k == "path" else v) for k, v in plan.params))


def program_of(task: Task) -> RunProgram:
    """The run's program on its machine, kept for the runs that need it next."""
    spec = task.spec
    files = ProgramFiles(task.trace, task.profile, task.kernel_times)
    own = SHIPPED if spec.transform == AS_RECORDED else users.of_task(task)
    stamps = tuple(_stamp(path) for path in files if path)
    return _program(files, stamps, spec.transform, spec.profile, spec.unified != NONE, shared(spec), own)


def shared(spec: RunSpec) -> tuple[str, ...]:
    """What the run's operators share."""
    return sharing.parse(spec.share)


class ProgramFiles(NamedTuple):
    """What a program on its machine is read from."""

    trace: Path
    profile: Path
    kernel_times: Path | None


class RunProgram:
    """A trace, or a managed program, on a machine; `measured`: the user's own times of its kernels there.

    share: what its replays share (`machine.sharing`), which recorded durations are freed of
    several: the machine of which the profile is a GPU, where that has several
    """

    work: Source
    bounds: Bounds | None = None
    error: float | None = None
    recorded_ns: int = 0

    def __init__(
        self, source: Trace | ManagedProgram, profile: Profile, measured: OwnTimes | None = None, share: tuple[str, ...] = (),
        several: Topology | None = None,
    ) -> None:  # fmt: skip
        self.profile, self.measured, self.share, self.several = profile, measured, share, several
        self.basis: dict[str, float] = {}
        self.classes: list[bars.ClassBar] = []
        if isinstance(source, Trace):
            self._of_trace(source)
        else:
            self.work = source

    def _of_trace(self, trace: Trace) -> None:
        profile = self.profile
        times = durations(alone(trace, self.share), profile, own=self.measured)
        self.work = work = build(trace, times.ns)
        # How sure the kernel times are; a trace without kernels has none.
        self.basis = {f"kernel_{n}_share": v for n, v in shares(times).items()} if trace.ops else {}
        self.classes = bars.uncertain(bars.bars(times))
        found = None if (times.basis == SCALED).any() else model_error(trace, profile)
        self.error = None if found is None else float(found["median"])  # of modelled kernel times, against the trace's own
        self.recorded_ns = int(trace.time.max(initial=0)) if (trace.duration > 0).any() else 0
        self.bounds = Bounds(work)

    def elsewhere(self, profile: Profile, factors: Mapping[str, float] | None = None) -> Source:
        """The same on another machine, or on one with other numbers; `factors` of classes of kernels by path."""
        if not isinstance(self.work, Workload):
            return self.work
        trace = self.work.trace
        duration = bars.scaled(durations(alone(trace, self.share), profile, own=self.measured), factors or {})
        return self.work if np.array_equal(duration, self.work.duration) else build(trace, duration)


def footprint(work: Source) -> int:
    """Bytes of device memory of which an experiment's shares are: what holds all that is alive at once."""
    return work.live_peak if isinstance(work, Workload) else work.footprint


def capacity_of(task: Task, work: Source) -> int | None:
    """Bytes of device memory, None for what the device has."""
    return _capacity(task, footprint(work))


def _capacity(task: Task, held: int) -> int | None:
    """The same for a program that holds so many bytes."""
    if task.unlimited:
        return NO_LIMIT * max(held, 2**27)
    return None if task.spec.memory == Capacity() else task.spec.memory.resolve(held, 0)


def on_host(task: Task, work: Source, profile: Profile) -> Profile:
    """The machine with as much host memory as the run is given."""
    return profile if task.spec.host_memory == Capacity() else changed(profile, "host.capacity", _host_memory(task, work))


def _host_memory(task: Task, work: Source) -> int:
    return task.spec.host_memory.resolve(footprint(work), 0)


def _stamp(file: Path) -> int:
    return file.stat().st_mtime_ns


def _measured(table: Path | None, profile: Profile) -> OwnTimes | None:
    """The user's own times of this machine; None where the table has none."""
    return own_times_of(table, [profile]).get(profile.name) if table and profile.name in tables(table) else None


@lru_cache(maxsize=2)
def _program(
    files: ProgramFiles, stamps: tuple[int, ...], transform: str, machine: str, unified: bool, share: tuple[str, ...],
    own: Registry,
) -> RunProgram:
    """`stamps`, those of the files, are only for the cache: a changed file is read again."""
    found = machine_of.gpu(files.profile, machine)
    if unified:
        found = completed(found)
    several = machine_of.whole(files.profile, machine)
    return RunProgram(read(files.trace, transform, own), found, _measured(files.kernel_times, found), share, several)
