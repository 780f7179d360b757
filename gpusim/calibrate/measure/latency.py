"""Latency of one load: a chain of pointers in random order, in device, pinned host and peer memory."""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, GiB, KiB, MiB
from gpusim.calibrate.measure.gpu import U64, OpenGpu
from gpusim.calibrate.measure.recorder import sizes

LINE = 128
"""Bytes between two links of a chain: a line of the L2."""
FAR = 2 * MiB
"""A chain outside the GPU."""
STEPS, STEPS_FAR = 100_000, 20_000
"""Loads of a repeat."""


class Chain:
    """Memory of `size` bytes at `base` in which each line points to another, all in one random circle."""

    def __init__(self, base: int, size: int, seed: int = 0) -> None:
        self.base, self.size, self.lines = base, size, size // LINE
        self.order = np.random.default_rng(seed).permutation(self.lines).astype(np.uint64)
        memory = np.zeros((self.lines, LINE // 8), np.uint64)
        memory[self.order, 0] = np.uint64(base) + np.roll(self.order, -1) * np.uint64(LINE)
        self.memory = memory.ravel()

    def at(self, steps: int) -> int:
        """The address that so many steps from the beginning lead to."""
        return self.base + int(self.order[steps % self.lines]) * LINE


def run(bench: Bench) -> None:
    gpu, quick = bench.gpu, bench.out.quick
    largest = bench.most(128 * MiB if quick else GiB, 1, "pointer chase")
    with gpu.pinned(FAR) as data:
        chain = Chain(data.ctypes.data, FAR)
        data.view(np.uint64)[:] = chain.memory
        if bench.out.time_for("pinned host"):
            walk(bench, gpu, "host_access_latency_ns", chain, far=True, case="chase")
    with gpu.buffer(largest) as base:
        for size in sizes(2 * KiB, largest, 8 if quick else 2):
            if bench.out.time_for(f"device {size}"):
                chain = Chain(base, size)
                gpu.write(base, chain.memory)
                walk(bench, gpu, "load_latency_ns", chain, far=False, case="chase")


def walk(
    bench: Bench, gpu: OpenGpu, metric: str, chain: Chain, *, far: bool, case: str, param: dict[str, object] | None = None
) -> None:
    """Measure and record one chain; where each walk ends is compared with where it must.

    far  the memory is not the GPU's, and no cache may answer
    """
    name = "chase_far" if far else "chase"
    steps = STEPS_FAR if far else STEPS
    cycles: list[float] = []
    walked = 0

    def once(steps: int = steps) -> float:
        nonlocal walked
        # On from where the last walk ended: the same lines again would still be in the L2.
        gpu.launch(name, 1, 1, U64(chain.at(walked)), U64(steps), U64(gpu.scratch))
        walked += steps
        end, clocks, ns = (int(w) for w in gpu.words(gpu.scratch, 3))
        if bench.out.compared and end != chain.at(walked):
            raise MeasurementError(f"the walk over {chain.size} bytes ended at a wrong place; nothing of it is trusted")
        cycles.append(clocks / steps)
        return ns / steps

    once(min(chain.lines, 1 << 20) if chain.size <= 2 * gpu.l2 else steps)  # what no cache holds need not be brought in
    times = bench.out.repeat(once, most=21)
    clocks = float(np.median(cycles[1:]))
    mhz = round(1e3 * clocks / float(np.median(times))) if min(times) > 0 else 0
    where = "no cache may answer" if far else "all caches may answer, after a round as warm-up"
    method = f"one thread follows pointers in random order, lines of {LINE} B, {where}; device clock, {steps} loads a repeat"
    param = {**(param or {}), "cycles": f"{clocks:.1f}", "clock_mhz": mhz}
    bench.out.add(metric, times, case=case, size=chain.size, method=method, param=param)
