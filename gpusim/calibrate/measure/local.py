"""Memory of the GPU: copies by the copy engine, kernels that read, write, copy and add, and how many threads that takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpusim.calibrate.measure.bench import Bench, GiB, KiB, MiB
from gpusim.calibrate.measure.gpu import F32, I32, U64, OpenGpu
from gpusim.calibrate.measure.recorder import sizes

THREADS = 1024
STREAMS = {"read": 1, "write": 1, "copy": 2, "triad": 3}
"""Kernel -> how many arrays it passes over; each counts, read or written."""


def run(bench: Bench) -> None:
    gpu, quick = bench.gpu, bench.out.quick
    largest = bench.most(256 * MiB if quick else 4 * GiB, 3, "kernels in device memory")
    with gpu.buffer(largest) as a, gpu.buffer(largest) as b, gpu.buffer(largest) as c:
        for size in _around(gpu.l2, 64 * KiB, largest, 8 if quick else 2):
            _engine(bench, a, b, size)
        for kind, arrays in STREAMS.items():
            for size in _around(gpu.l2, 64 * KiB, largest, 8 if quick else 2):
                _kernel(bench, kind, (a, b, c)[:arrays], size // arrays // 16 * 16)
        _check(gpu, a, b, min(largest, 64 * MiB))
        _occupancy(bench, a, min(largest, 2 * GiB))


def _around(l2: int, low: int, high: int, factor: int) -> list[int]:
    """Sizes by a factor, with finer steps from a quarter to four times the L2."""
    fine = [l2 * k // 8 // (4 * KiB) * 4 * KiB for k in (2, 4, 6, 7, 8, 9, 10, 12, 16, 24, 32)]
    return sorted({*sizes(low, high, factor), *(s for s in fine if low < s < high)})


def _engine(bench: Bench, a: int, b: int, size: int) -> None:
    gpu = bench.gpu
    if not bench.out.time_for(f"copy engine {size}"):
        return
    count = max(1, min(64, 256 * MiB // size))

    def copy(_: int) -> None:
        gpu.cuda.cuMemcpyDtoDAsync(b, a, size, gpu.stream)

    gpu.fill(a, size // 4 * 4, seed=size)
    times = bench.out.repeat(partial(gpu.queued, copy, count))
    gpu.verify(b, size // 4 * 4, f"{size} bytes copied in device memory", seed=size)
    method = f"cuMemcpyDtoDAsync, {count} a repeat behind a spin kernel, CUDA events; bytes counted once"
    bench.out.add("hbm_copy_once_bw", times, case="engine", size=size, work=size, method=method)


def kernel(gpu: OpenGpu, kind: str, arrays: tuple[int, ...], size: int, rounds: int, blocks: int) -> Callable[[int], None]:
    """Start one pass (or `rounds`) over arrays of so many bytes each."""
    lasts: dict[str, list[Any]] = {"read": [U64(gpu.scratch)], "write": [F32(1.5)], "copy": [], "triad": [F32(0.5)]}
    addresses = [U64(address) for address in reversed(arrays)]
    args = (*addresses, U64(size // 16), I32(rounds), *lasts[kind])
    return lambda _: gpu.launch(f"stream_{kind}", blocks, THREADS, *args)


def _kernel(bench: Bench, kind: str, arrays: tuple[int, ...], each: int) -> None:
    """size_bytes is the footprint: all arrays together."""
    gpu, footprint = bench.gpu, each * len(arrays)
    if not each or not bench.out.time_for(f"{kind} {footprint}"):
        return
    rounds = max(1, min(1000, 256 * MiB // footprint))
    start = kernel(gpu, kind, arrays, each, rounds, gpu.blocks(THREADS))
    times = bench.out.repeat(partial(gpu.queued, start, 1))
    where = "hbm" if footprint >= 4 * gpu.l2 else "l2_or_dram"
    method = f"own kernel, 16 B a load past the L1, all SMs full, {rounds} passes a launch, CUDA events; reads + writes"
    work = footprint * rounds
    bench.out.add(f"{where}_{kind}_bw", times, case="kernel", size=footprint, work=work, method=method)


def _check(gpu: OpenGpu, a: int, b: int, size: int) -> None:
    """The copy kernel copies; the others share its loop."""
    gpu.fill(a, size, seed=5)
    kernel(gpu, "copy", (a, b), size, 1, gpu.blocks(THREADS))(0)
    gpu.verify(b, size, "copy by kernel", seed=5)


def _occupancy(bench: Bench, a: int, size: int) -> None:
    """Rate of a reading kernel by how many threads the GPU runs."""
    gpu, full = bench.gpu, bench.gpu.blocks(THREADS)
    most = gpu.sms * gpu.threads_per_sm
    for blocks in sorted({max(1, full * k // 32) for k in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32)}):
        if bench.out.time_for(f"read with {blocks} blocks"):
            times = bench.out.repeat(partial(gpu.queued, kernel(gpu, "read", (a,), size, 1, blocks), 1), most=15)
            threads = blocks * THREADS
            method = "own reading kernel, 4 loads of 16 B under way per thread, CUDA events"
            share = round(100 * threads / most, 1)
            param = {"threads": threads, "occupancy_pct": share}
            bench.out.add("hbm_read_bw", times, case="occupancy", size=size, work=size, method=method, param=param)
