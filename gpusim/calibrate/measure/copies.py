"""Copies between host and device by the copy engines: alone, both directions, several streams, pinned and pageable."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, GiB, KiB, MiB
from gpusim.calibrate.measure.gpu import Bytes, OpenGpu, pattern
from gpusim.calibrate.measure.recorder import sizes

CALL = "cuMemcpyHtoDAsync or cuMemcpyDtoHAsync"
QUEUED = f"{CALL}, pinned, queued behind a spin kernel, CUDA events, places rotated over a window larger than the L2"
CHECKED = 64 * MiB
"""The end of a copy that is compared byte by byte."""


class Window:
    """A device and a host buffer, over which copies of any size go round."""

    def __init__(self, gpu: OpenGpu, device: int, data: Bytes, compared: bool = True) -> None:
        self.gpu, self.device, self.data, self.compared = gpu, device, data, compared
        self.host: int = data.ctypes.data

    def copy(self, direction: str, size: int, i: int = 0, stream: Any = None) -> None:
        """Start the i-th copy of this size."""
        at = i % max(1, len(self.data) // size) * size
        stream = self.gpu.stream if stream is None else stream
        if direction == "h2d":
            self.gpu.cuda.cuMemcpyHtoDAsync(self.device + at, self.host + at, size, stream)
        else:
            self.gpu.cuda.cuMemcpyDtoHAsync(self.host + at, self.device + at, size, stream)

    def copy_and_wait(self, direction: str, size: int) -> None:
        self.copy(direction, size)
        self.gpu.synchronize()

    def check(self, direction: str, size: int) -> None:
        """Raise MeasurementError unless a copy delivers its last bytes."""
        part = min(size, CHECKED) // 4 * 4
        at = size - part
        words = self.data[at:size].view(np.uint32)
        if direction == "h2d":
            words[:] = pattern(part, seed=size)
            self.gpu.cuda.cuMemsetD8Async(self.device + at, 0, part, self.gpu.stream)
            self.copy(direction, size)
            self.gpu.verify(self.device + at, part, f"{size} bytes from host to device", seed=size)
        else:
            words[:] = 0
            self.gpu.fill(self.device + at, part, seed=size)
            self.copy_and_wait(direction, size)
            if self.compared and not np.array_equal(words, pattern(part, seed=size)):
                raise MeasurementError(f"{size} bytes from device to host arrived wrong; nothing of this is trusted")


def run(bench: Bench) -> None:
    quick, gpu = bench.out.quick, bench.gpu
    largest = bench.most(64 * MiB if quick else GiB, 1, "copies", pinned=True)
    window = bench.most(max(largest, 4 * gpu.l2), 1, "window of copies", pinned=True)
    with gpu.buffer(window) as device, gpu.pinned(window) as data:
        space = Window(gpu, device, data, bench.out.compared)
        for size in sizes(KiB, largest, 8 if quick else 2):
            _queued(bench, space, size)
        for size in sizes(4, min(16 * MiB, largest), 16 if quick else 4):
            _waited_for(bench, space, size, "pinned")
        for size in sizes(min(MiB, largest), min(largest, 512 * MiB), 8):
            _both(bench, space, size)
        _streams(bench, space, min(32 * MiB, window // 8))
    # The driver stages these through pinned memory of its own, and a call may return before all has arrived.
    with gpu.buffer(min(largest, 256 * MiB)) as device:
        space = Window(gpu, device, np.ones(min(largest, 256 * MiB), np.uint8), bench.out.compared)
        for size in sizes(4 * KiB, len(space.data), 8 if quick else 4):
            _waited_for(bench, space, size, "pageable")


def _queued(bench: Bench, space: Window, size: int) -> None:
    count = max(1, min(64, 16 * MiB // size))
    for direction in ("h2d", "d2h"):
        if bench.out.time_for(f"{direction} {size}"):
            space.check(direction, size)
            times = bench.out.repeat(partial(space.gpu.queued, partial(space.copy, direction, size), count))
            method = f"{QUEUED}; {count} copies a repeat"
            bench.out.add(f"{direction}_pinned_bw", times, case="queued", size=size, work=size, method=method)


def _waited_for(bench: Bench, space: Window, size: int, kind: str) -> None:
    for direction in ("h2d", "d2h"):
        if bench.out.time_for(f"{direction} {kind} {size}"):
            space.check(direction, size)
            times = bench.out.repeat(partial(bench.out.timed, partial(space.copy_and_wait, direction, size)))
            method = f"{CALL}, {kind}, and cuStreamSynchronize, host clock around both, through Python"
            if kind == "pinned":
                bench.out.add(f"{direction}_pinned_time_us", times, case="sync", size=size, method=method)
            else:
                bench.out.add(f"{direction}_pageable_bw", times, case="pageable", size=size, work=size, method=method)


def _both(bench: Bench, space: Window, size: int) -> None:
    """Each direction while the other is busy throughout."""
    count = max(2, min(32, 64 * MiB // size))
    for direction, against in (("h2d", "d2h"), ("d2h", "h2d")):
        if bench.out.time_for(f"{direction} with {against} {size}"):
            other = partial(space.copy, against, size, stream=space.gpu.other)
            times = bench.out.repeat(partial(space.gpu.queued, partial(space.copy, direction, size), count, other))
            method = f"{QUEUED}; this direction only, the other busy throughout; {count} copies a repeat"
            bench.out.add(f"{direction}_pinned_bidir_bw", times, case="both", size=size, work=size, method=method)


def _streams(bench: Bench, space: Window, size: int) -> None:
    """Copies of one direction on several streams: what more engines would help."""
    gpu = space.gpu
    for count in (1, 2, 4):
        streams = [gpu.new_stream() for _ in range(count)]
        for direction in ("h2d", "d2h"):
            if bench.out.time_for(f"{direction} on {count} streams"):
                times = bench.out.repeat(partial(gpu.at_once, partial(space.copy, direction, size), streams))
                method = f"{CALL}, pinned, one copy a stream, released together; all bytes over the time until all are done"
                metric, work, param = f"{direction}_pinned_bw", size * count, {"streams": count}
                bench.out.add(metric, times, case="streams", size=size, work=work, method=method, param=param)
        for stream in streams:
            gpu.cuda.cuStreamDestroy(stream)
