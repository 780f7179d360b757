"""Published measurements run through the model: one scenario for each experiment, one number for each row.

What a scenario cannot know is not invented: rows without one are listed with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpusim.uvm import patterns as p
from gpusim.uvm.calibration import Row
from gpusim.uvm.platforms import Platform, load
from gpusim.uvm.program import Access, Advise, Array, HostTouch, Kernel, Prefetch
from gpusim.uvm.simulate import UvmResult, simulate_uvm

MIB, GIB = 1 << 20, 1 << 30
T4 = "t4(link.h2d=6.3 GB/s, link.d2h=6.6 GB/s)"  # eight lanes, as in a cloud machine
GTX_1080 = "gtx-1080-ti(gpu.sm_count=20, memory.capacity=8 GiB, memory.copy=280 GB/s)"


@dataclass(frozen=True)
class Comparison:
    row: Row
    simulated: float | None
    reason: str  # why it was not run

    @property
    def error(self) -> float | None:
        """Relative; None where one of both is zero or missing."""
        if self.simulated is None or self.row.value == 0:
            return None
        return self.simulated / self.row.value - 1


# Scenarios, by the key of their rows.


@cache
def sparse(key: str) -> UvmResult:
    place, k, threshold = re.fullmatch(r"(?:sparse|faultcount)_(in|ov)_K(\d+)_t(\d+)", key).groups()  # type: ignore[union-attr]
    blocks = 4096 if place == "in" else 12288
    rng = np.random.default_rng(7)
    pages = np.stack([rng.permutation(512)[: int(k)] for _ in range(blocks)]).astype(np.int64)
    kernel = p.sparse("a", rng.permutation(blocks), pages)
    return simulate_uvm([Array("a", blocks * 2 * MIB)], [HostTouch("a"), kernel, kernel, kernel], load("rtx-5070-ti"),
                        {"uvm_perf_prefetch_threshold": int(threshold)})  # fmt: skip


@cache
def conv2d() -> UvmResult:
    arrays = [Array("a", 4 * MIB), Array("b", 4 * MIB)]
    return simulate_uvm(arrays, [HostTouch("a"), p.conv2d("a", "b", 1024), HostTouch("b", write=False)], load("gtx-1080-ti"))


@cache
def triad() -> UvmResult:
    arrays = [Array(x, 4 * MIB) for x in "abc"]
    program = [*(HostTouch(x) for x in "abc"), p.triad("a", "b", "c", MIB), HostTouch("a", write=False)]
    return simulate_uvm(arrays, program, load("gtx-1080-ti"))


@cache
def random_access() -> UvmResult:
    accesses = [p.streaming("b"), p.scattered("a", 3), p.scattered("a", 3, write=True)]
    kernel = Kernel("ra", accesses, p.grid_for(MIB, 256), (256, 1))
    arrays = [Array("a", 4 * MIB), Array("b", 4 * MIB)]
    return simulate_uvm(arrays, [HostTouch("a"), HostTouch("b"), kernel], load("gtx-1080-ti"))


@cache
def fdtd() -> UvmResult:
    n, bx, by = 1200, 32, 8
    names = ("ex", "ey", "hz")
    at = lambda x, shift=0, write=False: p.tile2d(x, n, bx, by, shift=shift, write=write)  # noqa: E731
    grid = (-(-n // bx), -(-n // by))
    steps = [
        Kernel("ey", [at("ey"), at("hz"), at("hz", -n), at("ey", 0, True)], grid, (bx, by)),
        Kernel("ex", [at("ex"), at("hz"), at("hz", -1), at("ex", 0, True)], grid, (bx, by)),
        Kernel("hz", [at("hz"), at("ex"), at("ex", 1), at("ey"), at("ey", n), at("hz", 0, True)], grid, (bx, by)),
    ]
    arrays = [Array(x, n * n * 4) for x in names]
    program = [*(HostTouch(x) for x in names), *steps * 5, HostTouch("hz", write=False)]
    return simulate_uvm(arrays, program, load("gtx-1080-ti"))


@cache
def pathfinder() -> UvmResult:
    columns, rows, height = 50_000, 200, 10
    arrays = [Array("wall", columns * rows * 4), Array("in", columns * 4), Array("out", columns * 4)]
    kernels = []
    for k in range(rows // height):
        wall = Access("wall", tx=1, bx=236, start=k * height * columns, inner=columns)  # of 256 threads 20 are halo
        kernels.append(Kernel("pathfinder", [wall, p.streaming("in"), p.streaming("out", write=True)],
                              p.grid_for(columns, 236), (256, 1), (height, 1)))  # fmt: skip
    return simulate_uvm(arrays, [HostTouch("wall"), *kernels], load("gtx-1080-ti"))


@cache
def split_fault() -> UvmResult:
    def touch(unit: int) -> Kernel:
        return Kernel(f"unit {unit}", [Access("a", index=np.array([unit * 16 * 1024]))], (1, 1), (1, 1), ns=0.0)

    return simulate_uvm([Array("a", 2 * MIB)], [HostTouch("a"), touch(1), touch(3), touch(0)], load("gtx-1080-ti"))


@cache
def grid_pass(machine: str, name: str) -> UvmResult:
    return grid_pass_on(load(machine), name, both=machine == "rtx-5070-ti")


def grid_pass_on(machine: Platform, name: str, both: bool) -> UvmResult:
    """Stencils and sweeps of SpecAsync: n x n floats, the input from the host, and the output if `both`."""
    kind, size = name.split("@")[0].split("-")[:2]
    n = 24_000 if size == "24K" else 48_000 if size == "48000" else int(size[:-1]) * 1024
    threshold = int(name.split("@")[1]) if "@" in name else 51
    kernel = p.stencil2d("a", "b", n) if kind == "Stencil" else Kernel(
        "sweep", [p.streaming("a"), p.streaming("b", write=True)], p.grid_for(n * n, 256), (256, 1))  # fmt: skip
    fill = [HostTouch("a"), HostTouch("b")] if both else [HostTouch("a")]
    arrays = [Array("a", 4 * n * n), Array("b", 4 * n * n)]
    return simulate_uvm(arrays, [*fill, kernel], machine, {"uvm_perf_prefetch_threshold": threshold})


@cache
def stream(n_bytes: int) -> UvmResult:
    n = n_bytes // 4
    kernel = Kernel("triad", [p.streaming("b", size=16), p.streaming("c", size=16), p.streaming("a", size=16, write=True)],
                    p.grid_for(n // 4, 256), (256, 1))  # fmt: skip
    return simulate_uvm([Array(x, n_bytes) for x in "abc"], [*(HostTouch(x) for x in "abc"), kernel], load("rtx-5070-ti"))


@cache
def read_once(machine: str, n_bytes: int) -> UvmResult:
    kernel = Kernel("read", [p.streaming("a", size=4)], p.grid_for(n_bytes // 4, 256), (256, 1))
    return simulate_uvm([Array("a", n_bytes)], [HostTouch("a"), kernel, Prefetch("a", 0), Prefetch("a", 1)],
                        load(machine))  # fmt: skip


@cache
def read_again(machine: str, n_bytes: int, hints: tuple[str, ...] = ()) -> UvmResult:
    """A grid of as many threads as fit reads all of it, twice."""
    m = load(machine)
    threads = m.sms * 2048
    kernel = Kernel("read", [p.streaming("a", threads=threads, size=16)], p.grid_for(threads, 256), (256, 1),
                    (-(-n_bytes // (16 * threads)), 1))  # fmt: skip
    advice = [Advise("a", h, 0 if h == "preferred_location" else 1) for h in hints]
    return simulate_uvm([Array("a", n_bytes)], [*advice, HostTouch("a"), kernel, kernel], m)


@cache
def page_stride(share: float, order: str, hint: str = "") -> UvmResult:
    """gpu_ext's kernels: one element of every page, three times."""
    n = int(share * 33.67e9) // 4096
    if order == "rand_stream":
        index = np.random.default_rng(1).permutation(n).astype(np.int64) * 1024
        kernel = Kernel("pages", [p.gather("a", index)], p.grid_for(n, 256), (256, 1))
    else:
        kernel = p.sweep("a", n, stride=1024, name="pages")
    advice = {"PreferredLocation CPU": [Advise("a", "preferred_location", 0)], "AccessedBy": [Advise("a", "accessed_by", 1)]}
    program = [HostTouch("a"), *advice.get(hint, []), kernel, kernel, kernel]
    return simulate_uvm([Array("a", n * 4096)], program, load("rtx-5090"))


@cache
def mix(name: str) -> UvmResult:
    """Allen and Ge's synthetic kernels on the Titan V: every thread a page of its own, in order or at random; and STREAM."""
    n = 2 * GIB // 4096
    if name == "stream":
        arrays = [Array(x, 256 * MIB) for x in "abc"]
        return simulate_uvm(arrays, [*(HostTouch(x) for x in "abc"), p.triad("a", "b", "c", 64 * MIB)], load("titan-v"))
    order = np.random.default_rng(2).permutation(n) if name == "Random" else np.arange(n)
    kernel = Kernel(name, [p.gather("a", order.astype(np.int64) * 1024)], p.grid_for(n, 256), (256, 1))
    return simulate_uvm([Array("a", 2 * GIB)], [HostTouch("a"), kernel], load("titan-v"))


# What a row asks of a scenario.


def kernels(r: UvmResult) -> list[Any]:
    return [s for s in r.steps if not s.name.startswith(("host", "prefetch", "advise"))]


def came(r: UvmResult, processor: int = 1) -> float:
    return float(r.counts[processor]["came"].sum() * r.platform.page)


def nvprof(r: UvmResult, what: str) -> float | None:
    gpu, cpu = r.counts[1], r.counts[0]
    answers: list[tuple[str, Callable[[], float]]] = [
        ("sum of kernel times", lambda: sum(s.ns for s in kernels(r)) / 1e3),
        ("HtoD migrated bytes", lambda: came(r) / MIB),
        ("HtoD number of copies", lambda: gpu["copies"].sum()),
        ("HtoD copies", lambda: gpu["copies"].sum()),
        ("HtoD average copy", lambda: came(r) / 1024 / gpu["copies"].sum()),
        ("HtoD total", lambda: gpu["copy_in"] / 1e3),
        ("DtoH migrated bytes", lambda: came(r, 0) / MIB),
        ("DtoH number of copies", lambda: cpu["copies"].sum()),
        ("DtoH total", lambda: gpu["copy_out"] / 1e3),
        ("GPU page fault groups total time", lambda: gpu["service"] / 1e3),
        ("GPU page fault groups", lambda: gpu["batches"]),
        ("CPU page faults", lambda: cpu["faults"]),
    ]
    for part, answer in answers:
        if part in what:
            return float(answer())
    return None


def of_sparse(row: Row) -> float | None:
    r = sparse(row.key)
    passes = r.steps[1:]
    n = re.search(r"pass (\d)", row.what)
    these = [passes[int(n[1]) - 1]] if n else passes
    if "kernel time" in row.what:
        return sum(s.ns for s in these) / 1e6
    total = {k: sum(s.counts[1][k] for s in these) for k in ("came", "left", "batches", "fetched", "service")}
    if "caused by demand" in row.what:
        return float(total["came"][0] * 4096 / GIB)
    if "caused by prefetch" in row.what:
        return float(total["came"][1] * 4096 / GIB)
    if "HtoD bytes" in row.what:
        return float(total["came"].sum() * 4096 / GIB)
    if "DtoH bytes" in row.what:
        return float(total["left"] * 4096 / GIB)
    if "fault groups" in row.what:
        return float(total["batches"])
    if "CPU page faults" in row.what:
        return float(r.steps[0].counts[0]["faults"])
    if "faults fetched" in row.what:
        return float(total["fetched"])
    if "service time per demand fault" in row.what:
        return float(total["service"] / total["fetched"])
    return None


UVMSMART = {"2DCONV": conv2d, "StreamTriad": triad, "ra": random_access, "FDTD-2D": fdtd, "pathfinder": pathfinder}
READS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "p9_managed_1g": ("v100-sxm2-power9", GIB, ()),
    "p9_managed_32g": ("v100-sxm2-power9", 32 * GIB, ()),
    "p9_prefcpu_32g": ("v100-sxm2-power9", 32 * GIB, ("preferred_location",)),
    "p9_zero": ("v100-sxm2-power9", GIB, ("preferred_location", "accessed_by")),
    "x86_managed_32g": ("v100-pcie-16gb", 32 * GIB, ()),
    "x86_accby_32g": ("v100-pcie-16gb", 32 * GIB, ("accessed_by",)),
}


def simulated(row: Row) -> float | None:
    """The model's number for a row; None when there is no scenario for it."""
    if row.key == "gpuext_rand_stream_1.25":
        return None
    if row.key == "nvprof_fault_128KB_split":
        return split_fault().steps[-1].ns / 1e3
    if "process wall time" in row.what or row.unit == "percent":
        return None
    if row.key.startswith(("sparse_", "faultcount_")):
        return of_sparse(row)
    if row.key.startswith("uvmsmart_real_") and row.key[14:] in UVMSMART:
        return nvprof(UVMSMART[row.key[14:]](), row.what)
    if row.group == "cpu_fault":
        gib, threshold = (8, 0) if "8" in row.key else (24, 51)
        r = sparse(f"sparse_{'in' if gib == 8 else 'ov'}_K1_t{threshold}").steps[0]
        return float(r.counts[0]["faults"] / 12288) if row.unit.startswith("CPU") else r.ns / 1e6
    if row.group == "threshold_effect" and row.key == "Stencil-24K":
        threshold = re.search(r"threshold=(\d+)", row.conditions)
        r = grid_pass("rtx-5070-ti", f"Stencil-24K@{threshold[1]}") if threshold else None
        if r and "HtoD bytes" in row.what:
            return came(r) / GIB
        return nvprof(r, row.what) if r else None
    if row.group == "batch_latency" and (m := re.fullmatch(r"(t4|5070ti)_((?:Stencil|Sweep)-\d+K)", row.key)):
        r = grid_pass(T4 if m[1] == "t4" else "rtx-5070-ti", m[2])
        gpu = r.counts[1]
        return float(gpu["batches"]) if row.unit == "count" else gpu["service"] / gpu["batches"] / 1e3
    if row.key in ("t4_S24K_sum", "t4_W24K_sum5"):
        r = grid_pass(T4, "Stencil-24K" if "S24K" in row.key else "Sweep-24K")
        return float(r.counts[1]["service"] / 1e3 * (5 if row.key.endswith("5") else 1))
    if row.key == "5070ti_S24K_kernel":
        return kernels(grid_pass("rtx-5070-ti", "Stencil-24K"))[0].ns / 1e6
    if row.group == "app_5070ti" and (m := re.match(r"(base|faults)_STREAM[ _]([\d.]+)", row.key)):
        r = stream(int(float(m[2]) * 1e9) // 4096 * 4096)
        return kernels(r)[0].ns / 1e6 if m[1] == "base" else float(r.counts[1]["faults"])
    if row.group == "app_5070ti" and (m := re.match(r"base_Stencil (\d+)", row.key)):
        return kernels(grid_pass("rtx-5070-ti", f"Stencil-{int(m[1]) // 1000}K"))[0].ns / 1e6
    if row.group == "batch_composition" and row.workload in ("Regular", "Random", "stream"):
        gpu = mix(row.workload).counts[1]
        if row.what.startswith("faults per SM"):
            return float(gpu["fetched"] / gpu["batches"] / 80)
        blocks = float(gpu["block_services"] / gpu["batches"])
        return blocks if row.what.startswith("VABlocks") else float(gpu["faults"] / gpu["block_services"])
    if row.group == "stream_bw":
        r = read_once("p100-sxm2-16gb", 64 * MIB) if "nv2017" in row.key else read_once(GTX_1080, 2_147_483_648)
        size = 64 * MIB if "nv2017" in row.key else 2_147_483_648
        if row.unit == "GB/s":
            return size / r.steps[3 if "explicit" in row.what else 1].ns
        if row.what == "time":
            return r.steps[1].ns / 1e6
        if row.what == "HtoD bytes":
            return float(r.steps[1].counts[1]["came"].sum() * 4096 / 1e6)
        if row.what == "GPU page faults":
            return float(r.steps[1].counts[1]["faults"])
        once = UvmResult(r.platform, r.steps[:2], r.steps[0].counts.copy(), r.log, [])
        for name in once.counts.dtype.names:
            once.counts[name] = r.steps[0].counts[name] + r.steps[1].counts[name]
        value = nvprof(once, row.what)
        return value / 1e3 if value is not None and row.unit == "ms" else value
    if row.group == "read_bw_modes" and row.key in READS:
        machine, size, hints = READS[row.key]
        r = read_again(machine, size, hints)
        n = re.search(r"run (\d)", row.what)
        step = kernels(r)[min(int(n[1]) if n else 1, 2) - 1]
        return size / GIB / (step.ns / 1e9)
    if row.key == "v100_tiny":
        once = read_once("v100-pcie-16gb", 65536)
        fault = once.steps[1].counts[1]
        numbers = {"HtoD 64 KB copy": fault["copy_in"], "DtoH 64 KB copy": once.steps[2].counts[1]["copy_out"],
                   "single GPU page fault group": fault["service"]}  # fmt: skip
        return float(numbers[row.what] / 1e3)
    if row.group == "oversub_micro" and (m := re.match(r"gpuext_(seq_stream|rand_stream)_([\d.]+)", row.key)):
        return page_stride(float(m[2]), m[1]).steps[-1].ns / 1e6
    if row.group == "advise" and row.key.startswith("gpuext_adv_"):
        return page_stride(0.25, "seq_stream", row.key[11:].replace("baseline", "")).steps[-1].ns / 1e6
    if row.key == "schieffer_d2h":
        r = read_once("gh200-96gb", GIB)
        return GIB / r.steps[2].ns
    return None


def reason(row: Row) -> str:
    """Why a row has no number."""
    if "process wall time" in row.what or row.key == "t4_W24K_wall":
        return "wall time of a whole process, with CUDA's start and the host's own work"
    if row.group in ("multi_tenant", "multi_gpu"):
        return "several processes or GPUs at once"
    if row.group == "gh200_bw":
        return "a CPU's or a memory's own rate, nothing that migrates"
    if row.key == "gpuext_rand_stream_1.25":
        return "thirty million evictions: left out for its run time"
    if row.key.startswith(("bede_", "base_SGEMM")):
        return "a library's matrix product: its tiles are not published, and every access of one is too much for this table"
    if row.unit == "percent":
        return "a share that the source gives for a mixture of programs"
    return "the source does not say enough of the program to write it down"


def compare(rows: Iterable[Row]) -> list[Comparison]:
    out = []
    for row in rows:
        if row.use == "validate":
            value = simulated(row)
            print(row.id, row.value, value, flush=True)
            out.append(Comparison(row, value, "" if value is not None else reason(row)))
    return out
