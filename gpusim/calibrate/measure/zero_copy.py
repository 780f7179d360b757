"""Kernels that read and write pinned host memory: as copies, and by the width of an access."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, KiB, MiB
from gpusim.calibrate.measure.gpu import U32, U64, pattern
from gpusim.calibrate.measure.local import THREADS, kernel
from gpusim.calibrate.measure.recorder import sizes

WIDTHS = (1, 4, 8, 16)


def run(bench: Bench) -> None:
    gpu, out = bench.gpu, bench.out
    largest = bench.most(16 * MiB if out.quick else 256 * MiB, 1, "zero-copy", pinned=True)
    with gpu.buffer(largest) as device, gpu.pinned(largest) as data:
        host, words = data.ctypes.data, data.view(np.uint32)
        for size in sizes(64 * KiB, largest, 16):
            if not out.time_for(f"copies by kernel {size}"):
                break
            words[: size // 4] = pattern(size, seed=size)
            _copies(bench, "h2d", (host, device), size)
            gpu.verify(device, size, "host to device by kernel", seed=size)
            words[: size // 4] = 0
            _copies(bench, "d2h", (device, host), size)
            if out.compared and not np.array_equal(words[: size // 4], pattern(size, seed=size)):
                raise MeasurementError("device to host by kernel: bytes arrived wrong; nothing of this is trusted")
        size = min(largest, 32 * MiB)
        for width in WIDTHS:
            if out.time_for(f"accesses of {width} B"):
                _accesses(bench, host, words, size, width)


def _copies(bench: Bench, direction: str, arrays: tuple[int, int], size: int) -> None:
    start = kernel(bench.gpu, "copy", arrays, size, 1, bench.gpu.blocks(THREADS))
    times = bench.out.repeat(partial(bench.gpu.queued, start, 1), most=21)
    method = "own copying kernel, 16 B a load, all SMs full, pinned, CUDA events"
    bench.out.add(f"{direction}_sm_copy_bw", times, case="kernel", size=size, work=size, method=method)


def _accesses(bench: Bench, host: int, words: np.ndarray, size: int, width: int) -> None:
    gpu = bench.gpu
    blocks = gpu.blocks(THREADS)
    for verb, last in (("read", U64(gpu.scratch)), ("write", U32(0x3F3F3F3F))):

        def touch(_: int, verb: str = verb, last: Any = last) -> None:
            gpu.launch(f"touch_{verb}_{width}", blocks, THREADS, U64(host), U64(size // width), last)

        words[: size // 4] = 0
        times = bench.out.repeat(partial(gpu.queued, touch, 1), most=21)
        if bench.out.compared and verb == "write" and not (words[: size // 4].view(np.uint8)[::width] == 0x3F).all():
            raise MeasurementError(f"writes of {width} B to the host arrived wrong; nothing of this is trusted")
        method = f"own kernel, neighbouring threads {verb} neighbouring items, pinned host memory, CUDA events"
        param = {"access_bytes": width}
        bench.out.add(f"zero_copy_{verb}_bw", times, case="width", size=size, work=size, method=method, param=param)
