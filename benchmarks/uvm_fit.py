"""The fits behind the costs of unified memory in hardware_profiles, each to rows that are not scored.

    PYTHONPATH=. python benchmarks/uvm_fit.py

GTX 1080 Ti     single faults and copies (calibrate/uvm.py); what each report in the fault buffer costs: 2DCONV's kernels, whose
                batches have a hundred reports where the single faults have one
T4              a report from the shares of fetching and sorting in a batch; one factor on all other times of the CPU, which is
                another one, in a virtual machine: median batches of a stencil, of two sizes
RTX 5070 Ti     one factor on a T4's times of the CPU: a sparse kernel of one page a block, in memory; a further run of pages:
                one of 64 pages a block; a report: STREAM
H100            in a virtual machine: one factor on the times of the CPU, from single faults of five sizes; what a report costs,
                from a kernel of 160 thread blocks, whose batches have a block each; what a first touch costs, from a sparse
                kernel of a page a block; a page that is mostly read and there already, from later launches of a kernel that
                stores to such pages
POWER9          a page that comes and one that leaves: tiles that are prefetched, without faults, with and without evictions
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from uvm_programs import (
    CPU_OF_H100,
    GIB,
    MIB,
    ON_CPU,
    T4,
    conv2d_on,
    device_kernel_on,
    faults_on,
    grid_pass_on,
    h100_at,
    prefetched_tiles,
    sparse_on,
    stream_on,
)
from uvm_rows import TOUCHES

from gpusim.calibrate.uvm import PublishedRow, fit, read
from gpusim.machine import platforms
from gpusim.machine.platforms import Platform

ROWS = read(Path(__file__).parent.parent / "tests" / "data" / "uvm_measurements.csv")
TILES = 3.06278, 1.69109  # GiB/s of the first pass and of the others: um_prefetch_reprex.cu's README, 32 GiB on a V100 of 16


def row(id: str) -> PublishedRow:
    return next(r for r in ROWS if r.id == id)


def crossing(f: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where f, nearly straight, has the wanted value."""
    a, b = f(low), f(high)
    return low + (wanted - a) * (high - low) / (b - a)


def report() -> float:
    """ns of a report: the sum that a lone fault takes stays as it is."""
    gtx = platforms.load("gtx-1080-ti")
    alone = gtx.work.batch + gtx.work.fault

    def kernel(fault: float) -> float:
        work = replace(gtx.work, fault=fault, batch=alone - fault)
        return conv2d_on(replace(gtx, work=work)).steps[1].ns

    return crossing(kernel, row("app_nvprof-001").value * 1e3, 200.0, 600.0)


def share() -> float:
    """Of a T4's batch, what fetching and sorting take: the middle of what its authors found over workloads."""
    return sum(r.value for r in ROWS if r.key == "t4_shares" and ("D1 fetch" in r.what or "D2 preprocess" in r.what)) / 2 / 100


def batches(rows: list[PublishedRow], factor: float, fault: float) -> tuple[np.ndarray, np.ndarray]:
    """us of a mean batch of each program, and how many reports it has."""
    work = platforms.load("gtx-1080-ti").work
    slower = replace(work, fault=fault, **{name: factor * (getattr(work, name) or 0.0) for name in ON_CPU})
    gpus = [grid_pass_on(replace(platforms.load(T4), work=slower), r.workload, both=False).counts[1] for r in rows]
    return np.array([g["service"] / g["batches"] / 1e3 for g in gpus]), np.array([g["fetched"] / g["batches"] for g in gpus])


def t4() -> tuple[float, float]:
    """ns of a report; the factor on the rest."""
    rows = [row("batch_latency-001"), row("batch_latency-003")]
    measured = np.array([r.value for r in rows])
    _, reports = batches(rows[:1], 1.0, 100.0)
    fault = 1e3 * share() * float(measured.mean()) / float(reports.mean())
    one, two = batches(rows, 1.0, fault)[0], batches(rows, 2.0, fault)[0]
    # Nearly straight in the factor: least squares of (one + (factor - 1) (two - one)) / measured - 1.
    slope, rest = (two - one) / measured, 1 - one / measured
    factor = 1 + float(slope @ rest / (slope @ slope))
    for r, us in zip(rows, one + (factor - 1) * (two - one), strict=True):
        print(f"  {r.workload}: {us:.1f} us, measured {r.value}")
    return fault, factor


def desktop() -> tuple[float, float, float]:
    """Of an RTX 5070 Ti and its host: the factor on a T4's work of the CPU, ns of a further run of pages, ns of a report."""
    machine, work = platforms.load("rtx-5070-ti"), platforms.load("t4").work
    one, many, stream = (row(id) for id in ("bench_sparse-003", "bench_sparse-009", "app_5070ti-001"))

    def at(factor: float, run: float, report: float) -> Platform:
        scaled = {name: factor * (getattr(work, name) or 0.0) for name in ON_CPU}
        return replace(machine, work=replace(machine.work, **{**scaled, "run": run, "fault": report}))

    def sparse_ms(which: PublishedRow, *numbers: float) -> float:
        return sparse_on(at(*numbers), which.key).steps[1].ns / 1e6

    def stream_ms(*numbers: float) -> float:
        return stream_on(at(*numbers), 540_000_000 // 4096 * 4096).steps[-1].ns / 1e6

    factor, run, report = 0.7, 2500.0, 60.0
    for _ in range(3):  # each moves the others' rows little
        factor = crossing(lambda x, r=run, s=report: sparse_ms(one, x, r, s), one.value, factor, 1.1 * factor)
        run = crossing(lambda x, f=factor, s=report: sparse_ms(many, f, x, s), many.value, run, 1.1 * run)
        report = crossing(lambda x, f=factor, r=run: stream_ms(f, r, x), stream.value, report, 1.1 * report)
    return factor, run, report


def h100() -> tuple[float, float, float]:
    """The numbers of h100_at."""
    rows = [r for r in ROWS if r.key.startswith("h100_fault_")]
    measured = np.array([r.value for r in rows])
    units = [TOUCHES[r.key.removeprefix("h100_fault_").removesuffix("KB")] for r in rows]

    def us(*numbers: float) -> np.ndarray:
        return np.array([faults_on(h100_at(*numbers), *each).steps[-1].ns / 1e3 for each in units])

    def ms(name: str, *numbers: float) -> float:
        return device_kernel_on(name, h100_at(*numbers)).steps[1].ns / 1e6

    factor, report, first = 2.4, 270.0, 0.4
    for _ in range(4):  # each moves the others' rows little
        report = crossing(lambda x, f=factor, t=first: ms("few_160", f, x, t), row("h100-031").value, report, 1.1 * report)
        first = crossing(lambda x, f=factor, r=report: ms("sparse_K1", f, r, x), row("h100-064").value, first, 0.9 * first)
        one = us(factor, report, first)
        slope, rest = (us(2.0 * factor, report, first) - one) / measured, 1 - one / measured
        factor *= 1 + float(slope @ rest / (slope @ slope))
    return factor, report, first


def kept() -> float:
    """ns of a page of what is mostly read that a service finds there."""
    at = h100_at(*CPU_OF_H100)

    def ms(page: float) -> float:
        return device_kernel_on("chunk_read_mostly", replace(at, work=replace(at.work, page_kept=page))).steps[-1].ns / 1e6

    return crossing(ms, row("h100-053").value, 15.0, 16.0)


def tiles() -> tuple[float, float]:
    """us of a page of 64 KiB that comes to a V100 on POWER9, and of one that leaves; an eighth of memory and data."""
    power9 = platforms.load("v100-sxm2-power9")
    small = replace(power9, memory=power9.memory // 8 // (2 * MIB) * 2 * MIB)

    def times(page: float, out: float) -> np.ndarray:
        return 1 / np.array(prefetched_tiles(replace(small, work=replace(power9.work, page=page, page_out=out)), 4 * GIB))

    start = times(1000.0, 20_000.0)
    slopes = np.stack([times(3000.0, 20_000.0) - start, times(1000.0, 40_000.0) - start], 1) / [2.0, 20.0]
    page, out = np.array([1.0, 20.0]) + np.linalg.solve(slopes, 1 / np.array(TILES) - start)
    return float(page), float(out)


def main() -> None:
    f = fit(ROWS)
    print(
        f"GTX 1080 Ti: copies in {f.in_start:.0f} ns and {1 / f.in_byte:.2f} GB/s, out {f.out_start:.0f} ns and "
        f"{1 / f.out_byte:.2f} GB/s; a fault {f.fault:.0f} ns, a page {f.page:.0f} ns, a block's first {f.first_touch:.0f} ns; "
        f"a report {report():.0f} ns"
    )
    print("POWER9: a page comes in {:.2f} us and leaves in {:.2f} us".format(*tiles()))
    print("H100: {:.2f} times the derived work of the CPU, a report {:.0f} ns, {:.2f} times the first touch".format(*h100()))
    print(f"H100: a page that is mostly read and there already {kept():.1f} ns")
    print("RTX 5070 Ti: {:.3f} times a T4's work of the CPU, a further run {:.0f} ns, a report {:.0f} ns".format(*desktop()))
    print("T4: a report {:.0f} ns, all else {:.2f} times the GTX 1080 Ti's".format(*t4()))


if __name__ == "__main__":
    main()
