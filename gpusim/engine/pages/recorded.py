"""A recorded tensor trace under unified memory: the island replays it as it always does, and its kernels touch managed pages.

Launches, streams, waits, copies and collectives are those of a run without unified memory: with all pages where they are
needed both take the same time.  A kernel has its duration; its accesses say when it comes to a page.  What is no kernel finds
its pages first and goes on then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.launches import Paged, launched
from gpusim.engine.pages.on_island import attach
from gpusim.engine.pages.paging import ACT, DISCARD, MIGRATE, RELEASE
from gpusim.engine.pages.simulate import StepResult, begin, host_is_full, pages, run
from gpusim.engine.pages.timeline import Timeline
from gpusim.engine.run.simulate import Prepared, Simulation
from gpusim.machine.platforms import Platform
from gpusim.programs.managed.layout import lay_out
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


def replay(
    prepared: Prepared, work: Workload, program: ManagedProgram, platform: Platform, M: DriverState, timeline: Timeline,
    told: list[str],
) -> Replayed:  # fmt: skip
    """Run the trace with its tensors in managed memory.  prepared: the run of the island, which has not begun."""
    spans = lay_out(program.arrays)
    first = next((i for i, step in enumerate(program.steps) if isinstance(step, Kernel)), len(program.steps))
    earlier, logged = np.zeros(M.raster.shape[:2], np.int64), 0
    for step in program.steps[:first]:
        if isinstance(step, Start):
            earlier, logged = begin(M), int(M.state["logged"][0])
        else:
            run(M, step, dict(spans), platform, told)
    before = M.log[: min(int(M.state["logged"][0]), len(M.log))]
    for name in ("time", "since", "until"):
        before[name] -= M.state["now"][0]  # the clock of the run begins here
    M.state["now"] = M.state["raster_from"] = 0.0
    M.gpus["copied"] = 0.0
    timeline.watch(M, 0)
    operators, acts = _operators(program, first, work.trace.ops, spans, platform)
    tables = launched(operators, spans, platform, M)
    _own_time(tables, operators, work)
    streams = work.trace.stream[work.trace.kind == OP].astype(np.int64)
    paged = Paged(M, platform, tables, streams, acts=acts)
    simulation = prepared.simulation
    attach(simulation, paged, stops=timeline.every)
    _widen(simulation, platform)
    simulation.paging = watched = _Watched(M, prepared, timeline, platform)
    simulation.advance(state.NEVER)
    found = Replayed([], earlier, 0.0, logged)
    island, names = simulation.island, work.trace.op_names
    for op in range(work.trace.ops):
        if island.began[op] < state.NEVER:
            name, end = names[work.trace.op[op]], min(int(island.ended[op]), simulation.now)
            began, stalled = float(island.began[op]), float(island.stalled[op])
            found.steps.append(StepResult(name, began, float(end), paged.of(op), 1, stalled))
    if simulation.reason == state.PAGED:
        name = found.steps[-1].name if found.steps else program.name
        found.reason = f"{name}: {watched.full or 'GPU memory is full and may not be evicted'}"
        found.where = "host" if watched.full else "device"
    return found


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
