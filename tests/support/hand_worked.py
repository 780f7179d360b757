"""A machine with round numbers and short programs for it, so that every time can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.engine.run.simulate import Simulation, simulate
from gpusim.machine import catalogue
from gpusim.machine.constants import machine as machine_of
from gpusim.machine.profile import Profile, changed
from gpusim.policies import registry
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace import workload
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import HOST_WORK, RECORD, SYNC, WAIT, Trace

GIB = 2**30
SMALL = "grid=1 block=32"  # the launch of a kernel that takes one multiprocessor
BLOCK = 10_240  # bytes: 1024 ns to the device, 1280 ns to the host, beside the latency of 1000 ns

# 10 bytes/ns to the device, 8 to the host, 18 both together: neither direction slows the other.
ROUND_NUMBERS = {
    "link.h2d": 10e9, "link.d2h": 8e9, "link.both": 18e9, "link.latency_queued": 1000.0, "link.latency_synchronised": 1000.0,
    "copy_engines.h2d": 1, "copy_engines.d2h": 1,
    "launch.submit": 0.0, "launch.eager": 0.0, "launch.gap": 0.0, "launch.queue": 1024,
    "allocation.malloc": 0.0, "allocation.malloc_per_gib": 0.0, "allocation.free": 0.0, "allocation.free_per_gib": 0.0,
    "allocation.cached_alloc": 0.0,
}  # fmt: skip


def machine(changes: dict[str, float] | None = None, base: str = "a100-pcie-40gb") -> Profile:
    """A machine on which only the copies cost time, but for the changes: paths of the profile to base units."""
    profile = catalogue.load(base)
    for path, value in {**ROUND_NUMBERS, **(changes or {})}.items():
        profile = changed(profile, path, value)
    return profile


class Steps:
    """A trace written down step by step; every method returns at once, the program's meaning is in the order of calls."""

    def __init__(self) -> None:
        self._builder = TraceBuilder("by hand")

    def alloc(self, blocks: float = 1, **at: int) -> int:
        return self._builder.alloc(int(blocks * BLOCK), **at)

    def free(self, *tensors: int) -> None:
        for tensor in tensors:
            self._builder.free(tensor)

    def kernel(
        self, ns: int, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), stream: int = 0, launch: str | None = None
    ) -> None:
        """Without a launch it fills the GPU; SMALL leaves room for others."""
        self._builder.op("kernel", reads, writes, duration=ns, stream=stream, launch=launch)

    def carry(self, activity: int, stream: int, blocks: float = 1, ns: int = -1, reads: tuple[int, ...] = ()) -> None:
        """An operator that is no kernel, and moves so many blocks over a link or through host memory."""
        size = int(blocks * BLOCK)
        self._builder.op("carry", reads, (), read_bytes=size, duration=ns, stream=stream, activity=activity)

    def work(self, name: str, stream: int = 0, flops: float = 0.0) -> None:
        """The CPU does something with a block of host memory."""
        self._builder.op(name, (), (), read_bytes=BLOCK, flops=flops, stream=stream, activity=HOST_WORK)

    def sync(self) -> None:
        self._builder.event(SYNC)

    def record(self, event: int, stream: int) -> None:
        self._builder.event(RECORD, event, stream=stream)

    def wait(self, event: int, stream: int) -> None:
        self._builder.event(WAIT, event, stream=stream)

    def until(self, ns: int) -> None:
        """The host does nothing before this time."""
        self._builder.begin_phase("", time=ns)

    def trace(self) -> Trace:
        return self._builder.finish()


def three_tensors_in_two_blocks(begin_at: int = 0) -> Steps:
    steps = Steps()
    steps.until(begin_at)
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    c = steps.alloc()
    steps.kernel(500, writes=(c,))
    steps.kernel(700, reads=(a,))
    return steps


def play(steps: Steps, changes: dict[str, float] | None = None, blocks: float | None = None, **choices: Any) -> Result:
    """Run the steps with memory for so many blocks; first fit, LRU, no prefetch and a log unless told otherwise."""
    choices = {"place": "first_fit", "log": True, **choices}
    profile = choices.pop("profile", None) or machine(changes)
    return simulate(steps.trace(), profile, capacity_bytes=None if blocks is None else int(blocks * BLOCK), **choices)


def spans(result: Result) -> dict[str, list[tuple[int, int]]]:
    """(start, end) of the kernels, the copies to the device ("in") and to the host ("out"), in the order of their starts."""
    assert result.log is not None
    out: dict[str, list[tuple[int, int]]] = {"kernel": [], "in": [], "out": []}
    ends = {int(r["a"]): int(r["t"]) for r in result.log if r["kind"] == log.END}
    for r in result.log:
        if r["kind"] == log.START:
            queue = int(r["b"])
            out["kernel" if queue >= 0 else ("out", "in")[queue % 2]].append((int(r["t"]), ends.get(int(r["a"]), -1)))
    return out


def begin(trace: Trace, profile: Profile, capacity: int | None, durations: Any = None, **choices: Any) -> Simulation:
    """A simulation that has not moved yet."""
    named = {"place": "first_fit", "evict": "lru", "prefetch": "none", "defrag": "none"}
    named |= {kind: choices.pop(kind) for kind in named if kind in choices}
    policies = {kind: registry.get(kind, name) for kind, name in named.items()}
    work = workload.build(trace, trace.duration if durations is None else np.asarray(durations))
    settings = {"seed": 0, "record": False, **choices}
    return Simulation(work, machine_of(trace, profile, capacity), **policies, **settings)


CAUSES = ("swap_in", "swap_out", "alloc", "launch", "sync", "event", "copy_engine")


def stalls(result: Result) -> dict[str, int]:
    """The causes of stalls that are not 0, ns."""
    found = {cause: int(result.metrics.get(f"stall_{cause}_ns", 0)) for cause in CAUSES}
    return {cause: ns for cause, ns in found.items() if ns}
