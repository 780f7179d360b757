"""Devices whose kernels take longer for a while: at each change those that have not started yet get another duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import Prepared
from gpusim.machine.kernels.needs import kernel_needs
from gpusim.trace.trace import KERNEL

Pace = Sequence[tuple[int, float]]
"""(ns, factor): kernels that start from then on take so many times as long as alone; the first from 0 on."""


def advance(coupled: Coupled, runs: Sequence[Prepared], paces: Mapping[int, Pace]) -> None:
    """All programs to their ends, whose kernels have these paces, by program.  A kernel keeps the pace of its start."""
    paced = {p: PacedKernels(runs[p]) for p in paces}
    for time in sorted({time for pace in paces.values() for time, _ in pace}):
        if time and coupled.advance(time) == state.FINISHED:
            return
        for p, pace in paces.items():
            if time in (now := dict(pace)):
                paced[p].go_on(now[time])
    coupled.advance(state.NEVER)


class PacedKernels:
    """The kernels of a program that is to run; it has its own durations from now on."""

    def __init__(self, run: Prepared) -> None:
        self.run = run
        self.usual = run.simulation.program.duration.copy()
        self.kernels = run.planned.work.trace.activity == KERNEL

    def go_on(self, factor: float) -> None:
        """Kernels that start from now on take so many times as long as usual."""
        simulation, trace = self.run.simulation, self.run.planned.work.trace
        duration = np.where(self.kernels, np.rint(self.usual * factor), self.usual).astype(np.int64)
        simulation.program.duration[:] = duration
        if simulation.shared.needs is not None:
            simulation.program.need[:] = kernel_needs(trace, duration, self.run.profile).memory
        waiting = simulation.island.activities
        rows = np.flatnonzero((waiting["kind"] == KERNEL) & (waiting["start"] == state.NEVER) & (waiting["cancelled"] == 0))
        waiting["duration"][rows] = duration[waiting["arg"][rows]]
