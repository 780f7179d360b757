"""Managed memory, always within what is free: first touch, faults both ways, prefetching, hints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, MiB
from gpusim.calibrate.measure.gpu import U32, U64, OpenGpu, pattern, view
from gpusim.calibrate.measure.recorder import sizes

HOST = -1
"""The CPU as a place of managed memory."""
FRESH = "fresh managed memory for each repeat, host clock with the wait for the device"


def run(bench: Bench) -> None:
    gpu = bench.gpu
    if not gpu.cuda.attribute(gpu.device, "CONCURRENT_MANAGED_ACCESS"):
        bench.out.left_out["managed"] = "this system moves managed memory as a whole, not by page (no concurrent access)"
        return
    largest = bench.most((64 if bench.out.quick else 256) * MiB, 2, "managed memory")
    for size in sizes(min(2 * MiB, largest), largest, 8):
        for metric, (once, method) in _tests(bench, size).items():
            metric, _, hint = metric.partition(" ")
            if bench.out.time_for(f"{metric} {hint} {size}"):
                times = bench.out.repeat(once, least=3, most=11)
                param = {"hint": hint} if hint else {}
                case = "-".join(filter(None, ("managed", hint)))
                bench.out.add(metric, times, case=case, size=size, work=size, method=f"{method}; {FRESH}", param=param)


def _tests(bench: Bench, size: int) -> dict[str, tuple[Callable[[], float], str]]:
    """Metric (and hint) -> what measures it once in ns, and how."""
    gpu, clock = bench.gpu, bench.out.clock
    wanted = pattern(size)
    checksum = int(np.bitwise_xor.reduce(wanted))

    def spent(*work: Callable[[], None]) -> float:
        begin = clock()
        for do in work:
            do()
        gpu.synchronize()
        return clock() - begin

    def alloc_and_touch() -> float:
        begin = clock()
        with _managed(gpu, size) as at:
            gpu.fill(at, size)
            gpu.synchronize()
            return clock() - begin

    def first_touch() -> float:
        with _managed(gpu, size) as at:
            return spent(lambda: gpu.fill(at, size))

    def gpu_read(hint: str) -> float:
        with _managed(gpu, size) as at:
            view(at, size).view(np.uint32)[:] = wanted
            _advise(gpu, at, size, hint)
            ns = spent(lambda: gpu.launch("touch_read_16", gpu.blocks(), 1024, U64(at), U64(size // 16), U64(gpu.scratch)))
            gpu.verify(at, size, "managed memory read by the GPU")
            return ns

    def cpu_read() -> float:
        with _managed(gpu, size) as at:
            gpu.fill(at, size)
            gpu.synchronize()
            words = view(at, size).view(np.uint32)
            begin = clock()
            found = int(np.bitwise_xor.reduce(words))
            ns = clock() - begin
            if bench.out.compared and found != checksum:
                raise MeasurementError("managed memory read by the CPU holds wrong bytes; nothing of it is trusted")
            return ns

    def prefetch(to: int) -> float:
        with _managed(gpu, size) as at:
            if to == HOST:
                gpu.fill(at, size)
                gpu.synchronize()
            else:
                view(at, size).view(np.uint32)[:] = wanted
            ns = spent(lambda: _prefetch(gpu, at, size, to))
            gpu.verify(at, size, "prefetched managed memory")
            return ns

    return {
        "managed_alloc_first_touch_us": (alloc_and_touch, "cuMemAllocManaged and a kernel that writes all of it"),
        "managed_first_touch_bw": (first_touch, "a kernel writes all of it"),
        "managed_gpu_read_bw none": (lambda: gpu_read("none"), "written by the CPU, then read by a kernel"),
        "managed_gpu_read_bw read_mostly": (lambda: gpu_read("read_mostly"), "the same with this hint"),
        "managed_gpu_read_bw preferred_host": (lambda: gpu_read("preferred_host"), "the same, preferred on the host"),
        "managed_cpu_read_bw": (cpu_read, "written by a kernel, then read by one thread of the CPU"),
        "managed_prefetch_h2d_bw": (lambda: prefetch(gpu.ordinal), "written by the CPU, then cuMemPrefetchAsync to the GPU"),
        "managed_prefetch_d2h_bw": (lambda: prefetch(HOST), "written by a kernel, then cuMemPrefetchAsync to the host"),
        "managed_free_us": (lambda: _freeing(gpu, size, clock), "cuMemFree of what a kernel wrote"),
    }


@contextmanager
def _managed(gpu: OpenGpu, size: int) -> Iterator[int]:
    at = int(gpu.cuda.cuMemAllocManaged(size, gpu.cuda.api.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    try:
        yield at
    finally:
        gpu.synchronize()
        gpu.cuda.cuMemFree(at)


def _freeing(gpu: OpenGpu, size: int, clock: Callable[[], int]) -> float:
    at = int(gpu.cuda.cuMemAllocManaged(size, gpu.cuda.api.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    gpu.launch("touch_write_4", gpu.blocks(), 1024, U64(at), U64(size // 4), U32(1))
    gpu.synchronize()
    begin = clock()
    gpu.cuda.cuMemFree(at)
    return clock() - begin


def _place(gpu: OpenGpu, to: int) -> object:
    """A place as this version of the bindings wants it: CUDA 13 takes a CUmemLocation, CUDA 12 a number."""
    api = gpu.cuda.api
    if hasattr(api, "cuMemPrefetchAsync_v2"):  # the bindings of CUDA 12, where the plain names are the old calls
        return to
    place = api.CUmemLocation()
    kinds = api.CUmemLocationType
    place.type = kinds.CU_MEM_LOCATION_TYPE_HOST if to == HOST else kinds.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = max(0, to)
    return place


def _prefetch(gpu: OpenGpu, at: int, size: int, to: int) -> None:
    place = _place(gpu, to)
    flags = () if isinstance(place, int) else (0,)
    gpu.cuda.cuMemPrefetchAsync(at, size, place, *flags, gpu.stream)


def _advise(gpu: OpenGpu, at: int, size: int, hint: str) -> None:
    kinds = gpu.cuda.api.CUmem_advise
    if hint == "read_mostly":
        gpu.cuda.cuMemAdvise(at, size, kinds.CU_MEM_ADVISE_SET_READ_MOSTLY, _place(gpu, gpu.ordinal))
    elif hint == "preferred_host":
        gpu.cuda.cuMemAdvise(at, size, kinds.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, _place(gpu, HOST))
        gpu.cuda.cuMemAdvise(at, size, kinds.CU_MEM_ADVISE_SET_ACCESSED_BY, _place(gpu, gpu.ordinal))
