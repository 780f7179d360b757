"""A recorded tensor trace under unified memory: the island replays it as it always does, and its kernels touch managed pages.

Launches, streams, waits, copies and collectives are those of a run without unified memory: with all pages where they are
needed both take the same time.  A kernel has its duration; its accesses say when it comes to a page.  What is no kernel finds
its pages first and goes on then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.engine.pages import hints
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.launches import Paged, launched, pages
from gpusim.engine.pages.on_island import attach
from gpusim.engine.pages.paging import ACT, DISCARD, MIGRATE, RELEASE
from gpusim.engine.pages.simulate import StepResult, begin, host_is_full, run
from gpusim.engine.pages.timeline import Timeline
from gpusim.engine.run.simulate import Prepared, Simulation
from gpusim.machine.platforms import Platform
from gpusim.programs.managed.layout import Span, lay_out
from gpusim.programs.managed.steps import Discard, Free, Kernel, ManagedProgram, Prefetch, Start
from gpusim.trace.trace import KERNEL, OP
from gpusim.trace.workload import Workload


@dataclass
class Replayed:
    """A run that has come to its end."""

    steps: list[StepResult]
    earlier: Any
    began: float
    logged_before: int
    reason: str = ""
    where: str = "device"


class _Watched:
    """What the island tells of while it runs."""

    steps = False

    def __init__(self, M: DriverState, prepared: Prepared, timeline: Timeline, platform: Platform) -> None:
        self.memory, self.prepared, self.timeline, self.platform = M, prepared, timeline, platform
        self.ended, self.full = 0, ""
        self.leaves: Callable[[], None] = lambda: None

    def seen(self) -> bool:
        pager = self.prepared.simulation.island.pager
        self.ended += int(pager[0]["ended"])
        pager["due"] = pager["ended"] = 0
        if pager[0]["failed"]:
            return False
        self.memory.state["now"] = self.prepared.simulation.now
        self.timeline.watch(self.memory, self.ended // self.timeline.every * self.timeline.every)
        self.full = host_is_full(self.memory, self.platform)
        return not self.full

    def next_chunk(self) -> bool:
        return True

    def left(self) -> None:
        self.leaves()


class RecordedRun:
    """A trace on an island with its tensors in managed memory.  prepared: the run of the island, which has not begun."""

    def __init__(
        self, prepared: Prepared, work: Workload, program: ManagedProgram, platform: Platform, M: DriverState,
        timeline: Timeline, spans: Mapping[str, Span],
    ) -> None:  # fmt: skip
        self.prepared, self.work, self.program, self.platform = prepared, work, program, platform
        self.memory, self.timeline, self.spans = M, timeline, dict(spans)
        self.first = next((i for i, step in enumerate(program.steps) if isinstance(step, Kernel)), len(program.steps))

    def set_up(self, told: list[str]) -> tuple[Any, int]:
        """What comes before the first kernel, ahead of the clock: (the picture, events of the log) before `start`."""
        M, earlier, logged = self.memory, np.zeros(self.memory.raster.shape[:2], np.int64), 0
        told += hints.told(M, self.program.steps[: self.first], self.spans)
        for step in self.program.steps[: self.first]:
            if isinstance(step, Start):
                earlier, logged = begin(M), int(M.state["logged"][0])
            else:
                run(M, step, self.spans, self.platform)
        return earlier, logged

    def attach(self, **seat: Any) -> Paged:
        """The island's kernels touch its pages from now on.  seat: among other processes on the GPU, as `Paged` takes it."""
        work, M, simulation = self.work, self.memory, self.prepared.simulation
        operators, acts = _operators(self.program, self.first, work.trace.ops, self.spans, self.platform)
        tables = launched(operators, self.spans, self.platform, M)
        _own_time(tables, operators, work)
        streams = work.trace.stream[work.trace.kind == OP].astype(np.int64)
        self.paged = Paged(M, self.platform, tables, streams, acts=acts, **seat)
        attach(simulation, self.paged, stops=self.timeline.every, log=len(M.log) > 1)
        _widen(simulation, self.platform)
        simulation.paging = self.watched = _Watched(M, self.prepared, self.timeline, self.platform)
        return self.paged

    def found(self, earlier: Any, logged: int) -> Replayed:
        """What has become of it, once it has stopped for good."""
        found, simulation = Replayed([], earlier, 0.0, logged), self.prepared.simulation
        island, trace, program = simulation.island, self.work.trace, simulation.program
        for op in range(trace.ops):
            if island.began[op] < state.NEVER:
                name, end = trace.op_names[trace.op[op]], min(int(island.ended[op]), simulation.now)
                began, stalled = float(island.began[op]), float(island.stalled[op])
                needs = int(program.sms[0, op]) if trace.activity[op] == KERNEL else 0, int(program.duration[op])
                found.steps.append(StepResult(name, began, float(end), self.paged.of(op), 1, stalled, *needs, op))
        if simulation.reason == state.PAGED:
            full = self.watched.full
            name = found.steps[-1].name if found.steps else self.program.name
            found.reason = f"{name}: {full or 'GPU memory is full and may not be evicted'}"
            found.where = "host" if full else "device"
        return found


def clock_begins(M: DriverState) -> None:
    """What was done so far came before the time of the run."""
    before = M.log[: min(int(M.state["logged"][0]), len(M.log))]
    for name in ("time", "since", "until"):
        before[name] -= M.state["now"][0]
    M.state["now"] = M.state["raster_from"] = 0.0
    M.gpus["copied"] = 0.0


def replay(
    prepared: Prepared, work: Workload, program: ManagedProgram, platform: Platform, M: DriverState, timeline: Timeline,
    told: list[str],
) -> Replayed:  # fmt: skip
    """Run the trace with its tensors in managed memory, alone.  prepared: the run of the island, which has not begun."""
    one = RecordedRun(prepared, work, program, platform, M, timeline, lay_out(program.arrays))
    before = one.set_up(told)
    clock_begins(M)
    timeline.watch(M, 0)
    one.attach()
    prepared.simulation.advance(state.NEVER)
    return one.found(*before)


def _widen(simulation: Simulation, platform: Platform) -> None:
    """Links bear what the driver's copies have been measured to reach, where a profile gives them less."""
    link, into, out = simulation.island.link, platform.link.in_rate / 1e9, platform.link.out_rate / 1e9
    for name, rate in (("h2d", into), ("d2h", out), ("both", max(into, out))):
        at = simulation.links.index(name)
        link["rate"][at] = max(link["rate"][at], rate)


def _operators(
    program: ManagedProgram, first: int, count: int, spans: Any, platform: Platform
) -> tuple[list[list[Kernel]], Any]:
    """The kernels of each operator, and what comes before each of their launches without one."""
    operators: list[list[Kernel]] = [[] for _ in range(count)]
    rows: list[tuple[int, int, int, int, int]] = []
    launch = 0
    for step in program.steps[first:]:
        if isinstance(step, Kernel):
            operators[step.operator].append(step)
            launch += bool(step.accesses)
        elif isinstance(step, Free):
            rows.append((launch, RELEASE, *pages(spans[step.array], 0, None, platform, step.array), 0))
        elif isinstance(step, Discard | Prefetch):
            range_ = pages(spans[step.array], step.first, step.count, platform, step.array)
            moves = isinstance(step, Prefetch)
            rows.append((launch, MIGRATE if moves else DISCARD, *range_, step.to if isinstance(step, Prefetch) else 0))
    acts = table(len(rows), ACT)
    acts[:] = np.array(rows, ACT)
    return operators, acts


def _own_time(tables: Any, operators: Sequence[Sequence[Kernel]], work: Workload) -> None:
    """Kernels take their durations, divided over their launches as before; what is no kernel has its time elsewhere."""
    for op, kernels in enumerate(operators):
        first, end = int(tables.lists[op]), int(tables.lists[op + 1])
        took = math.fsum(kernel.ns or 0.0 for kernel in kernels)
        own = float(work.duration[op]) if work.trace.activity[op] == KERNEL else 0.0
        tables.shapes["ns"][first:end] *= own / took if took else 0.0
