"""Programs of published measurements that chose nothing: looked up, written down and run once the model's rules were settled.

    add_grid        NVIDIA's first unified-memory program, on a P100, a V100 and an RTX 2060 Max-Q
    oversub         cudaOversubscribe: arrays are added up one after the other, a GTX 1080 Ti
    multiplied      xnd-project/cuda-benchmarks: a product of two arrays, a GTX 1060
    first_touch     an array that the GPU touches first, a GTX 1060
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from uvm_programs import BEFORE_2023, MIB, looked_up, one

from gpusim.calibrate.uvm import PublishedRow
from gpusim.engine.pages.simulate import StepResult, UvmResult, simulate_uvm
from gpusim.machine.platforms import load
from gpusim.programs.managed import patterns as p
from gpusim.programs.managed.steps import Advise, Array, HostTouch, Kernel, Prefetch, Step

# Eight lanes: its prefetches of 2 MiB, which are not scored, take 329 us each.
RTX_2060_MAX_Q = ("rtx-2080-ti(gpu.sm_count=30, memory.capacity=6 GiB, memory.bandwidth=264 GB/s, memory.read=245 GB/s, "
                  "memory.write=245 GB/s, memory.copy=234 GB/s, link.h2d=6.4 GB/s, link.d2h=6.4 GB/s)")  # fmt: skip
GTX_1060 = ("gtx-1080-ti(gpu.sm_count=10, memory.capacity=5.93 GiB, memory.bandwidth=192 GB/s, memory.read=179 GB/s, "
            "memory.write=179 GB/s, memory.copy=170 GB/s)")  # fmt: skip
ADDERS = {"p100": "p100-sxm2-16gb", "v100": "v100-pcie-16gb", "rtx2060": RTX_2060_MAX_Q}


@cache
def add_grid(gpu: str, variant: str) -> UvmResult:
    """y = x + y, a thread for each of 2^20 floats; the host fills both before and reads y in the end.

    init  a kernel fills both; on the V100 the host does, too (add_grid_init.cu)
    many  a hundred launches;  prefetch: cudaMemPrefetchAsync of both before
    """
    n = MIB
    add = one("add", p.streaming("x"), p.streaming("y"), p.streaming("y", write=True), threads=n)
    init = one("init", p.streaming("x", write=True), p.streaming("y", write=True), threads=n)
    fill: list[Step] = [HostTouch("x"), HostTouch("y")]
    variants: dict[str, list[Step]] = {
        "grid": [*fill, add], "init": [*(fill if gpu == "v100" else []), init, add], "many": [*fill, *[add] * 100],
        "prefetch": [*fill, Prefetch("x"), Prefetch("y"), add],
    }  # fmt: skip
    steps = [*looked_up(variants, variant, "variant"), HostTouch("y", write=False)]
    arrays = [Array("x", 4 * n), Array("y", 4 * n)]
    return simulate_uvm(arrays, steps, load(looked_up(ADDERS, gpu, "GPU")), BEFORE_2023)


TENTH = 10  # of memory and of each array: proportions stay


@cache
def oversub(arrays: int) -> UvmResult:
    """out += a, for one array of 100 MiB after the other, last first, and over again: 256 x 256 threads, doubles.

    The first two of ten runs; the others are as the second.
    """
    machine, size, threads = load("gtx-1080-ti"), 100 * MIB // TENTH, 256 * 256
    shape = {"grid": (256, 1), "block": (256, 1), "steps": (size // 8 // threads, 1)}

    def at(name: str, write: bool = False):  # type: ignore[no-untyped-def]
        return p.streaming(name, threads=threads, size=8, write=write)

    names = [f"a{k}" for k in range(arrays)]
    run: list[Step] = [Kernel("add", [at(name), at("out"), at("out", True)], **shape) for name in reversed(names)]
    run.append(Kernel("set", [at("out", True)], **shape))
    small = replace(machine, memory=machine.memory // TENTH // (2 * MIB) * 2 * MIB)
    steps = [HostTouch("out"), *(HostTouch(name) for name in names), *run * 2]
    return simulate_uvm([Array(name, size) for name in ("out", *names)], steps, small, BEFORE_2023)


@cache
def multiplied(n: int, pinned: bool = False) -> UvmResult:
    """c = a * b, a thread for each of n numbers of 8 bytes; the host fills a and b, and reads all three in the end, twice.

    pinned  memory of cudaMallocHost: pages stay on the host, where they are before the kernel, and the GPU has them mapped
    A fifth of memory and arrays.
    """
    machine, n = load(GTX_1060), n // 5
    factors = [p.streaming(x, size=8) for x in "ab"]
    kernel = one("multiply", *factors, p.streaming("c", write=True, size=8), threads=n)
    hints = [Advise(x, h, h != "preferred_location") for x in "abc" for h in ("preferred_location", "accessed_by")]
    fill = [HostTouch(x) for x in ("abc" if pinned else "ab")]
    read = [HostTouch(x, write=False) for x in "abc"]
    small = replace(machine, memory=machine.memory // 5 // (2 * MIB) * 2 * MIB)
    return simulate_uvm([Array(x, 8 * n) for x in "abc"], [*(hints if pinned else []), *fill, kernel, *read, *read], small,
                        BEFORE_2023)  # fmt: skip


@cache
def first_touch(n: int = 2 << 24) -> UvmResult:
    """a[i] = 1, a thread for each int of memory that was touched by neither side."""
    kernel = one("fill", p.streaming("a", write=True), threads=n)
    return simulate_uvm([Array("a", 4 * n)], [kernel], load(GTX_1060), BEFORE_2023)


Profile = Callable[[PublishedRow, UvmResult, list[StepResult]], float | None]


def of_adder(row: PublishedRow, m: re.Match[str], profiled: Profile) -> float | None:
    r = add_grid(m[1], m[2])
    adds = [s.ns for s in r.steps if s.name == "add"]
    answers: dict[str, Callable[[], float]] = {
        "time of add": lambda: adds[0], "time of init": lambda: next(s.ns for s in r.steps if s.name == "init"),
        "time of all adds": lambda: sum(adds), "shortest add": lambda: min(adds), "longest add": lambda: max(adds),
    }  # fmt: skip
    return answers[row.what]() if row.what in answers else profiled(row, r, r.steps)


def of_oversub(row: PublishedRow, m: re.Match[str], profiled: Profile) -> float | None:
    """Ten runs: the last nine are as the second; arrays of a tenth."""
    arrays = int(m[1])
    r = oversub(arrays)
    fill, kernels = r.steps[: arrays + 1], r.steps[arrays + 1 :]
    first, later = kernels[: arrays + 1], kernels[arrays + 1 :]
    if row.what == "CPU page faults":
        return TENTH * (profiled(row, r, fill) or 0.0)
    if row.what == "shortest add":
        return TENTH * min(s.ns for s in later if s.name == "add")
    if row.what == "first run":
        return TENTH * sum(s.ns for s in first)
    if row.what == "later run":
        return TENTH * sum(s.ns for s in later)
    if row.what == "DtoH total copy time":  # what leaves is copied while pages come
        return TENTH * sum(float(s.counts[1]["copy_out"]) * share for run, share in ((first, 1), (later, 9)) for s in run)
    if row.what == "DtoH copies":
        return TENTH * sum(float(s.counts[1]["left_copies"]) * share for run, share in ((first, 1), (later, 9)) for s in run)
    parts = (profiled(row, r, first), profiled(row, r, later))
    return None if None in parts else TENTH * ((parts[0] or 0.0) + 9 * (parts[1] or 0.0))


def of_multiplied(row: PublishedRow, m: re.Match[str]) -> float | None:
    r = multiplied(int(m[2]) * 1_000_000, m[1] == "DMA")
    steps = [s for s in r.steps if not s.name.startswith("advise")]
    at = next(k for k, s in enumerate(steps) if s.name == "multiply")
    answers = {"kernel and synchronisation": steps[at : at + 1], "host fills": steps[:2], "host reads after the kernel":
               steps[at + 1 : at + 4]}  # fmt: skip
    return 5 * sum(s.ns for s in answers[row.what]) if row.what in answers else None
