"""What memory calls cost the host: 50 calls per size in shuffled order, on an idle device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gpusim.calibrate.measure.bench import Bench, GiB, KiB, MiB

METHOD = "host clock, {repeats} calls a size in shuffled order, device idle, through Python (see binding_call_us)"
Steps = Callable[[int], dict[str, float]]
"""Makes and frees memory of one size -> metric -> ns."""


def run(bench: Bench) -> None:
    quick = bench.out.quick
    largest = bench.most(256 * MiB if quick else 2 * GiB, 2, "allocation")
    few = [2 * MiB, 32 * MiB] if quick else [2 * MiB, 32 * MiB, 256 * MiB, GiB]
    sizes = [s for s in ([4 * KiB, MiB] if quick else [4 * KiB, 64 * KiB, MiB]) + few if s <= largest]
    pinned = bench.most(256 * MiB, 2, "pinned allocation", pinned=True)
    groups: dict[str, tuple[Steps, list[int]]] = {
        "cudamalloc": (lambda n: _malloc(bench, n), sizes),
        "cudamallocasync": (lambda n: _stream_ordered(bench, n), sizes),
        "cudahostalloc": (lambda n: _host(bench, n), [s for s in sizes if s <= pinned]),
        "vmm": (lambda n: _mapped(bench, n), [s for s in few if s <= min(largest, 256 * MiB)]),
    }
    for name, (steps, its) in groups.items():
        if bench.out.time_for(name):
            _shuffled(bench, name, steps, its)


def _shuffled(bench: Bench, name: str, steps: Steps, its: list[int]) -> None:
    repeats = 10 if bench.out.quick else 50
    order = its * repeats
    random.Random(1).shuffle(order)
    found: dict[tuple[str, int], list[float]] = {}
    for size in its:  # warm-up
        steps(size)
    for size in order:
        if not bench.out.time_for(f"rest of {name}"):
            break
        for metric, ns in steps(size).items():
            found.setdefault((metric, size), []).append(ns)
    for (metric, size), times in found.items():
        metric, _, pool = metric.partition(" ")
        param = {"pool": pool} if pool else {}
        bench.out.add(metric, times, case="alloc", size=size, method=METHOD.format(repeats=repeats), param=param)


class Timer:
    """Host times of calls, by metric."""

    def __init__(self, bench: Bench) -> None:
        self.clock = bench.out.clock
        self.ns: dict[str, float] = {}

    def __call__(self, metric: str, call: Callable[..., Any], *args: Any) -> Any:
        begin = self.clock()
        result = call(*args)
        self.ns[metric] = self.clock() - begin
        return result


def _malloc(bench: Bench, size: int) -> dict[str, float]:
    """The driver's calls below cudaMalloc and cudaFree."""
    timer, cuda = Timer(bench), bench.gpu.cuda
    bench.gpu.synchronize()
    memory = timer("cudamalloc_us", cuda.cuMemAlloc, size)
    timer("cudafree_us", cuda.cuMemFree, memory)
    return timer.ns


def _stream_ordered(bench: Bench, size: int) -> dict[str, float]:
    """The pool must ask the driver (miss), or has the memory of a request just freed (hit)."""
    timer, gpu, cuda = Timer(bench), bench.gpu, bench.gpu.cuda
    pool = cuda.cuDeviceGetDefaultMemPool(gpu.device)
    keep = cuda.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    cuda.cuMemPoolSetAttribute(pool, keep, cuda.api.cuuint64_t(2**63))
    gpu.synchronize()
    cuda.cuMemPoolTrimTo(pool, 0)
    memory = timer("cudamallocasync_us miss", cuda.cuMemAllocAsync, size, gpu.stream)
    timer("cudafreeasync_us", cuda.cuMemFreeAsync, memory, gpu.stream)
    gpu.synchronize()
    memory = timer("cudamallocasync_us hit", cuda.cuMemAllocAsync, size, gpu.stream)
    cuda.cuMemFreeAsync(memory, gpu.stream)
    gpu.synchronize()
    cuda.cuMemPoolTrimTo(pool, 0)
    return timer.ns


def _host(bench: Bench, size: int) -> dict[str, float]:
    """Pinned host memory."""
    timer, cuda = Timer(bench), bench.gpu.cuda
    memory = timer("cudahostalloc_us", cuda.cuMemHostAlloc, size, 0)
    timer("cudafreehost_us", cuda.cuMemFreeHost, memory)
    return timer.ns


def _mapped(bench: Bench, size: int) -> dict[str, float]:
    """One physical block of the size: reserve, create, map, set access; unmap, release, free the addresses."""
    timer, gpu, cuda = Timer(bench), bench.gpu, bench.gpu.cuda
    api = cuda.api
    wanted = api.CUmemAllocationProp()
    wanted.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = gpu.ordinal
    grain = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    step = int(cuda.cuMemGetAllocationGranularity(wanted, grain))
    size = -(-size // step) * step
    access = api.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    bench.gpu.synchronize()
    at = timer("cumemaddressreserve_us", cuda.cuMemAddressReserve, size, 0, 0, 0)
    block = timer("cumemcreate_us", cuda.cuMemCreate, size, wanted, 0)
    timer("cumemmap_us", cuda.cuMemMap, at, size, 0, block, 0)
    timer("cumemsetaccess_us", cuda.cuMemSetAccess, at, size, [access], 1)
    timer("cumemunmap_us", cuda.cuMemUnmap, at, size)
    timer("cumemrelease_us", cuda.cuMemRelease, block)
    timer("cumemaddressfree_us", cuda.cuMemAddressFree, at, size)
    return timer.ns
