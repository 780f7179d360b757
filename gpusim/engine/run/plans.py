"""A plan policy at work before the run: what it sees, the program that it makes of the trace, and its schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.machine.constants import Machine
from gpusim.machine.kernels.durations import durations
from gpusim.machine.profile import Profile
from gpusim.policies.forms import PlanPolicy
from gpusim.policies.planning import NOTHING, PlanTier, Schedule, View
from gpusim.trace.grain import TENSOR, Chunks, chunked
from gpusim.trace.trace import MOVES, Trace
from gpusim.trace.workload import Workload, build

# Tiers that kernels can read and write themselves.
ADDRESSABLE = ("host", "peer", "cxl")


@dataclass(frozen=True)
class Planned:
    """What runs: the program, and what moves when.  `program` is None while it is the trace itself; `chunks` while whole
    tensors move."""

    policy: PlanPolicy
    work: Workload
    schedule: Schedule
    program: Trace | None = None
    chunks: Chunks | None = None


def planned(
    policy: PlanPolicy, work: Workload, m: Machine, profile: Profile, trial: Callable[[Planned], float] | None = None
) -> Planned:
    """Ask the policy: first for the program, then for the schedule of what it has made of it.

    trial    ns that this run takes when it is planned so; the policy may ask for it (`View.measure`)
    """

    def seen(here: Workload) -> View:
        def measure(schedule: Schedule, program: Trace | None = None) -> float:
            assert trial is not None
            ran = here if program is None else timed(program, profile)
            return trial(Planned(policy, ran, schedule, None if ran is work else ran.trace))

        return replace(view(here, m), measure=measure if trial else None)

    program = rewritten(policy, work, seen, profile)
    schedule = NOTHING if policy.plan is None else policy.schedule(seen(program))
    near = m.tiers[0]
    if len(schedule.remote) and (near.kind not in ADDRESSABLE or near.waits):
        kind = f"{near.kind} memory that is not pinned" if near.waits else near.kind
        raise policy.error(f"leaves tensors in {kind}, which kernels cannot read in place")
    return Planned(policy, program, schedule, None if program is work else program.trace)


def at_grain(planned: Planned, size: int, m: Machine) -> Planned:
    """The same program with tensors in chunks of `size` bytes; what was planned for a tensor holds for all of its chunks."""
    if size == TENSOR:
        return planned
    if size > m.capacity:
        raise GpusimError(f"a chunk of {show_bytes(size)} is larger than the {show_bytes(m.capacity)} of memory")
    chunks, schedule = chunked(planned.work, size), planned.schedule
    row, unit = chunks.of(schedule.actions["unit"])
    actions = schedule.actions[row]
    actions["unit"] = unit
    schedule = replace(schedule, actions=actions, remote=chunks.of(schedule.remote)[1])
    return replace(planned, work=chunks.work, schedule=schedule, chunks=chunks)


def view(work: Workload, m: Machine) -> View:
    """The program and the machine, as a plan sees them."""
    below = m.without(int(work.trace.meta.get("host_bytes", 0))).tiers
    tiers = [PlanTier(t.name, t.capacity, t.read, t.write, t.read_latency, t.write_latency) for t in below]
    return View(work, m.capacity, tuple(tiers) if any(t.capacity for t in tiers) else ())


def rewritten(policy: PlanPolicy, work: Workload, seen: Callable[[Workload], View], profile: Profile) -> Workload:
    """The program as the policy would run it, ready to simulate; the same one when it rewrites nothing.

    The policy sees all times in the trace, as if they had been recorded: what it copies keeps its time, and what it adds
    without one gets the model's.  Bytes over links take what the engine finds, as ever.
    """
    if policy.rewrite is None:
        return work
    trace = work.trace
    recorded = replace(trace, duration=np.where(np.isin(trace.activity, MOVES), trace.duration, work.duration))
    made = policy.program(seen(replace(work, trace=recorded)))
    return work if made is recorded else timed(made, profile)


def timed(program: Trace, profile: Profile) -> Workload:
    """A program that a policy has made, bound to its times."""
    return build(program, durations(program, profile).ns)
