"""Measured steps against simulated ones: the allocator's peaks, kernel times, and the step with its activations offloaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpusim.calibrate.steps.offloaded import offloaded, saved
from gpusim.calibrate.steps.recording import RESIDENT, MeasuredStep, read
from gpusim.engine.run.simulate import simulate
from gpusim.machine.kernels.durations import model_error
from gpusim.machine.profile import Profile, changed
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

STEP, KERNELS, PEAK, RESERVED = "step", "kernels by the model", "allocated peak", "reserved peak"
"""What is compared."""
TARGET = 0.1
"""Of a step's time."""
_ROOM = 1 << 44  # bytes of device memory where only time is asked


@dataclass(frozen=True)
class Found:
    """One number of one step; `measured` and `simulated` in `unit`."""

    program: str
    way: str
    what: str
    unit: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        return self.simulated / self.measured - 1 if self.measured else 0.0


def compare(folder: Path, profile: Profile) -> list[Found]:
    """All numbers of the folder's steps."""
    _, steps = read(folder)
    traces = {step.program: load_trace(folder / step.trace) for step in steps if step.trace}
    found = []
    for step in steps:
        trace = traces.get(step.program)
        if trace is not None:
            found += _memory_and_kernels(step, trace, profile) if step.way == RESIDENT else _offloading(step, trace, profile)
    return found


def _memory_and_kernels(step: MeasuredStep, trace: Trace, profile: Profile) -> list[Found]:
    result = simulate(trace, _warm(profile), place="pytorch")
    found = [
        Found(step.program, step.way, PEAK, "B", step.allocated_peak, result.metrics["allocated_peak_bytes"]),
        Found(step.program, step.way, RESERVED, "B", step.reserved_peak, result.metrics["reserved_peak_bytes"]),
        Found(step.program, step.way, STEP, "ns", step.step_ns, result.metrics["makespan_ns"]),
    ]
    error = model_error(trace, profile)
    if error:
        recorded = float(trace.duration[trace.duration > 0].sum())
        found.append(Found(step.program, step.way, KERNELS, "ns", recorded, recorded * (1 + error["total"])))
    return found


def _offloading(step: MeasuredStep, trace: Trace, profile: Profile) -> list[Found]:
    bytes_moved = float(sum(trace.size[u] for u, *_ in saved(trace)))
    result = simulate(offloaded(trace, step.way), _warm(profile), place="pytorch", capacity_bytes=_ROOM)
    return [
        Found(step.program, step.way, "bytes to the host", "B", step.moved_bytes, bytes_moved),
        Found(step.program, step.way, STEP, "ns", step.step_ns, result.metrics["makespan_ns"]),
    ]


def _warm(profile: Profile) -> Profile:
    """The machine of a step that others went before: the framework holds all memory that it needs, and asks for none."""
    for name in ("malloc", "malloc_per_gib", "free", "free_per_gib"):
        profile = changed(profile, f"allocation.{name}", 0.0)
    return profile
