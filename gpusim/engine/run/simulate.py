"""The control plane: a SimPy process that owns the island and acts on the reasons for which it stops.

    SimPy process ──run_until(next SimPy event)──▶ island
         ▲  finished, out of memory, time reached, ask, log full, next chunk ◀──┘

What is rare and concurrent is a SimPy process beside it: samplers, controllers, arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import simpy

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.base.tables import filled
from gpusim.engine import state
from gpusim.engine.memory.release import BAD_AMOUNT
from gpusim.engine.run import outcome, plans, side_by_side, standstill, tables
from gpusim.engine.run.ask import Asking
from gpusim.engine.run.side_by_side import SideBySide
from gpusim.engine.state import Processes
from gpusim.machine import sharing
from gpusim.machine.constants import Machine, machine
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import durations as modelled
from gpusim.machine.kernels.needs import kernel_needs
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import DEFAULT, Tier
from gpusim.policies import registry, units
from gpusim.policies.ask import own_line
from gpusim.policies.place.parts.guard import Misplaced
from gpusim.policies.planning import NOTHING, Schedule
from gpusim.results import log
from gpusim.results.log import LOG
from gpusim.results.result import Result
from gpusim.trace import workload
from gpusim.trace.grain import TENSOR
from gpusim.trace.trace import Trace


class ManagedMemory(Protocol):
    """Managed memory of a run, as `engine.pages` has it."""

    steps: bool
    """What the host does between kernels is done in Python: the run stops at the end of each chunk."""

    def next_chunk(self) -> bool:
        """The host has come to such a step; True when the run goes on behind it."""
        ...

    def left(self) -> None:
        """The run has stopped for good."""
        ...

    def seen(self) -> bool:
        """Operators have ended that are to be seen, or memory is full; True when the run goes on."""
        ...


Control = Callable[[simpy.Environment, "Simulation"], Generator[Any, Any, Any]]


class Simulation:
    """One run in progress: the island, its program and its policies, and what has been collected from it."""

    def __init__(
        self, work: workload.Workload, machine: Machine, *, place: Any, evict: Any, prefetch: Any, defrag: Any, seed: int,
        record: bool, schedule: Schedule = NOTHING, release: Any = None, pool: Any = None,
        shared: tables.Shared = tables.ALONE,
    ) -> None:
        self.own = int(work.trace.meta.get("host_bytes", 0))  # what the program itself keeps in host memory
        self.work, self.machine, self.shared = work, machine.without(self.own), shared
        self.place, self.evict, self.prefetch, self.defrag, self.release = place, evict, prefetch, defrag, release
        self.pool = pool
        chosen = tables.Chosen(place, evict, prefetch, defrag, release, pool)
        try:
            built = tables.build(work, self.machine, chosen, seed, record, schedule, shared)
        except GpusimError:
            raise
        except Exception as error:  # a user's `state`
            raise self.theirs(error) from error
        self.island, self.program, self.policies, self.links = built
        self.asking = Asking(self, seed) if evict.form == "ask" else None
        self.reason = state.REACHED
        if self.own > machine.host_capacity and any(tier.kind == "host" for tier in machine.tiers):
            self.reason = state.HOST_OUT_OF_MEMORY
            self.island.tenants["request_bytes"], self.island.tenants["full"] = self.own, 1
        self.paging: ManagedMemory | None = None
        self._log: list[Any] = []
        self._done = 0  # events in chunks before the current one

    @property
    def now(self) -> int:
        """Simulated time, ns."""
        return int(self.island.clock[0]["now"])

    def memory(self) -> dict[str, int]:
        """Bytes held, allocated, requested on the device and used in the tiers below now."""
        header = self.policies.place
        return {
            "reserved": int(header[0]),
            "allocated": int(header[1]),
            "requested": int(self.island.counts[0]["requested"]),
            "host": int(self.island.tenants[0]["below"]),
        }

    def own_durations(self) -> None:
        """Its kernels' durations and needs are its own from now on, which other runs of the workload do not share."""
        program = self.program
        self.program = program._replace(duration=program.duration.copy(), need=program.need.copy())

    def advance(self, until: int) -> int:
        """Run the program up to `until` ns, serving what it asks for; returns why it stopped (engine.state)."""
        while self.reason != state.HOST_OUT_OF_MEMORY:
            self.reason, _ = side_by_side.step([self], self.alone, until)
            if not self.served():
                break
        return self.reason

    @cached_property
    def alone(self) -> Processes:
        """This program and no other."""
        processes = filled(Processes, {})
        self.enter(processes.rows[0])
        return processes

    def enter(self, row: Any) -> None:
        """The row of a process names the tables of this run from now on."""
        self._row, self._placed = row, side_by_side.enter(row, self.island, self.program, self.policies)

    def served(self) -> bool:
        """Do that for which the island has stopped; True when it can go on."""
        if self.reason == state.BAD_ANSWER:
            self._blame()
        if self.reason == state.LOG_FULL:
            self._drain()
        elif self.reason == state.ASK and self.asking is not None:
            if self.asking.answer():
                return True
            t = self.island.tenants[0]
            if not t["leaving"]:
                self.reason = state.OUT_OF_MEMORY
                return False
            t["leaving"] = 0  # what cannot leave stays
        elif self.reason == state.PAGED and self.paging is not None:
            return self.paging.seen()
        elif self.reason == state.NEXT_CHUNK and self.paging is not None and self.paging.steps:
            return self.paging.next_chunk()
        elif self.reason == state.NEXT_CHUNK:
            self._done += tables.CHUNK
            self.program = self.program._replace(instructions=tables.chunk(self.work, self._done))
            tables.restart(self.island, self.program, len(self.work.trace.kind), self._done)
            self.enter(self._row)
        else:
            return False
        return True

    def _blame(self) -> None:
        """Raise what is to be said of the policy whose answer the island cannot use."""
        t = self.island.tenants[0]
        unit, allocated = int(t["request"]), self.memory()["allocated"]
        if unit == BAD_AMOUNT:
            raise self.release.error(f"wants {t['request_bytes']} bytes to leave, of {allocated} that are allocated")
        guilty = self.prefetch if self.island.hosts[0]["prefetching"] else self.evict
        raise guilty.error(f"named {unit}, which is not a tensor that it may name")

    def theirs(self, error: Exception) -> Exception:
        """The error as that of the user's policy whose code raised it; itself when all policies are built in."""
        users = [p for p in (self.place, self.evict, self.prefetch, self.release, self.pool) if p and not p.entry.builtin]
        guilty = [p for p in users if own_line(p.entry, error) != p.entry.where] or users
        if not guilty:
            return error

        if isinstance(error, Misplaced):
            return PolicyError(f"policy '{self.place.name}' {error}", self.place.entry.where)
        entry = guilty[0].entry
        return PolicyError(f"policy '{entry.name}' raised {type(error).__name__}: {error}", own_line(entry, error))

    def _drain(self) -> None:
        buffers = self.policies.buffers[0]
        if buffers["logged"]:
            self._log.append(self.policies.log[: int(buffers["logged"])].copy())
            buffers["logged"] = 0
        if self.asking is not None:
            self.asking.tell()

    def log(self) -> Any:
        """The event log so far (LOG records), None when it was not asked for."""
        if not self.policies.buffers[0]["log_on"]:
            return None
        self._drain()
        parts = [np.zeros(0, LOG), *self._log]
        if self.reason in (state.OUT_OF_MEMORY, state.HOST_OUT_OF_MEMORY):
            t, last = self.island.tenants[0], np.zeros(1, LOG)
            memory = int(t["full"]) if self.reason == state.HOST_OUT_OF_MEMORY else 0
            largest = -1 if memory else int(self.place.largest(self.policies.place))
            last[0] = (self.now, log.OOM, t["request"], memory, largest, t["request_bytes"])
            parts.append(last)
        return np.concatenate(parts)

    def process(self, env: simpy.Environment) -> Generator[Any, Any, int]:
        """The SimPy process: the island runs while SimPy has nothing to do before."""
        while True:
            until = env.peek()
            reason = self.advance(state.NEVER if until == float("inf") else max(int(until), self.now))
            if reason != state.REACHED:
                # Other processes see the end at the time at which it happened.
                yield env.timeout(max(0, self.now - env.now))
                return reason
            yield env.timeout(max(0, int(until) - env.now))


@dataclass(frozen=True)
class Prepared:
    """A run before its first step, with what its result has to say of it."""

    simulation: Simulation
    profile: Profile
    seed: int
    work: workload.Workload  # of the trace itself
    planned: plans.Planned

    def result(self) -> Result:
        """What the run left behind, once it has stopped for good."""
        if self.simulation.reason == state.STUCK:
            name, now = self.work.trace.name, self.simulation.now
            waiting = standstill.why(self.simulation.island, self.planned.work.trace)
            raise GpusimError(f"the simulation of {name} stands still at {now} ns: {waiting}", hint="a bug, please report it")
        return outcome.result(self.simulation, self.profile, self.seed, self.work, self.planned)


def prepared(
    trace: Trace,
    profile: Profile,
    *,
    place: Any = "pytorch",
    evict: Any = "lru",
    prefetch: Any = "none",
    defrag: Any = "none",
    release: Any = "none",
    pool: Any = "none",
    plan: Any = "none",
    grain: int = TENSOR,
    tiers: str = DEFAULT,
    share: str | Sequence[str] = sharing.WORDS,
    active_thread_percentage: int = 100,
    capacity_bytes: int | None = None,
    durations: Any = None,
    seed: int = 0,
    log: bool = False,
    use: Sequence[Any] = (),
    work: workload.Workload | None = None,
    below: tuple[Tier, ...] = (),
) -> Prepared:
    """A trace on a machine under the policies, ready to run.

    place, evict, prefetch, defrag, release, pool, plan  "name", "name(parameter=value)" or what `policy` decorated
    grain                   bytes of the chunks in which tensors move; TENSOR: each as a whole
    tiers                   the memories below the device's, nearest first, as `gpusim.machine.tiers` reads them
    share                   what activities of the device share, words of `gpusim.machine.sharing`
    active_thread_percentage  of the multiprocessors, what the program's kernels may use together
    capacity_bytes          what the allocator may hold; None: all that the profile's device leaves it
    durations               int64[O] ns per operator; None: recorded times without what ran beside, else modelled ones
    log                     keep the event log, which `gpusim check` recomputes everything from
    use                     files with policies of your own, or the decorated policies themselves, to name above
    work                    the workload, when the caller has built it before
    below                   the tiers, where other devices lend some of them: `machine.topology.lenders`

    Raises PolicyError, TraceError, ProfileError, GpusimError.
    """
    own = registry.of(*use)
    named = {"place": place, "evict": evict, "prefetch": prefetch, "defrag": defrag, "release": release, "pool": pool}
    policies = {kind: own.get(kind, spec) for kind, spec in named.items()}
    policies["defrag"].check(policies["place"])
    for kind in ("evict", "prefetch"):
        units.check(policies[kind].entry, units.TENSORS)
    words, percentage = sharing.parse(share), sharing.percentage(active_thread_percentage)
    if work is None:
        if durations is None:
            durations = modelled(alone(trace, words), profile).ns
        work = workload.build(trace, durations)
    with_tiers = machine(trace, profile, capacity_bytes, tiers, below)

    def begin(planned: plans.Planned, record: bool) -> Simulation:
        needs = kernel_needs(planned.program or trace, planned.work.duration, profile, percentage) if words else None
        return Simulation(
            planned.work, with_tiers, **policies, seed=seed, record=record, schedule=planned.schedule,
            shared=tables.Shared(words, percentage, needs),
        )  # fmt: skip

    def trial(planned: plans.Planned) -> float:
        tried = begin(plans.at_grain(planned, grain, with_tiers), record=False)
        return float(tried.now) if tried.advance(state.NEVER) == state.FINISHED else math.inf

    planned = plans.at_grain(plans.planned(own.get("plan", plan), work, with_tiers, profile, trial), grain, with_tiers)
    return Prepared(begin(planned, record=log), profile, seed, work, planned)


def simulate(trace: Trace, profile: Profile, *, control: Sequence[Control] = (), **choices: Any) -> Result:
    """Replay a trace on a machine under the policies.

    control    SimPy processes beside the island: functions of (env, simulation)
    choices    policies, memory, times, seed and log, as `prepared` takes them

    Out of memory is a result, not an error.  Raises PolicyError, TraceError, ProfileError.
    """
    run = prepared(trace, profile, **choices)
    env = simpy.Environment()
    for function in control:
        env.process(function(env, run.simulation))
    env.run(until=env.process(run.simulation.process(env)))
    return run.result()


def simulate_together(runs: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Replay several traces at once, each on a device of its own; the results are those of each alone.

    runs    of each the arguments of `prepared`: trace, profile and choices

    Raises PolicyError, TraceError, ProfileError.
    """
    each = [prepared(**run) for run in runs]
    SideBySide([run.simulation for run in each]).advance(state.NEVER)
    return [run.result() for run in each]
