"""A managed program beside other processes on its GPU, on one clock with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpusim.engine.pages import hints
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.on_island import OnIsland, on_clock
from gpusim.engine.pages.simulate import StepResult, host_is_full
from gpusim.engine.pages.timeline import Timeline
from gpusim.engine.state import NEVER
from gpusim.machine.driver_parameters import UvmError
from gpusim.machine.platforms import Platform
from gpusim.programs.managed.layout import Span
from gpusim.programs.managed.steps import Kernel, ManagedProgram, Start, on_stream, reach, title


class SteppedRun:
    """The program of one process; its kernels are on an island, which has not begun.

    began   ns: when it came to its `start`; ended: when it was over
    """

    steps = True

    def __init__(
        self, M: DriverState, platform: Platform, program: ManagedProgram, spans: Mapping[str, Span], timeline: Timeline,
        told: list[str], percentage: int, **seat: Any,
    ) -> None:  # fmt: skip
        """percentage: of the multiprocessors, what its kernels may use.  seat: as `Paged` takes it.  Raises UvmError."""
        kernels = [step for step in program.steps if on_stream(step)]
        if not kernels or any(kernel.gpu != 1 for kernel in kernels):
            said = f"{program.name} runs kernels on several GPUs" if kernels else f"{program.name} runs no kernel"
            raise UvmError(f"{said}: it cannot share one with other processes", hint="a program with kernels on one GPU")
        self.memory, self.platform, self.program, self.timeline = M, platform, program, timeline
        self.on = on_clock(program.steps)
        self.kernels = OnIsland(self, M, platform, program.steps, spans, 1, percentage, **seat)
        self.simulation, self.paged = self.kernels.simulation, self.kernels.paged
        self.simulation.paging = self
        self.at, self.began, self.ended, self.started = 0, 0, 0, -1
        self.reason, self.where = "", "device"
        self.leaves: Callable[[], None] = lambda: None
        self._done = 0
        told += hints.told(M, program.steps, spans)

    def begin(self) -> None:
        """The clock begins: the host does what it does before the first kernel."""
        self.starts()
        self._go_on(0)

    def seen(self, place: int = -1) -> bool:
        """Kernels have ended; of the island: the one at this place of the program."""
        if place < 0:
            return self.kernels.seen()
        self.memory.state["now"] = self.simulation.now
        self._watch()
        self._is_full(place)
        return not self.reason

    def next_chunk(self) -> bool:
        return self._go_on(int(self.simulation.island.hosts[0]["time"]))

    def left(self) -> None:
        if not self.ended:  # it has run out of memory
            self.ended = self.simulation.now
        self.leaves()

    def results(self) -> list[StepResult]:
        """Its steps behind `start`."""
        found = []
        for place, step in enumerate(self.program.steps):
            if place <= self.started:
                continue
            if place in self.on:
                start, end, stalled, counts = self.kernels.result(place)
                if start < NEVER:
                    if isinstance(step, Kernel) and not step.accesses:
                        counts["busy"][1] = step.ns or 0.0
                    gpu = int(on_stream(step))
                    found.append(StepResult(title(step), start, min(end, float(self.simulation.now)), counts, gpu, stalled))
                if start == NEVER or (end == NEVER and not self.reason):
                    self.reason = self.reason or f"{title(step)}: GPU memory is full and may not be evicted"
        return found

    def _go_on(self, now: int) -> bool:
        """The host goes on now, up to where its clock stops; True when there is anything."""
        steps = self.program.steps
        while self.at < len(steps) and not self.reason:
            step = steps[self.at]
            if self.at in self.on:
                first, self.at = self.at, reach(steps, self.at, 1)
                self.kernels.until(first, self.at, now)
                return True
            if isinstance(step, Start):
                self.began, self.started = now, self.at
                self.starts()
            self.at += 1
        self.ended = now
        return False

    def starts(self) -> None:
        """From here on the run is timed and counted."""
        self.earlier = self.memory.ranges.copy()
        self._done = 0
        self._watch()

    def _watch(self) -> None:
        self.timeline.watch(self.memory, self._done)
        self._done += 1

    def _is_full(self, place: int) -> None:
        if full := host_is_full(self.memory, self.platform):
            self.reason, self.where = f"{title(self.program.steps[place])}: {full}", "host"
