"""The two fits behind the costs of unified memory in hardware_profiles: the GTX 1080 Ti's single faults, the T4's batches.

    PYTHONPATH=. python benchmarks/uvm_fit.py

A T4's driver does what a GTX 1080 Ti's does, on another CPU, in a virtual machine, with larger pieces of host memory.  One
factor on all times of the CPU is fitted to the median batches of five programs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from uvm_programs import T4, grid_pass_on

from gpusim.calibrate.uvm import PublishedRow, fit, read
from gpusim.machine import platforms

ROWS = read(Path(__file__).parent.parent / "tests" / "data" / "uvm_measurements.csv")


def batches(rows: list[PublishedRow], factor: float) -> np.ndarray:
    """us of a mean batch of each program."""
    work = platforms.load("gtx-1080-ti").work
    names = ("interrupt", "batch", "fault", "block", "first_touch", "page", "chunk", "run")
    slower = replace(work, **{name: factor * getattr(work, name) for name in names})
    gpus = [grid_pass_on(replace(platforms.load(T4), work=slower), r.workload, both=False).counts[1] for r in rows]
    return np.array([gpu["service"] / gpu["batches"] / 1e3 for gpu in gpus])


def main() -> None:
    f = fit(ROWS)
    print(
        f"GTX 1080 Ti: copies in {f.in_start:.0f} ns and {1 / f.in_byte:.2f} GB/s, out {f.out_start:.0f} ns and "
        f"{1 / f.out_byte:.2f} GB/s; a fault {f.fault:.0f} ns, a page {f.page:.0f} ns, a block's first {f.first_touch:.0f} ns"
    )
    rows = [r for r in ROWS if r.use == "calibrate" and r.group == "batch_latency" and r.unit == "us" and r.workload in
            ("Stencil-8K", "Stencil-24K", "Sweep-4K", "Sweep-16K", "Sweep-24K")]  # fmt: skip
    measured = np.array([r.value for r in rows])
    one, two = batches(rows, 1.0), batches(rows, 2.0)
    # Nearly straight in the factor: least squares of (one + (factor - 1) (two - one)) / measured - 1.
    slope, rest = (two - one) / measured, 1 - one / measured
    factor = 1 + float(slope @ rest / (slope @ slope))
    print(f"T4: {factor:.2f} times the GTX 1080 Ti's")
    for row, us in zip(rows, batches(rows, factor), strict=True):
        print(f"  {row.workload}: {us:.1f} us, measured {row.value}")


if __name__ == "__main__":
    main()
