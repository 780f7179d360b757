"""Programs of published unified-memory measurements, written down from their sources, each run once on its machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from gpusim.engine.pages.simulate import UvmResult, simulate_uvm
from gpusim.machine.platforms import Platform, load
from gpusim.programs.managed import patterns as p
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, Prefetch

T = TypeVar("T")
MIB, GIB = 1 << 20, 1 << 30
T4 = "t4(link.h2d=6.3 GB/s, link.d2h=6.6 GB/s)"  # eight lanes, as in a cloud machine
GTX_1080 = "gtx-1080-ti(gpu.sm_count=20, memory.capacity=8 GiB, memory.copy=280 GB/s)"
RTX_2080_SUPER = "rtx-2080-ti(gpu.sm_count=48, memory.capacity=8 GiB)"
A5000 = "rtx-a6000(gpu.sm_count=64, memory.capacity=24 GiB)"
RTX_5090 = "rtx-5090(memory.capacity=32 GiB, context=0.6 GiB)"  # 31.4 GiB usable
ON_CPU = ("interrupt", "batch", "block", "first_touch", "page", "page_out", "chunk", "run", "cpu_fault", "cpu_page")
BEFORE_2023 = {"uvm_cpu_chunk_allocation_sizes": 4096}  # drivers that took host memory page by page


class UnknownProgramError(LookupError):
    """A row asks for a program, or a hint, that is not written down."""


def looked_up(table: Mapping[str, T], name: str, what: str) -> T:
    """What the table has under this name; UnknownProgramError with what it has, never something else in its place."""
    if name not in table:
        raise UnknownProgramError(f"no {what} '{name}' is written down (there are {', '.join(table)})")
    return table[name]


def ran(machine: str, arrays: dict[str, int], *steps: Any, **parameters: int) -> UvmResult:
    return simulate_uvm([Array(name, size) for name, size in arrays.items()], steps, load(machine), parameters)


def grid(n: int, bx: int = 32, by: int = 8) -> tuple[int, int]:
    return -(-n // bx), -(-n // by)


def one(name: str, *accesses: Access, threads: int, **more: Any) -> Kernel:
    """A kernel of as many threads in blocks of 256."""
    return Kernel(name, list(accesses), p.grid_for(threads, 256), (256, 1), **more)


@cache
def sparse(key: str) -> UvmResult:
    return sparse_on(load("rtx-5070-ti"), key)


def sparse_on(machine: Platform, key: str) -> UvmResult:
    place, k, threshold = re.fullmatch(r"(?:sparse|faultcount)_(in|ov)_K(\d+)_t(\d+)", key).groups()  # type: ignore[union-attr]
    blocks = 4096 if place == "in" else 12288
    rng = np.random.default_rng(7)
    pages = np.stack([rng.permutation(512)[: int(k)] for _ in range(blocks)]).astype(np.int64)
    kernel = replace(p.sparse("a", rng.permutation(blocks), pages), ns=None)
    steps = [HostTouch("a"), kernel, kernel, kernel]
    return simulate_uvm([Array("a", blocks * 2 * MIB)], steps, machine, {"uvm_perf_prefetch_threshold": int(threshold)})


# UVMSmart's programs on a GTX 1080 Ti.


@cache
def conv2d() -> UvmResult:
    return conv2d_on(load("gtx-1080-ti"))


def conv2d_on(machine: Platform) -> UvmResult:
    arrays = [Array("a", 4 * MIB), Array("b", 4 * MIB)]
    return simulate_uvm(arrays, [HostTouch("a"), p.conv2d("a", "b", 1024), HostTouch("b", write=False)], machine)


@cache
def triad() -> UvmResult:
    fill = [HostTouch(x) for x in "abc"]
    return ran("gtx-1080-ti", dict.fromkeys("abc", 4 * MIB), *fill, p.triad("a", "b", "c", MIB), HostTouch("a", write=False))


@cache
def random_access() -> UvmResult:
    kernel = one("ra", p.streaming("b"), p.scattered("a", 3), p.scattered("a", 3, write=True), threads=MIB)
    return ran("gtx-1080-ti", {"a": 4 * MIB, "b": 4 * MIB}, HostTouch("a"), HostTouch("b"), kernel)


@cache
def fdtd() -> UvmResult:
    n, block = 1200, (32, 8)
    at = lambda x, shift=0, write=False: p.tile2d(x, n, *block, shift=shift, write=write)  # noqa: E731
    steps = [
        Kernel("ey", [at("ey"), at("hz"), at("hz", -n), at("ey", 0, True)], grid(n), block),
        Kernel("ex", [at("ex"), at("hz"), at("hz", -1), at("ex", 0, True)], grid(n), block),
        Kernel("hz", [at("hz"), at("ex"), at("ex", 1), at("ey"), at("ey", n), at("hz", 0, True)], grid(n), block),
    ]
    names = ("ex", "ey", "hz")
    fill = [HostTouch(x) for x in names]
    return ran("gtx-1080-ti", dict.fromkeys(names, n * n * 4), *fill, *steps * 5, HostTouch("hz", write=False))


@cache
def pathfinder() -> UvmResult:
    columns, rows, height = 50_000, 200, 10
    kernels = []
    for k in range(rows // height):
        wall = Access("wall", tx=1, bx=236, start=k * height * columns, inner=columns)  # of 256 threads 20 are halo
        kernels.append(Kernel("pathfinder", [wall, p.streaming("in"), p.streaming("out", write=True)],
                              p.grid_for(columns, 236), (256, 1), (height, 1)))  # fmt: skip
    arrays = {"wall": columns * rows * 4, "in": columns * 4, "out": columns * 4}
    return ran("gtx-1080-ti", arrays, HostTouch("wall"), *kernels)


@cache
def backprop() -> UvmResult:
    """Rodinia's: a layer of n inputs and 16 hidden units; the host restores the weights between its two kernels."""
    n, hid, side = 131_056, 16, 16
    weights = {"bytes": 4, "start": hid + 2, "tx": 1, "ty": hid + 1, "by": (hid + 1) * side}
    shape = {"grid": (1, n // side), "block": (side, side)}
    inputs = Access("input", start=1, ty=1, by=side)
    forward = Kernel("layerforward", [inputs, Access("w", **weights), Access("w", True, **weights),
                                      Access("partial", True, tx=1, by=hid)], **shape)  # fmt: skip
    adjust = Kernel("adjust", [inputs, Access("w", **weights), Access("old", **weights), Access("w", True, **weights),
                               Access("old", True, **weights)], **shape)  # fmt: skip
    size = (n + 1) * (hid + 1) * 4
    arrays = {"input": (n + 1) * 4, "w": size, "old": size, "partial": n // side * hid * 4}
    fill = [HostTouch("input"), HostTouch("w"), HostTouch("old")]
    between = [HostTouch("partial", write=False), HostTouch("w")]
    return ran("gtx-1080-ti", arrays, *fill, forward, *between, adjust, HostTouch("input", write=False))


@cache
def bfs() -> UvmResult:
    """Rodinia's on a graph of its generator's kind: 1 to 11 edges a node, to random nodes; two kernels a level."""
    n = 261_444
    rng = np.random.default_rng(5)
    degree = rng.integers(1, 12, n)
    first = np.concatenate([[0], np.cumsum(degree)])
    to = rng.integers(0, n, first[-1])
    cost = np.full(n, -1)
    cost[0], level, depth, steps = 0, np.array([0]), 0, []
    names = {"nodes": n * 8, "edges": len(to) * 4, "mask": n, "updating": n, "visited": n, "cost": n * 4, "over": 4}
    while len(level):
        edges = np.concatenate([np.arange(first[v], first[v + 1]) for v in level])
        from_ = np.repeat(level, degree[level])
        mask = one("kernel1: mask", p.streaming("mask", size=1), threads=n)
        follow = one("kernel1", p.gather("nodes", from_, size=8), p.gather("edges", edges),
                     p.gather("visited", to[edges], size=1), p.gather("cost", to[edges], write=True),
                     p.gather("updating", to[edges], write=True, size=1), threads=len(edges))  # fmt: skip
        fresh = np.unique(to[edges][cost[to[edges]] < 0])
        depth += 1
        cost[fresh] = depth
        level = fresh
        steps += [HostTouch("over"), mask, follow, one("kernel2", p.streaming("updating", size=1), threads=n)]
        if len(level):
            mark = p.gather("mask", level, write=True, size=1)
            steps.append(one("kernel2: seen", mark, Access("over", True), threads=len(level)))
        steps.append(HostTouch("over", write=False))
    fill = [HostTouch(x) for x in names if x != "over"]
    return ran("gtx-1080-ti", names, *fill, *steps, HostTouch("cost", write=False))


@cache
def srad() -> UvmResult:
    """Rodinia's srad_v2, 1024 x 1024: in each of four iterations the host reads 128 rows, two kernels work on all.

    Of its arrays one is managed; those of cudaMalloc are on the GPU before, and stay.
    """
    n, block = 1024, (16, 16)
    at = lambda x, shift=0, write=False: p.tile2d(x, n, *block, shift=shift, write=write)  # noqa: E731
    made = ["e", "w", "n", "s", "c"]
    derive = [*(at("j", d) for d in (0, -n, n, -1, 1)), *(at(x, 0, True) for x in made)]
    diffuse = [*(at(x) for x in made), at("c", n), at("c", 1), at("j"), at("j", 0, True)]
    pair = [Kernel(name, accesses, grid(n, *block), block) for name, accesses in (("srad_1", derive), ("srad_2", diffuse))]
    step = [HostTouch("j", write=False, count=128 * n * 4), *pair]
    own = [Prefetch(x) for x in made]
    return ran("gtx-1080-ti", dict.fromkeys(["j", *made], 4 * MIB), *own, HostTouch("j"), *step * 4)


UVMSMART = {
    "2DCONV": conv2d, "StreamTriad": triad, "ra": random_access, "FDTD-2D": fdtd, "pathfinder": pathfinder,
    "backprop": backprop, "bfs": bfs, "srad_v2": srad,
}  # fmt: skip


@cache
def faults(machine: str, *units: int) -> UvmResult:
    return faults_on(load(machine), *units)


def faults_on(machine: Platform, *units: int) -> UvmResult:
    """One thread touches a byte in each of these units of 64 KiB, one kernel after the other."""
    touches = [Kernel(f"unit {u}", [Access("a", index=np.array([u * 16 * 1024]))], (1, 1), (1, 1), ns=0.0) for u in units]
    return simulate_uvm([Array("a", 4 * MIB)], [HostTouch("a"), *touches], machine)


# SpecAsync's programs.


@cache
def grid_pass(machine: str, name: str) -> UvmResult:
    return grid_pass_on(load(machine), name, both=machine == "rtx-5070-ti")


def grid_pass_on(machine: Platform, name: str, both: bool) -> UvmResult:
    """Stencils and sweeps of n x n floats, the input from the host, and the output if `both`."""
    kind, size = name.split("@")[0].split("-")[:2]
    n = looked_up(SIDES, size, "size")
    threshold = int(name.split("@")[1]) if "@" in name else 51
    steps = looked_up({"Stencil": stencil_passes, "Sweep": sweep_pass}, kind, "program")(n)
    fill = [HostTouch("a"), HostTouch("b")] if both else [HostTouch("a")]
    arrays = [Array("a", 4 * n * n), Array("b", 4 * n * n)]
    return simulate_uvm(arrays, [*fill, *steps], machine, {"uvm_perf_prefetch_threshold": threshold})


# Kernels of uvm_device.cu on an H100.

CPU_OF_H100 = 2.87, 251.0, 0.34  # uvm_fit.py


@cache
def h100() -> Platform:
    """The H100 of the measurements: its driver's work is that of a virtual machine."""
    return h100_at(*CPU_OF_H100)


def h100_at(factor: float, report: float, first: float) -> Platform:
    """Factors on all of the derived CPU's work, and on what a first touch takes beside; ns of a report."""
    machine = load("h100-sxm-80gb")
    work = replace(machine.work, **{name: factor * (getattr(machine.work, name) or 0.0) for name in ON_CPU})
    touch = {name: first * getattr(work, name) for name in ("first_touch", "setup")}
    return replace(machine, work=replace(work, fault=report, batch=work.batch + work.fault - report, **touch))


@cache
def device_kernel(name: str) -> UvmResult:
    return device_kernel_on(name, h100())


def device_kernel_on(name: str, machine: Platform) -> UvmResult:
    arrays, steps = looked_up(DEVICE_KERNELS, name, "kernel")()
    return simulate_uvm([Array(x, size) for x, size in arrays.items()], steps, machine)


def _stream(floats: int) -> tuple[dict[str, int], list[Any]]:
    kernel = one("triad", p.streaming("b"), p.streaming("c"), p.streaming("a", write=True), threads=floats)
    return dict.fromkeys("abc", 4 * floats), [HostTouch("b"), HostTouch("c"), kernel]


def _stencil(n: int) -> tuple[dict[str, int], list[Any]]:
    block = (16, 16)
    near = [p.tile2d("in", n, *block, shift=by) for by in (0, -1, 1, -n, n)]
    kernel = Kernel("stencil", [*near, p.tile2d("out", n, *block, write=True)], grid(n, *block), block)
    return {"in": 4 * n * n, "out": 4 * n * n}, [HostTouch("in"), kernel]


def _few(blocks: int, *hints: str) -> tuple[dict[str, int], list[Any]]:
    size, threads = 512 * MIB, 128 * blocks
    kernel = Kernel("read", [p.streaming("a", 128, threads=threads)], (blocks, 1), (128, 1), (-(-size // (4 * threads)), 1))
    return {"a": size}, [HostTouch("a"), *(Advise("a", h, h != "preferred_location") for h in hints), kernel, kernel]


def _chunk(*hints: str) -> tuple[dict[str, int], list[Any]]:
    walk = {"tx": 1024, "bx": 1024 * 256, "inner": 1024}  # a page of each array a thread
    kernel = Kernel("chunk", [Access("in", **walk), Access("out", True, **walk)], (256, 1), (256, 1))
    said = [Advise(x, h, h != "preferred_location") for x in ("in", "out") for h in hints]
    return {"in": 256 * MIB, "out": 256 * MIB}, [HostTouch("in"), *said, kernel, kernel]


def _page_a_thread() -> tuple[dict[str, int], list[Any]]:
    return {"a": 256 * MIB}, [HostTouch("a"), one("pages", p.gather("a", np.arange(65_536) * 1024), threads=65_536)]


def _pages_of_blocks(k: int) -> tuple[dict[str, int], list[Any]]:
    order = np.random.default_rng(1).permutation(512)
    index = (order[:, None] * 524_288 + np.arange(k)[None, :] * (512 // k) * 1024).ravel()
    return {"a": GIB}, [HostTouch("a"), one("sparse", p.gather("a", index), p.gather("a", index, write=True), threads=512 * k)]


DEVICE_KERNELS: dict[str, Callable[[], tuple[dict[str, int], list[Any]]]] = {
    "stream_thread_64Mi": lambda: _stream(64 * MIB), "stream_thread_128Mi": lambda: _stream(128 * MIB),
    "stencil_8192": lambda: _stencil(8192), "few_2xSM": lambda: _few(264), "few_160": lambda: _few(160),
    "few_2xSM_pref_cpu": lambda: _few(264, "preferred_location"), "page_a_thread_regular": _page_a_thread,
    "chunk": _chunk, "chunk_read_mostly": lambda: _chunk("read_mostly"),
    "chunk_pref_cpu": lambda: _chunk("preferred_location"), "chunk_accessed_by": lambda: _chunk("accessed_by"),
    "sparse_K1": lambda: _pages_of_blocks(1), "sparse_K8": lambda: _pages_of_blocks(8),
    "sparse_K64": lambda: _pages_of_blocks(64),
}  # fmt: skip

SIDES = {"4K": 4096, "8K": 8192, "16K": 16384, "24K": 24_000, "48000": 48_000}


def stencil_passes(n: int) -> list[Kernel]:
    """bench_stencil.cu: the first four of twenty passes to and fro, of which the last sixteen are as the third and the fourth;
    the four neighbours of each cell."""
    block = (16, 16)

    def one_pass(source: str, target: str) -> Kernel:
        near = [p.tile2d(source, n, *block, shift=by) for by in (-n, n, -1, 1)]
        return Kernel("stencil", [*near, p.tile2d(target, n, *block, write=True)], grid(n, *block), block)

    return [one_pass("a", "b"), one_pass("b", "a")] * 2


def sweep_pass(n: int) -> list[Kernel]:
    """Of a kernel that is not in the sources."""
    return [one("sweep", p.streaming("a"), p.streaming("b", write=True), threads=n * n)]


@cache
def stream(n_bytes: int) -> UvmResult:
    return stream_on(load("rtx-5070-ti"), n_bytes)


def stream_on(machine: Platform, n_bytes: int) -> UvmResult:
    """bench_stream.cu @ded7672: a thread for each float; the host fills what is read, and not what is written."""
    n = n_bytes // 4
    kernel = one("triad", p.streaming("b"), p.streaming("c"), p.streaming("a", write=True), threads=n)
    return simulate_uvm([Array(x, n_bytes) for x in "abc"], [HostTouch("b"), HostTouch("c"), kernel], machine)


@cache
def stencil(n: int) -> UvmResult:
    """bench_stencil.cu @ded7672: one pass over five cells; the host fills the input."""
    block = (16, 16)
    near = [p.tile2d("in", n, *block, shift=by) for by in (0, -1, 1, -n, n)]
    kernel = Kernel("stencil", [*near, p.tile2d("out", n, *block, write=True)], grid(n, *block), block)
    return ran("rtx-5070-ti", {"in": 4 * n * n, "out": 4 * n * n}, HostTouch("in"), kernel)


# Others.


@cache
def read_once(machine: str, n_bytes: int) -> UvmResult:
    return read_once_on(load(machine), n_bytes)


def read_once_on(machine: Platform, n_bytes: int) -> UvmResult:
    kernel = one("read", p.streaming("a"), threads=n_bytes // 4)
    steps = [HostTouch("a"), kernel, Prefetch("a", 0), Prefetch("a", 1)]
    return simulate_uvm([Array("a", n_bytes)], steps, machine, BEFORE_2023)


@cache
def power8() -> Platform:
    """A P100 with two NVLinks to a POWER8: pages of 64 KiB, and what it has of the nominal rate, as on POWER9."""
    machine, power9 = load("p100-sxm2-16gb"), load("v100-sxm2-power9")
    nominal = 40 / 75  # GB/s, of two bricks of 20 and three of 25
    link = replace(machine.link, in_rate=nominal * power9.link.in_rate, out_rate=nominal * power9.link.out_rate)
    work = replace(machine.work, page=power9.work.page, page_out=power9.work.page_out)
    return replace(machine, page=power9.page, link=link, work=work)


@cache
def read_again(machine: str, n_bytes: int, hints: tuple[str, ...] = (), runs: int = 3, part: int = 1) -> UvmResult:
    """um_reprex.cu: two blocks of 128 threads for each multiprocessor read all of it, an int each a step; of its five runs the
    first three.  part: of memory and data, 8 for an eighth."""
    whole = load(machine)
    n_bytes //= part
    threads = whole.sms * 2 * 128
    kernel = Kernel("read", [p.streaming("a", 128, threads=threads)], (threads // 128, 1), (128, 1),
                    (-(-n_bytes // (4 * threads)), 1))  # fmt: skip
    advice = [Advise("a", h, 0 if h == "preferred_location" else 1) for h in hints]
    small = replace(whole, memory=whole.memory // part // (2 * MIB) * 2 * MIB)
    return simulate_uvm([Array("a", n_bytes)], [*advice, HostTouch("a"), *[kernel] * runs], small, BEFORE_2023)


def prefetched_tiles(machine: Platform, n_bytes: int, passes: int = 2) -> list[float]:
    """um_prefetch_reprex.cu: tiles of 16 MiB are prefetched one after the other, each while the kernel reads the one before,
    which takes less; GiB/s of each pass."""
    tile = 16 * MIB
    steps = [Prefetch("a", first=k * tile, count=tile) for k in range(n_bytes // tile)]
    ran = simulate_uvm([Array("a", n_bytes)], [HostTouch("a"), *steps * passes], machine, BEFORE_2023).steps[1:]
    each = [ran[k * len(steps) : (k + 1) * len(steps)] for k in range(passes)]
    return [n_bytes / GIB / sum(s.ns for s in steps) * 1e9 for steps in each]


@cache
def read_full(machine: str, n_bytes: int, hints: tuple[str, ...] = ()) -> UvmResult:
    """A grid of as many threads as fit reads all of it, twice: for a kernel of unknown shape."""
    threads = load(machine).sms * 2048
    kernel = one("read", p.streaming("a", threads=threads, size=16), threads=threads, steps=(-(-n_bytes // (16 * threads)), 1))
    advice = [Advise("a", h, 0 if h == "preferred_location" else 1) for h in hints]
    return ran(machine, {"a": n_bytes}, *advice, HostTouch("a"), kernel, kernel, **BEFORE_2023)


@cache
def sequential(share: float, hint: str = "") -> UvmResult:
    """gpu_ext's seq_chunk_kernel: 65,536 threads, each page after page of a chunk of its own, read one array and write another
    of the same size; two warm-ups and three timed runs.  Shares are of the total that cudaMemGetInfo says."""
    half = int(share * 31.36 * GIB) // 2 // 4096 * 4096
    pages = -(-half // (65_536 * 4096))  # of a chunk
    walk = {"tx": pages * 1024, "bx": pages * 1024 * 256, "inner": 1024}
    kernel = Kernel("seq", [Access("in", **walk), Access("out", True, **walk)], (256, 1), (256, 1), (pages, 1))
    advice = [replace(advise, array=x) for x in ("in", "out") for advise in looked_up(HINTS, hint, "hint")]
    return ran(RTX_5090, {"in": half, "out": half}, HostTouch("in"), *advice, *[kernel] * 5)


HINTS = {
    "": [], "PreferredLocation CPU": [Advise("a", "preferred_location", 0)], "AccessedBy": [Advise("a", "accessed_by", 1)],
    "ReadMostly": [Advise("a", "read_mostly", 1)],
}  # fmt: skip


@cache
def mix(name: str) -> UvmResult:
    """Allen and Ge's synthetic kernels on the Titan V: every thread a page of its own, in order or at random; and STREAM."""
    if name == "stream":
        fill = [HostTouch(x) for x in "abc"]
        return ran("titan-v", dict.fromkeys("abc", 256 * MIB), *fill, p.triad("a", "b", "c", 64 * MIB))
    n = 2 * GIB // 4096
    drawn = looked_up({"Random": True, "Regular": False}, name, "program")
    order = np.random.default_rng(2).permutation(n) if drawn else np.arange(n)
    kernel = one(name, p.gather("a", order.astype(np.int64) * 1024), threads=n)
    return ran("titan-v", {"a": 2 * GIB}, HostTouch("a"), kernel)


@cache
def read_back(machine: str, n_bytes: int) -> UvmResult:
    """The GPU touches an array first, the host reads it."""
    fill = one("fill", p.streaming("a", write=True), threads=n_bytes // 4)
    return ran(machine, {"a": n_bytes}, fill, HostTouch("a", write=False))


@cache
def resident(machine: str, kind: str) -> UvmResult:
    """A triad, or a read, of memory that has been prefetched."""
    n = GIB // 4
    kernel = p.triad("a", "b", "c", n) if kind == "triad" else one("read", p.streaming("a"), threads=n)
    return ran(machine, dict.fromkeys("abc", GIB), *(HostTouch(x) for x in "abc"), *(Prefetch(x) for x in "abc"), kernel)
