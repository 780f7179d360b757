"""Several processes with managed memory on one GPU: one driver, one memory, and of each its own kernels and hints.

    processes ──▶ allocations side by side, one driver's tables ──▶ an island for each, one server ──coupled──▶ a result of each

Address spaces are apart: a page is of one process.  The rest is the GPU's, as in nvidia-uvm: the buffer of faults and the
thread that serves it (uvm_parent_gpu_t), root chunks and the order in which they leave (uvm_pmm_gpu.c, one for each GPU), so
that a process evicts the pages of any other.  A MIG slice has a memory of its own, and shares the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.base.units import show_bytes
from gpusim.engine import state
from gpusim.engine.pages import aside, page_tables, raster
from gpusim.engine.pages.before import program_of, room
from gpusim.engine.pages.launches import beside, pages
from gpusim.engine.pages.paging import AT_REST, CALLED, ENDED, RUNS, SERVER, WAITS
from gpusim.engine.pages.recorded import RecordedRun, clock_begins
from gpusim.engine.pages.run import EVENTS, Ran, counted, of_managed, of_recorded
from gpusim.engine.pages.settings import DRIVER, DriverSettings
from gpusim.engine.pages.simulate import StepResult, UvmResult, begin, fits, minus, plus
from gpusim.engine.pages.simulate import memory as driver_tables
from gpusim.engine.pages.stepped_run import SteppedRun
from gpusim.engine.pages.timeline import Timeline
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.simulate import prepared
from gpusim.engine.run.tenants import Together, one_link
from gpusim.machine import platforms, sharing
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import Tenancy
from gpusim.machine.topology.connections import Connections
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import ManagedProgram
from gpusim.results.faults import ProcessFaults
from gpusim.results.result import Result
from gpusim.trace.workload import Workload


@dataclass(frozen=True)
class ManagedProcess:
    """One of the processes.

    profile     its GPU, or its slice of it
    capacity    bytes of that for managed pages, of all processes that share it
    percentage  of the multiprocessors that its kernels may use together
    """

    source: Workload | ManagedProgram
    profile: Profile
    capacity: int
    percentage: int = 100


def simulate_processes(
    processes: Sequence[ManagedProcess], tenancy: Tenancy | None, turns: MemoryTurns | None = None, *,
    settings: DriverSettings = DRIVER, seed: int = 0, place: Any = "pytorch", share: Any = sharing.WORDS, log: bool = False,
    others: Sequence[Workload | ManagedProgram] = (),
) -> Together:  # fmt: skip
    """Run processes with managed memory on one GPU at once.

    tenancy  how they share it; None: each has a slice of its own, and they share the link to the host
    turns    a policy that says which of them runs
    place    the allocator of recorded traces, and what their activities share: words of `gpusim.machine.sharing`
    log      the first result has the log of pages of all that share its memory
    others   programs that do not run here, whose allocations the advice may name

    Raises UvmError, ProfileError, PolicyError, GpusimError.
    """
    if settings.oracle and len(processes) > 1:
        raise UvmError("an oracle knows the order of one program's uses, not that of several processes", hint="evict=lru")
    numbers = range(len(processes))
    server, away = table(1, SERVER), np.zeros(len(processes), np.int64)
    runs: list[_Recorded | _Managed] = []
    memories, known = [], [*(one.source for one in processes), *others]
    for some in [list(numbers)] if tenancy is not None else [[p] for p in numbers]:
        memory = _Memory([processes[p] for p in some], known, settings, place, seed, EVENTS if log else 0)
        memory.have(some, away)
        memories.append(memory)
        for at, p in enumerate(some):
            seat = {"server": server, "process": p, "processes": len(processes)}
            if isinstance(processes[p].source, Workload):
                runs.append(_Recorded(memory, at, processes[p], {"place": place, "share": share, "seed": seed}, seat))
            else:
                runs.append(_Managed(memory, at, processes[p], seat))
    beside([run.paged for run in runs])
    for number, run in enumerate(runs):
        run.leaves(partial(_leave, runs, number))
    for memory in memories:
        begin(memory.M)
        clock_begins(memory.M)
        memory.logged = int(memory.M.state["logged"][0])
    for run in runs:
        run.begin()
    between = Connections(tenancy=tenancy) if tenancy is not None else one_link([run.simulation for run in runs])
    coupled = Coupled([run.simulation for run in runs], between, turns)
    coupled.fabric = coupled.fabric._replace(away=away)
    coupled.advance(state.NEVER)
    for memory in memories:
        memory.asked.check()
        memory.M.state["now"] = coupled.now
    gpu, results = coupled.fabric.gpu[0], [run.result() for run in runs]
    return Together(
        tuple(_with_others(results, p) for p in numbers), tuple(run.began for run in runs), int(gpu["switches"]),
        int(gpu["switched"]),
    )  # fmt: skip


def _with_others(results: Sequence[Result], own: int) -> Result:
    """A result whose fault report lists the processes beside it."""
    mine = results[own]
    if len(results) == 1 or mine.faults is None:
        return mine
    order = [mine, *(one for p, one in enumerate(results) if p != own)]
    return replace(mine, faults=replace(mine.faults, processes=[_row(one) for one in order]))


def _row(result: Result) -> ProcessFaults:
    seen, numbers = result.faults, result.metrics
    assert seen is not None
    return ProcessFaults(
        str(result.spec["trace"]), float(numbers["makespan_ns"]), int(numbers["gpu_faults"]), int(numbers["fault_batches"]),
        int(numbers["evictions"]), seen.moved("came"), seen.sum("again"), seen.moved("went", "eviction"),
    )  # fmt: skip


class _Memory:
    """The driver's tables of the processes that have one memory."""

    def __init__(
        self, processes: Sequence[ManagedProcess], known: Sequence[Workload | ManagedProgram], settings: DriverSettings,
        place: Any, seed: int, log: int,
    ) -> None:  # fmt: skip
        """known: programs whose allocations advice may name.  log: events that are kept at most; `logged`: those that came
        before the clock began."""
        self.settings, self.seed, self.logged, profile = settings, seed, 0, processes[0].profile
        self.available = min(room(one.source, one.profile, one.capacity) for one in processes)
        self.programs = [program_of(one.source, profile, settings, place, self.available, known) for one in processes]
        total, most = sum(one.footprint for one in self.programs), self.available + int(profile.host.capacity.value)
        if total > most:
            said = f"{len(processes)} processes need {show_bytes(total)}, GPU and host have {show_bytes(most)}"
            raise UvmError(said, hint=f"give them a larger host: {profile.name}(host.capacity=...)")
        arrays = [replace(a, name=f"{p}.{a.name}") for p, program in enumerate(self.programs) for a in program.arrays]
        # More chunks than the programs have windows stay free: tables for them would be memory wasted.
        self.platform = platforms.of(profile, min(max(self.available, BLOCK_BYTES), 2 * total))
        fits(arrays, self.platform)
        self.M, self.told, self.asked = driver_tables(
            arrays, [], self.platform, settings.parameters, evict=settings.evict, prefetcher=settings.prefetch,
            migrate=settings.migrate, own=settings.own, seed=seed + 1, log=log,
        )  # fmt: skip
        self.arrays = arrays
        spans, first = list(lay_out(arrays).values()), [0, *accumulate(len(program.arrays) for program in self.programs)]
        self.rows = [slice(*ends) for ends in pairwise(first)]  # of `ranges`, those of each program
        self.spans = [
            dict(zip([a.name for a in program.arrays], spans[rows], strict=True))
            for program, rows in zip(self.programs, self.rows, strict=True)
        ]

    def have(self, numbers: Sequence[int], away: Any) -> None:
        """The processes have these numbers.  away: of each, how many turns it is until the GPU is its own."""
        self.M = self.M._replace(turns=away)
        for at, number in enumerate(numbers):
            self.M.blocks["process"][self.blocks(at)] = number

    def blocks(self, at: int) -> slice:
        """Those of a process."""
        spans = list(self.spans[at].values())
        return slice(spans[0].first // BLOCK_BYTES, -(-(spans[-1].first + spans[-1].bytes) // BLOCK_BYTES))

    def ran(self, at: int, steps: list[StepResult], earlier: Any, began: float, reason: str, where: str) -> UvmResult:
        """What a process saw of it.  earlier: RANGE[...] of its allocations when its run began to count."""
        M, counts = self.M, [step.counts for step in steps]
        events = 0 if at or len(M.log) <= 1 else int(M.state["logged"][0])  # of all, with the first
        return UvmResult(
            self.platform, steps, plus(counts, len(M.counts)), self.spans[at], minus(M.ranges[self.rows[at]], earlier), M.sizes,
            raster.of(M, np.zeros(M.raster.shape[:2], np.int64)), M.log[:events], events, self.told, page_tables.entries(M),
            reason, began, self.logged, where,
        )  # fmt: skip

    def together(self, at: int) -> dict[str, Any]:
        """What the referee has to know of all processes; nothing without a log, which the first has."""
        if at or len(self.M.log) <= 1:
            return {}
        arrays = [[array.bytes, array.at, array.kind] for array in self.arrays]
        return {"allocations": arrays, "ordered": False, "together": counted(self.M.counts, self.platform.page)}


class _Recorded:
    """A process that replays a trace."""

    def __init__(
        self, memory: _Memory, at: int, process: ManagedProcess, choices: dict[str, Any], seat: dict[str, Any]
    ) -> None:
        work, program = process.source, memory.programs[at]
        assert isinstance(work, Workload)
        self.memory, self.at, self.process, self.work = memory, at, process, work
        room_for_all = max(process.capacity, 2 * work.live_peak + (1 << 30))  # managed memory has no bound of its own
        alone = prepared(
            work.trace, process.profile, evict="none", capacity_bytes=room_for_all, work=work,
            active_thread_percentage=process.percentage, **choices,
        )  # fmt: skip
        self.timeline = Timeline(work.trace.ops, memory.blocks(at))
        self.run = RecordedRun(alone, work, program, memory.platform, memory.M, self.timeline, memory.spans[at])
        self.run.set_up(memory.told)
        self.paged, self.simulation = self.run.attach(**seat), alone.simulation

    def leaves(self, then: Callable[[], None]) -> None:
        self.run.watched.leaves = then

    def begin(self) -> None:
        self.earlier = self.memory.M.ranges[self.memory.rows[self.at]].copy()
        self.timeline.watch(self.memory.M, 0)

    @property
    def began(self) -> Any:
        return self.simulation.island.began.copy()

    def result(self) -> Result:
        found, memory = self.run.found(None, 0), self.memory
        ran = memory.ran(self.at, found.steps, self.earlier, 0.0, found.reason, found.where)
        return of_recorded(
            Ran(self.process.source, self.process.profile, memory.programs[self.at], ran, memory.settings, memory.available,
                memory.seed, self.timeline, together := memory.together(self.at)), self.work, self.simulation,
            log=bool(together),
        )  # fmt: skip


class _Managed:
    """A process that runs a managed program."""

    def __init__(self, memory: _Memory, at: int, process: ManagedProcess, seat: dict[str, Any]) -> None:
        self.memory, self.at, self.process, program = memory, at, process, memory.programs[at]
        self.timeline = Timeline(len(program.steps), memory.blocks(at))
        self.run = SteppedRun(
            memory.M, memory.platform, program, memory.spans[at], self.timeline, memory.told, process.percentage, **seat
        )
        self.paged, self.simulation = self.run.paged, self.run.simulation

    def leaves(self, then: Callable[[], None]) -> None:
        self.run.leaves = then

    def begin(self) -> None:
        self.run.begin()

    @property
    def began(self) -> Any:
        began = self.simulation.island.began
        return np.where(began < state.NEVER, began - self.run.began, state.NEVER)

    def result(self) -> Result:
        run, memory = self.run, self.memory
        steps = run.results()
        ran = memory.ran(self.at, steps, run.earlier[memory.rows[self.at]], float(run.began), run.reason, run.where)
        return of_managed(
            Ran(self.process.source, self.process.profile, memory.programs[self.at], ran, memory.settings, memory.available,
                memory.seed, self.timeline, together := memory.together(self.at)), log=bool(together),
        )  # fmt: skip


def _leave(runs: Sequence[_Recorded | _Managed], number: int) -> None:
    """A process is over: its memory is free, and what it waited for is served no more."""
    run = runs[number]
    M, server, now = run.memory.M, run.paged.tables.server, run.simulation.now
    M.state["now"], M.state["failed"] = now, 0
    for span in run.memory.spans[run.at].values():
        aside.release(M, *pages(span, 0, None, run.memory.platform, ""))
    rows = run.paged.tables.runs
    if int(server[0]["process"]) == number:
        if server[0]["phase"] != AT_REST:
            server["active"] -= int(((rows["state"] == WAITS) | (rows["state"] == RUNS) & (rows["end"] > 0)).sum())
        server["phase"], server["at"] = AT_REST, np.inf
    rows["state"] = ENDED
    waiting = [
        (float(since), p) for p, one in enumerate(runs) for row, since in zip(one.paged.tables.runs["state"],
        one.paged.tables.runs["since"], strict=True) if row == WAITS
    ]  # fmt: skip
    if server[0]["phase"] == AT_REST and waiting:
        _, then = min(waiting)
        server["phase"], server["process"], server["at"] = CALLED, then, now
        runs[then].paged.tables.pager["wakes"] = 1 + then
