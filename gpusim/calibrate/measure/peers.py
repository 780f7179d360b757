"""Several GPUs of one machine: copies and loads between them, and copies of all to and from the host at once."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpusim.calibrate.measure.bench import Bench, KiB, MiB
from gpusim.calibrate.measure.chosen_gpu import Card, way
from gpusim.calibrate.measure.cuda import CudaError
from gpusim.calibrate.measure.gpu import SPIN_LIMIT, U64, OpenGpu
from gpusim.calibrate.measure.latency import FAR, Chain, walk
from gpusim.calibrate.measure.recorder import sizes

ALL = 128 * MiB
"""Bytes per GPU when all copy at once."""


def run(bench: Bench, others: list[Card]) -> None:
    """others: the further GPUs of the machine that may be used."""
    first = bench.gpu
    gpus = [first]
    try:
        for card in others:
            gpus.append(OpenGpu(first.cuda, card.ordinal, first.image if card.capability == first.capability else None))
        _at_once(bench, gpus)
        for other, card in zip(gpus[1:], others, strict=True):
            if bench.out.time_for(f"peer {card.ordinal}"):
                _pair(bench, first, other, way(first.cuda, first.ordinal, card.ordinal), card.meets)
    finally:
        for other in gpus[1:]:
            other.close()
        first.enter()


def _pair(bench: Bench, a: OpenGpu, b: OpenGpu, kind: str, meets: str) -> None:
    """First without access to each other (by way of the host), then with it."""
    largest = bench.most(64 * MiB if bench.out.quick else 512 * MiB, 4, "peer copies")
    pair: dict[str, object] = {"src": a.ordinal, "dst": b.ordinal, **({"meets": meets} if meets else {})}
    b.enter()
    with b.buffer(largest) as there:
        a.enter()
        with a.buffer(largest) as here:
            _copies(bench, a, b, here, there, largest, "staged", pair)
            if kind == "staged":
                return
            for gpu, peer in ((b, a), (a, b)):
                gpu.enter()
                try:
                    gpu.cuda.cuCtxEnablePeerAccess(peer.context, 0)
                except CudaError as error:
                    if "ALREADY_ENABLED" not in error.message:
                        raise
            for size in sizes(64 * KiB, largest, 16):
                _copies(bench, a, b, here, there, size, kind, pair)
            method = "cuMemcpyPeerAsync of 16 B, 200 behind a spin kernel, CUDA events"
            times = bench.out.repeat(partial(a.queued, partial(_copy, a, b, here, there, 16), 200))
            bench.out.add("p2p_latency_us", times, case="peer", size=16, method=method, param=pair)
            chain = Chain(there, min(FAR, largest))
            b.enter()
            b.write(there, chain.memory)
            a.enter()
            walk(bench, a, "peer_access_latency_ns", chain, far=True, case="chase", param=pair)


def _copy(a: OpenGpu, b: OpenGpu, here: int, there: int, size: int, _: int = 0, back: bool = False, stream: Any = None) -> None:
    ends = (there, b.context, here, a.context)
    a.cuda.cuMemcpyPeerAsync(*(ends[2:] + ends[:2] if back else ends), size, a.stream if stream is None else stream)


def _copies(
    bench: Bench, a: OpenGpu, b: OpenGpu, here: int, there: int, size: int, kind: str, pair: dict[str, object]
) -> None:
    """One direction, then both."""
    count = max(1, min(16, 256 * MiB // size))
    a.fill(here, size, seed=size)
    a.synchronize()
    go = partial(_copy, a, b, here, there, size)
    if kind == "staged":  # it blocks the host, so nothing may hold the stream
        method = "cuMemcpyPeerAsync without peer access (through the host) and the wait for it, host clock"

        def go_and_wait() -> None:
            go()
            a.synchronize()

        times = bench.out.repeat(partial(bench.out.timed, go_and_wait), most=11)
    else:
        method = f"cuMemcpyPeerAsync, {count} behind a spin kernel, CUDA events"
        times = bench.out.repeat(partial(a.queued, go, count), most=21)
    b.enter()
    b.verify(there, size, f"{size} bytes from GPU {a.ordinal} to {b.ordinal}", seed=size)
    a.enter()
    bench.out.add(f"p2p_{kind}_bw", times, case="peer", size=size, work=size, method=method, param=pair)
    if kind != "staged":
        half = size // 2

        def both(i: int, stream: Any) -> None:
            _copy(a, b, here + i * half, there + i * half, half, back=bool(i), stream=stream)

        streams = [a.new_stream(), a.new_stream()]
        times = bench.out.repeat(partial(a.at_once, both, streams), most=21)
        for stream in streams:
            a.cuda.cuStreamDestroy(stream)
        method = "cuMemcpyPeerAsync, half of the bytes each way at once, released together, both directions summed, CUDA events"
        bench.out.add(f"p2p_{kind}_bidir_total_bw", times, case="peer", size=size, work=size, method=method, param=pair)


def _at_once(bench: Bench, gpus: list[OpenGpu]) -> None:
    """The rate of each GPU while all others copy in the same direction."""
    count = 4
    size = bench.most(ALL, len(gpus), "all GPUs at once", pinned=True)
    with gpus[0].pinned(size * len(gpus)) as data:
        host = data.ctypes.data
        memory = []
        for gpu in gpus:
            gpu.enter()
            memory.append(int(gpu.cuda.cuMemAlloc(size)))
        for metric, down in (("host_to_all_bw", True), ("all_to_host_bw", False)):
            if not bench.out.time_for(metric):
                continue
            rounds = [_round(gpus, memory, host, size, count, down) for _ in range(3 if bench.out.quick else 9)][1:]
            for i, gpu in enumerate(gpus):
                method = f"{count} pinned copies per GPU, released together by one flag; this GPU's own time, CUDA events"
                times = [r[i] for r in rounds]
                param = {"gpu": gpu.ordinal, "gpus": len(gpus)}
                bench.out.add(metric, times, case="all", size=size, work=size, method=method, param=param)
        for gpu, address in zip(gpus, memory, strict=True):
            gpu.enter()
            gpu.cuda.cuMemFree(address)
        gpus[0].enter()


def _round(gpus: list[OpenGpu], memory: list[int], host: int, size: int, count: int, down: bool) -> list[float]:
    """ns per copy on each GPU; one pinned flag holds the streams of all."""
    gate = gpus[0]
    gate.flag[0] = 0
    try:
        for i, gpu in enumerate(gpus):
            gpu.enter()
            cuda, at = gpu.cuda, host + i * size
            gpu.launch("spin", 1, 1, U64(gate.flag_address), U64(SPIN_LIMIT))
            cuda.cuEventRecord(gpu.begin, gpu.stream)
            for _ in range(count):
                if down:
                    cuda.cuMemcpyHtoDAsync(memory[i], at, size, gpu.stream)
                else:
                    cuda.cuMemcpyDtoHAsync(at, memory[i], size, gpu.stream)
            cuda.cuEventRecord(gpu.end, gpu.stream)
    finally:
        gate.flag[0] = 1
    times = []
    for gpu in gpus:
        gpu.enter()
        gpu.synchronize()
        times.append(float(gpu.cuda.cuEventElapsedTime(gpu.begin, gpu.end)) * 1e6 / count)
    gate.enter()
    return times
