"""Durations of a trace of a million operators: seconds for each way in which operators repeat.

    python benchmarks/kernel_times.py [OPERATORS]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpusim.machine.kernels.durations import durations
from gpusim.machine.profile import load_file
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

ROOT = Path(__file__).parents[1]
COLUMNS = ("op", "module", "dtype", "flops", "read_bytes", "written_bytes", "duration", "phase", "activity", "shape")


def repeated(trace: Trace, count: int, apart: bool) -> Trace:
    """The operators of the trace over and over; `apart`: no two of them move as many bytes."""
    of = np.resize(np.arange(trace.ops), count)
    columns = {name: getattr(trace, name)[of] for name in COLUMNS}
    if apart:
        columns["read_bytes"] = columns["read_bytes"] + np.arange(count)
    nothing = {name: np.zeros(count + 1, np.int64) for name in ("read_start", "write_start")}
    return replace(trace, **columns, **nothing, read_id=np.zeros(0, np.int64), write_id=np.zeros(0, np.int64))


def main() -> None:
    """Print a line for each program."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10**6
    profile = load_file(ROOT / "hardware_profiles" / "a100-sxm4-80gb.yaml")
    for name, apart in (("gpt3-175b-train", False), ("llama-1b-decode", False), ("llama-1b-decode", True)):
        trace = repeated(load_trace(ROOT / "traces" / f"{name}.npz"), count, apart)
        for run in ("first", "again"):
            start = time.process_time()
            durations(trace, profile)
            words = "all different" if apart else "repeated"
            print(f"{name:20} {trace.ops:,} operators, {words}, {run}: {time.process_time() - start:.2f} s of the CPU")


if __name__ == "__main__":
    main()
