"""A run beside other programs on one GPU: what each of them loses, and which memory is unusable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.base.yaml.values import NONE, policy
from gpusim.engine.pages.processes import ManagedProcess, simulate_processes
from gpusim.engine.pages.settings import settings
from gpusim.engine.run.claims import claim_of
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.tenants import I64, Program, Together, capacities, limited, progress, simulate_tenants, with_fault
from gpusim.experiment.spec import RunSpec
from gpusim.machine import mig
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import EXCLUSIVE, MIG, SharingWay, Switch, Tenancy, switch_of, way
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs.managed.steps import ManagedProgram
from gpusim.results.result import Result
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import OP, Trace
from gpusim.trace.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable


def on_one_gpu(
    spec: RunSpec, gpu: Profile, works: Sequence[Callable[[Profile], Workload | ManagedProgram]], capacity: int | None,
    own: Registry = SHIPPED, **choices: Any,
) -> Result:  # fmt: skip
    """The result of the first program beside the others, as `spec.tenancy` says they share the GPU.

    works     of each program, the first that of the run: its kernels' times on a machine
    capacity  bytes of the first, of managed memory of all together; None: its part
    own       where a policy of kind tenants is
    choices   policies and so on, the same for all, as `simulate_tenants` takes them

    Raises GpusimError, ProfileError for what the GPU does not offer.
    """
    shared = way(policy(spec.tenancy))
    terms, beside = shared.terms(len(works) - 1), len(works) - 1
    if shared.name == MIG:
        mig.arrange(gpu.name, [each.mig for each in terms])
    machines = [mig.instance(gpu, each.mig) if each.mig else gpu for each in terms]
    run = _Runs(spec, own, choices)
    room = run.rooms(shared, gpu, machines, capacity)
    programs = [
        ManagedProcess(work(machine), machine, bytes_, each.cap)
        for work, machine, bytes_, each in zip(works, machines, room, terms, strict=True)
    ]
    if run.managed:
        run.choices["others"] = [one.source for one in programs]  # whatever runs alone, too
    exclusive = [ManagedProcess(work(gpu), gpu, run.alone(gpu, capacity)) for work in works]
    alone = [run([one], None, log=False) for one in exclusive]
    if shared.fault:
        return _with_fault([_plain(one) for one in programs], shared, switch_of(gpu), alone, **run.choices)
    if shared.name == EXCLUSIVE:
        each = [run([one], None) for one in programs]
        together = Together(tuple(one.results[0] for one in each), tuple(one.began[0] for one in each))
    else:
        turns = run.turns(shared, room, programs, alone) if shared.memory is not None else None
        together = run(programs, shared.tenancy(beside, switch_of(gpu)), turns)
    lone = run(programs[:1], shared.tenancy(0, switch_of(gpu)), log=False)
    done, first = together.results[0], programs[0].source
    if not all(one.results[0].finished for one in (*alone, lone)) or not all(one.finished for one in together.results):
        return _failed(done, together)
    rates = progress(together, [(one.began[0], int(one.results[0].metrics["makespan_ns"])) for one in alone], run.managed)
    logs = choices.get("log") and not run.managed  # of pages the first has the log of all
    kept = tuple(_kept(one, _plain(of).work.trace) for one, of in zip(together.results, programs, strict=True)) if logs else ()
    return replace(done, ranks=kept, metrics={
        **done.metrics, **_metrics(rates, done, lone.results[0], together, len(works) if shared.name == EXCLUSIVE else 1),
        **(_steps(first.trace, together.began[0], int(done.metrics["makespan_ns"])) if isinstance(first, Workload) else {}),
        "unusable_bytes": _unusable(gpu, shared, machines),
    })  # fmt: skip


class _Runs:
    """How the programs of a run are simulated: with memory of their own, or with pages that the driver moves."""

    def __init__(self, spec: RunSpec, own: Registry, choices: Mapping[str, Any]) -> None:
        self.own, self.managed = own, spec.unified != NONE
        self.choices = {name: value for name, value in choices.items() if name != "active_thread_percentage"}
        if self.managed:
            self.choices = {name: choices[name] for name in ("place", "share", "seed", "log") if name in choices}
            self.choices["settings"] = settings(spec.unified, own)

    def __call__(
        self, programs: Sequence[ManagedProcess], tenancy: Tenancy | None, turns: MemoryTurns | None = None, *, log: bool = True
    ) -> Together:
        choices = self.choices if log else {**self.choices, "log": False}
        if self.managed:
            return simulate_processes(programs, tenancy, turns, **choices)
        return simulate_tenants([_plain(one) for one in programs], tenancy, turns, **choices)

    def alone(self, gpu: Profile, capacity: int | None) -> int:
        """Bytes of a program that has the GPU for itself."""
        most = capacities(gpu, 1)[0]
        return most if capacity is None or not self.managed else capacity

    def rooms(self, shared: SharingWay, gpu: Profile, machines: Sequence[Profile], capacity: int | None) -> list[int]:
        """Bytes that each program may have: of its own device, an equal part, or all that the contexts leave."""
        if self.managed:
            apart = shared.name in (EXCLUSIVE, MIG)
            room = [capacities(one, 1)[0] if apart else sum(capacities(gpu, len(machines))) for one in machines]
            if capacity is None:
                return room
            return [min(bytes_, capacity // len(room)) for bytes_ in room] if shared.name == MIG else [capacity] * len(room)
        room = _rooms(shared, gpu, machines)
        return room if capacity is None else [capacity, *room[1:]]

    def turns(
        self, shared: SharingWay, room: Sequence[int], programs: Sequence[ManagedProcess], alone: Sequence[Together]
    ) -> MemoryTurns:  # fmt: skip
        """Each program claims the most that its allocator holds when it is alone; of managed memory the driver moves the pages.

        Raises GpusimError where that does not fit.
        """
        chosen = self.own.get("tenants", shared.memory)
        if self.managed:
            return MemoryTurns(chosen, room[-1], [0] * len(programs))
        held = [int(one.results[0].metrics["reserved_peak_bytes"]) for one in alone]
        claims = [claim_of(_plain(one).work, min(most, peak)) for one, most, peak in zip(programs, room, held, strict=True)]
        return MemoryTurns(chosen, room[-1], claims)


def _plain(one: ManagedProcess) -> Program:
    """The same without managed memory."""
    assert isinstance(one.source, Workload), "refused before"
    return Program(one.source, one.profile, one.capacity, one.percentage)


def _kept(result: Result, trace: Trace) -> Result:
    """The result of one of the programs, with what ran: its log says nothing without it."""
    return replace(result, spec={**result.spec, "gpu": trace.name, "program_hash": trace.content_hash}, program=trace)


def _with_fault(
    programs: Sequence[Program], shared: SharingWay, switch: Switch, alone: Sequence[Together], **choices: Any
) -> Result:  # fmt: skip
    """The first program where the second has a fatal fault."""
    left, lost = with_fault(programs, shared.tenancy(len(programs) - 1, switch), shared.fault, **choices)
    done, usual = left.results[0], alone[0].results[0]
    if not (done.finished and usual.finished):
        return _failed(done, left)
    makespan = done.metrics["makespan_ns"]
    seats = [int(one.spec.get("seat", p)) for p, one in enumerate(left.ran)]
    kept = tuple(_kept(one, programs[p].work.trace) for p, one in zip(seats, left.ran, strict=True))
    return replace(done, ranks=kept if choices.get("log") else (), metrics={
        **done.metrics, "sharing_slowdown": makespan / usual.metrics["makespan_ns"], "lost_to_fault_ns": lost,
        "all_ended_ns": max(int(one.metrics["makespan_ns"]) for one in left.results),
        **_steps(programs[0].work.trace, left.began[0], int(makespan)),
    })  # fmt: skip


def _rooms(shared: SharingWay, gpu: Profile, machines: Sequence[Profile]) -> list[int]:
    """Bytes that each program may have: of its own device, an equal part, or all that the contexts leave."""
    if shared.memory is not None:
        return [sum(capacities(gpu, len(machines)))] * len(machines)
    if shared.name in (EXCLUSIVE, MIG):
        return [capacities(machine, 1)[0] for machine in machines]
    limits = [terms.memory for terms in shared.terms(len(machines) - 1)]
    return limited(gpu, limits) if any(limits) else capacities(gpu, len(machines))


def _failed(done: Result, together: Together) -> Result:
    """One of the programs ran out of memory: the run fails as that did."""
    other = next((one for one in together.results if not one.finished), None)
    return done if other is None or not done.finished else replace(done, outcome=other.outcome, failure=other.failure)


def _metrics(rates: Sequence[float], done: Result, lone: Result, together: Together, gpus: int) -> dict[str, int | float]:
    counted = {"switches": together.switches, "switch_ns": together.switch_ns} if together.switches else {}
    if together.moves:
        counted |= {"programs_swapped": together.moves, "programs_swapped_bytes": together.copied}
    swapped = sum(int(one.metrics[way]) for one in together.results[1:] for way in ("h2d_bytes", "d2h_bytes"))
    counted |= {"others_swapped_bytes": swapped} if swapped else {}
    others = {"others_slowdown": fmean(1 / rate for rate in rates[1:])} if rates[1:] and min(rates[1:]) > 0 else {}
    return {
        "sharing_slowdown": 1 / rates[0], **others,
        "neighbour_cost": done.metrics["makespan_ns"] / lone.metrics["makespan_ns"],
        "fairness": sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)),
        "work_per_gpu": sum(rates) / gpus, **counted,
        "all_ended_ns": max(int(one.metrics["makespan_ns"]) for one in together.results),
    }  # fmt: skip


def _steps(trace: Trace, began: I64, end: int) -> dict[str, int]:
    """Percentiles of the time from one step of the program to the next, such as a token; nothing where it has one step."""
    of = iterations(trace)[trace.kind == OP]
    if of.max(initial=0) < 2:
        return {}
    first = np.array([began[: len(of)][of == i].min() for i in range(int(of.max()) + 1) if (of == i).any()])
    taken = np.diff(np.append(first, end))[1:]  # what comes before the first step, a prefill, is apart
    return {f"step_p{p}_ns": int(np.percentile(taken, p, method="inverted_cdf")) for p in (50, 99)}


def _unusable(gpu: Profile, shared: SharingWay, machines: Sequence[Profile]) -> int:
    """Bytes of the GPU that no tensor can have: contexts, and under MIG what no slice has."""
    contexts = len(machines) * float(gpu.context.value)
    if shared.name == MIG:
        return int(gpu.memory.capacity.value - sum(machine.memory.capacity.value for machine in machines) + contexts)
    return int(gpu.context.value if shared.name == EXCLUSIVE else contexts)
