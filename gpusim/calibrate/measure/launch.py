"""What a kernel, a copy and a wait cost beside their work: on the host, and on the device by stream and by graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpusim.calibrate.measure.bench import Bench, KiB, MiB
from gpusim.calibrate.measure.gpu import OpenGpu
from gpusim.calibrate.measure.local import THREADS, kernel
from gpusim.calibrate.measure.recorder import sizes

NODES = 100
HOST = "host clock, through Python (see binding_call_us)"


def run(bench: Bench) -> None:
    _host(bench)
    _kernels(bench)
    _small(bench)


def _host(bench: Bench) -> None:
    """Calls as the host sees them; the stream is empty before each."""
    gpu, out, cuda = bench.gpu, bench.out, bench.gpu.cuda
    null, nothing = gpu.functions["null_kernel"], cuda.cuLaunchKernel

    def launch() -> None:
        nothing(null, 1, 1, 1, 1, 1, 1, 0, gpu.stream, 0, 0)

    def launch_and_wait() -> None:
        launch()
        gpu.synchronize()

    with gpu.buffer(KiB) as device, gpu.pinned(KiB) as data:
        host = data.ctypes.data

        def copy() -> None:
            cuda.cuMemcpyHtoDAsync(device, host, 4, gpu.stream)

        calls: dict[str, tuple[Callable[[], Any], int, str]] = {
            "binding_call_us": (cuda.cuDriverGetVersion, 100, "a driver call without work: what Python adds to each"),
            "kernel_launch_us": (launch, 200, "submission of an empty kernel, 200 in a row, not waited for"),
            "memcpyasync_submit_us": (copy, 200, "submission of 4 B from pinned memory, 200 in a row, not waited for"),
            "stream_sync_idle_us": (gpu.synchronize, 50, "cuStreamSynchronize of an idle stream"),
            "stream_sync_per_launch_us": (launch_and_wait, 1, "empty kernel and cuStreamSynchronize"),
            "memcpy_sync_small_us": (partial(cuda.cuMemcpyHtoD, device, host, 4), 1, "cuMemcpyHtoD of 4 B from pinned memory"),
        }
        for metric, (call, count, what) in calls.items():
            if out.time_for(metric):

                def once(call: Callable[[], Any] = call, count: int = count) -> float:
                    gpu.synchronize()
                    return out.timed(call, count)

                out.add(metric, out.repeat(once), case="submit", method=f"{what}, {HOST}")
        gpu.synchronize()


def _kernels(bench: Bench) -> None:
    """Device time from one empty kernel to the next."""
    gpu, out, cuda = bench.gpu, bench.out, bench.gpu.cuda

    def null(_: int) -> None:
        cuda.cuLaunchKernel(gpu.functions["null_kernel"], 1, 1, 1, 1, 1, 1, 0, gpu.stream, 0, 0)

    if out.time_for("empty kernels of a stream"):
        method = "empty kernels in a row behind a spin kernel, CUDA events"
        times = out.repeat(partial(gpu.queued, null, 400))
        out.add("null_kernel_us", times, case="stream", method=method, param={"mode": "stream"})
    if not out.time_for("empty kernels of a graph"):
        return
    graph = Graph(gpu, null, NODES)
    method = f"graph of {NODES} empty kernels in a row, CUDA events, per kernel"
    times = [t / NODES for t in out.repeat(partial(gpu.queued, graph.launch, 4))]
    out.add("null_kernel_us", times, case="graph", method=method, param={"mode": "graph"})

    def launch() -> float:
        gpu.synchronize()
        return out.timed(graph.launch)

    method = f"submission of a graph of {NODES} empty kernels, {HOST}"
    out.add("graph_launch_us", out.repeat(launch), case="submit", method=method, param={"nodes": NODES})
    graph.close()

    def instantiate() -> float:
        fresh = Graph(gpu, null, NODES, out.clock)
        fresh.close()
        return fresh.instantiated

    method = f"cuGraphInstantiate of {NODES} empty kernels, {HOST}"
    out.add("graph_instantiate_us", out.repeat(instantiate), case="submit", method=method, param={"nodes": NODES})


class Graph:
    """Operations captured once and launched as one."""

    def __init__(self, gpu: OpenGpu, enqueue: Callable[[int], None], count: int, clock: Callable[[], int] = lambda: 0) -> None:
        self.gpu, cuda = gpu, gpu.cuda
        cuda.cuStreamBeginCapture(gpu.stream, cuda.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        for i in range(count):
            enqueue(i)
        self.graph = cuda.cuStreamEndCapture(gpu.stream)
        begin = clock()
        self.ready = cuda.cuGraphInstantiate(self.graph, 0)
        self.instantiated = clock() - begin

    def launch(self, _: int = 0) -> None:
        self.gpu.cuda.cuGraphLaunch(self.ready, self.gpu.stream)

    def close(self) -> None:
        self.gpu.synchronize()
        self.gpu.cuda.cuGraphExecDestroy(self.ready)
        self.gpu.cuda.cuGraphDestroy(self.graph)


def _small(bench: Bench) -> None:
    """Kernels of real but small work, back to back: where launching costs more than the memory does."""
    gpu, out = bench.gpu, bench.out
    largest = bench.most(64 * MiB, 1, "small kernels")
    with gpu.buffer(largest) as memory:
        for footprint in sizes(64 * KiB, largest, 16 if out.quick else 2):
            each = footprint // 2
            blocks = min(gpu.blocks(THREADS), max(1, each // 16 // THREADS))
            start = kernel(gpu, "copy", (memory, memory + each), each, 1, blocks)
            count = max(10, min(200, 512 * MiB // footprint))
            for mode in ("stream", "graph"):
                if not out.time_for(f"{footprint} by {mode}"):
                    continue
                if mode == "stream":
                    times = out.repeat(partial(gpu.queued, start, count), most=15)
                else:
                    graph = Graph(gpu, start, count)
                    times = [t / count for t in out.repeat(partial(gpu.queued, graph.launch, 1), most=15)]
                    graph.close()
                us = sorted(times)[len(times) // 2] / 1e3
                method = f"{count} copying kernels in a row, footprint in + out, CUDA events"
                out.add(
                    "queued_kernel_scale_bw", times, case=mode, size=footprint, work=footprint, method=method,
                    param={"mode": mode, "us_per_kernel": f"{us:.3f}"},
                )  # fmt: skip
