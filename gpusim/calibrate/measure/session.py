"""A measurement from beginning to end: find the GPU, run the groups, write the file."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from gpusim.base.errors import MeasurementError, suggest
from gpusim.calibrate import rows
from gpusim.calibrate.measure import (
    allocation,
    copies,
    cuda,
    disk,
    host,
    latency,
    launch,
    local,
    machine,
    managed,
    nvml,
    peers,
    roofline,
    zero_copy,
)
from gpusim.calibrate.measure import chosen_gpu as device
from gpusim.calibrate.measure.bench import Bench, on_cpus
from gpusim.calibrate.measure.chosen_gpu import Card
from gpusim.calibrate.measure.gpu import I32, U64, OpenGpu
from gpusim.calibrate.measure.recorder import Clock, Recorder

GROUPS: dict[str, tuple[int, str]] = {
    "copies": (90, "host to device and back: pinned, pageable, both directions, several streams"),
    "local": (60, "memory of the GPU: copy engine, read, write, copy, triad, occupancy"),
    "latency": (30, "pointer chase in device and pinned host memory"),
    "launch": (30, "kernels by stream and graph, submission, small kernels"),
    "allocation": (45, "cudaMalloc, stream-ordered, pinned, mapped"),
    "managed": (40, "first touch, faults, prefetching, hints"),
    "zero_copy": (15, "kernels on pinned host memory"),
    "peers": (45, "several GPUs: copies, latency, all with the host at once"),
    "roofline": (40, "fp32 by intensity, matrix products, an elementwise kernel"),
    "host": (25, "copies in host memory, local and remote; needs no GPU"),
    "disk": (45, "files past the page cache; needs no GPU"),
}
"""Group -> seconds after which it begins no new point, and what it measures.  Together less than 8 minutes."""
SETS: dict[str, tuple[str, ...]] = {"kernel_times": ("local", "launch", "roofline")}
"""A name for several groups: what the model of kernel times needs of a GPU, streaming and L2, empty kernels, large products."""
QUICK = 9
"""--quick has so many times less."""
WITHOUT_GPU = ("host", "disk")


def measure(
    out: Path,
    only: list[str],
    *,
    quick: bool = False,
    ordinal: int = 0,
    force: bool = False,
    folder: Path = Path("."),
    say: Callable[[str], None] = print,
    clock: Clock = time.perf_counter_ns,
    load: Callable[[], tuple[cuda.Cuda, nvml.Nvml | None]] = lambda: (cuda.load(), nvml.load()),
    compared: bool = True,
) -> dict[str, Any]:
    """Measure and write the file; returns the conditions.  Raises MeasurementError when nothing could be measured.

    only    groups; all when empty.  NoGpu where one of them needs a GPU and there is none
    load    how the driver is found; replaced in tests
    compared  whether what arrives is compared with what was sent
    """
    names = groups_of(only)
    if not out.absolute().parent.is_dir():
        raise MeasurementError("the folder to write to does not exist", str(out))
    if not folder.is_dir():
        raise MeasurementError("the folder whose disk is to be measured does not exist", str(folder))
    facts = machine.facts(folder)
    begin = clock()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    source = f"gpusim calibrate measure on this machine, {now[:10]}"
    recorder = Recorder(rows.HOST, machine.name(facts), source, quick, clock, compared)
    bench = Bench(recorder, folder=folder)
    conditions: dict[str, Any] = {"date": now, "quick": quick, "machine": facts}
    with ExitStack() as stack:
        others: list[Card] = []
        if any(name not in WITHOUT_GPU for name in names):
            try:
                others = _open(bench, stack, conditions, ordinal, force, say, load)
            except cuda.NoGpu as error:
                alone = " ".join(f"--only {name}" for name in WITHOUT_GPU)
                hints = filter(None, (error.hint, f"{alone} measure the host alone"))
                raise cuda.NoGpu(error.message, hint="; ".join(hints)) from None
        for name in names:
            say(f"{name}: {GROUPS[name][1]}")
            _run(bench, name, others)
    conditions |= {"seconds": recorder.seconds, "total_seconds": round((clock() - begin) / 1e9, 1)}
    for key, found in (("left_out", recorder.left_out), ("shrunk", recorder.shrunk), ("outliers", recorder.outliers())):
        if found:
            conditions[key] = found
    if not recorder.rows:
        raise MeasurementError("nothing could be measured: " + "; ".join(recorder.left_out.values()))
    rows.write(out, recorder.rows, conditions)
    for what, why in recorder.left_out.items():
        say(f"left out: {what}: {why}")
    for line in recorder.shrunk:
        say(f"smaller: {line}")
    say(f"{out}: {len(recorder.rows)} rows in {conditions['total_seconds']} s")
    return conditions


def groups_of(only: list[str]) -> list[str]:
    """The groups that are named, by themselves or in a set; all where none is.  Raises MeasurementError for other names."""
    for name in only:
        if name not in GROUPS and name not in SETS:
            raise MeasurementError(f"'{name}' is not a group of measurements", hint=suggest(name, (*GROUPS, *SETS)))
    wanted = {group for name in only for group in SETS.get(name, (name,))}
    return [name for name in GROUPS if not only or name in wanted]


def _open(
    bench: Bench,
    stack: ExitStack,
    conditions: dict[str, Any],
    ordinal: int,
    force: bool,
    say: Callable[[str], None],
    load: Callable[[], tuple[cuda.Cuda, nvml.Nvml | None]],
) -> list[Card]:
    """Open the GPU and note its conditions; returns the further GPUs that may be used."""
    api, library = load()
    found = device.cards(api, library)
    card = device.choose(found, ordinal, force)
    if library is None:
        say("NVML cannot be asked: clocks, power and other users of the card are not seen (is nvidia-ml-py installed?)")
    gpu = OpenGpu(api, ordinal)
    stack.callback(_close, gpu)
    bench.gpu_or_none = gpu
    bench.near = machine.near(card.bus)
    bench.room = device.room(gpu.free_bytes(), shared=bool(card.trouble))
    bench.out.gpu = device.row_name(card.name)
    version = int(api.cuDriverGetVersion())
    toolkit = ".".join(str(v) for v in api.nvrtcVersion())
    say(f"GPU {ordinal}: {card.name}, driver of CUDA {version // 1000}.{version % 1000 // 10}, NVRTC {toolkit}")
    conditions["gpu"] = {
        "name": card.name, "ordinal": ordinal, "pci": card.bus, "compute_capability": card.capability / 10,
        "sms": gpu.sms, "l2_bytes": gpu.l2, "free_bytes": gpu.free_bytes(), "cuda": version, "nvrtc": toolkit,
    }  # fmt: skip
    if card.trouble:
        conditions["forced"] = card.trouble
    if library is not None and card.handle is not None:
        conditions["gpu"] |= nvml.identity(library, card.handle)
        conditions["idle"] = nvml.state(library, card.handle)
        conditions["load"] = _under_load(bench, library, card.handle)
    others = [c for c in found if c.ordinal != ordinal and (not c.trouble or force)]
    if library is None or card.handle is None:
        return others
    return [dataclasses.replace(c, meets=nvml.level(library, card.handle, c.handle) if c.handle else "") for c in others]


def _close(gpu: OpenGpu) -> None:
    with suppress(MeasurementError):  # after some errors a context cannot be closed; what was measured before is good
        gpu.close()


def _under_load(bench: Bench, library: nvml.Nvml, handle: Any) -> dict[str, Any]:
    """Clocks, power and the link while the GPU computes and copies; afterwards all clocks are up."""
    gpu, size = bench.gpu, bench.most(64 << 20, 2, "load", pinned=True)
    with gpu.buffer(size) as device_memory, gpu.pinned(size) as data:
        found: dict[str, Any] = {}
        for step in range(12):
            for _ in range(20):
                args = (U64(device_memory), U64(size // 16), I32(100), U64(gpu.scratch))
                gpu.launch("stream_read", gpu.blocks(), 1024, *args)
                gpu.cuda.cuMemcpyHtoDAsync(device_memory, data.ctypes.data, size, gpu.other)
            if step >= 9:
                found = nvml.state(library, handle)
            gpu.synchronize()
        gpu.cuda.cuStreamSynchronize(gpu.other)
    return found


def _run(bench: Bench, name: str, others: list[Card]) -> None:
    """One group; what fails in it is noted, and the others go on."""
    tests: dict[str, Callable[[Bench], None]] = {
        "copies": copies.run, "local": local.run, "latency": latency.run, "launch": launch.run, "allocation": allocation.run,
        "managed": managed.run, "zero_copy": zero_copy.run, "roofline": roofline.run, "host": host.run, "disk": disk.run,
        "peers": lambda b: peers.run(b, others),
    }  # fmt: skip
    if name == "peers" and not others:
        bench.out.left_out[name] = "there is no second GPU to use"
        return
    cpus = os.sched_getaffinity(0) if name in WITHOUT_GPU else bench.near
    with bench.out.group(name, GROUPS[name][0] / (QUICK if bench.out.quick else 1)), on_cpus(cpus):
        try:
            tests[name](bench)
        except (MeasurementError, OSError, MemoryError) as error:
            bench.out.left_out[name] = f"{error}" or type(error).__name__
