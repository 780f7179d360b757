"""Unified memory: how fast it is simulated, and against the same rules in plain Python (tests/support/uvm_reference.py).

    PYTHONPATH=. python benchmarks/uvm.py
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from uvm_reference import Reference

from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine.platforms import load
from gpusim.programs.managed import patterns as p
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel, Prefetch

GIB = 1 << 30
GTX_1080_TI, RTX_5070_TI = load("gtx-1080-ti"), load("rtx-5070-ti")
RESIDENT = 2 * GIB // 128  # touches
FAULTS = 2 * GIB // 4096

# Faults in random order: this many VABlocks on so many chunks of memory, and threads of a thread block.
BLOCKS, CHUNKS, BLOCK = 24, 16, 128
ORDER = np.random.default_rng(1).permutation(BLOCKS * 512).astype(np.int64)
# The reference knows no time: to it all uTLBs report their faults at once.
AT_ONCE = replace(GTX_1080_TI.work, fault_interval=0.0, report_interval=0.0)  # the reference knows no time between faults
SMALL = replace(GTX_1080_TI, sms=8, memory=CHUNKS * (2 << 20), work=AT_ONCE, entries=GTX_1080_TI.outstanding)


# --- loads: CPU seconds of one run ----------------------------------------------------------------------------------------


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU seconds, answer)"""
    begin = time.process_time()
    answer = what()
    return time.process_time() - begin, answer


def resident() -> float:
    kernel = p.sweep("a", GIB // 4)
    seconds, r = timed(lambda: simulate_uvm([Array("a", GIB)], [Prefetch("a"), kernel, kernel], RTX_5070_TI))
    assert int(r.counts[1]["touches"]) == RESIDENT
    return seconds


def faults() -> float:
    """The kernel alone."""
    kernel, at = p.sweep("a", FAULTS, stride=1024), []
    r = simulate_uvm([Array("a", 2 * GIB)], [HostTouch("a"), kernel], RTX_5070_TI, {"uvm_perf_prefetch_enable": 0},
                     watch=lambda memory, steps: at.append(time.process_time()))  # fmt: skip
    assert int(r.counts[1]["faults"]) == FAULTS
    return at[2] - at[1]


def oversubscribed() -> float:
    machine = replace(RTX_5070_TI, memory=16 * GIB)
    kernel = p.sweep("a", 24 * GIB // 4096, stride=1024, write=True)
    seconds, r = timed(lambda: simulate_uvm([Array("a", 24 * GIB)], [HostTouch("a"), kernel, kernel, kernel], machine))
    assert int(r.counts[1]["touches"]) == 3 * 24 * GIB // 4096
    return seconds


def random_order() -> tuple[float, Any]:
    kernel = Kernel("gather", [Access("a", tx=1, bx=BLOCK, index=ORDER * 1024)], (len(ORDER) // BLOCK, 1), (BLOCK, 1), ns=0.0)
    return timed(lambda: simulate_uvm([Array("a", BLOCKS * (2 << 20))], [HostTouch("a"), kernel], SMALL))


def loads() -> dict[str, Callable[[], float]]:
    """For side_by_side.py."""
    return {"resident": resident, "faults": faults, "oversubscribed": oversubscribed, "random order": lambda: random_order()[0]}


def fastest(what: Callable[[], float], times: int = 3) -> float:
    """After a run that compiles."""
    what()
    return min(what() for _ in range(times))


def main() -> None:
    print(f"resident, a warp a 128 bytes: {RESIDENT / fastest(resident) / 1e6:.1f} M touches/s")
    print(f"a fault a page, one page each: {FAULTS / fastest(faults, 5) / 1e6:.2f} M faults/s")
    seconds = fastest(oversubscribed, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"24 GiB on 16 GiB, three passes page by page: {seconds:.2f} s, {peak:.0f} MiB of memory")
    ours = fastest(lambda: random_order()[0])
    reference = Reference(BLOCKS, CHUNKS, SMALL.sms, SMALL.warps, gpcs=SMALL.gpcs)
    theirs, _ = timed(lambda: reference.run(ORDER.tolist(), BLOCK, [False]))
    counts = random_order()[1].counts[1]
    assert (int(counts["faults"]), int(counts["batches"])) == (reference.faults, reference.batches)
    ratio = theirs / ours
    print(f"{reference.faults} faults in random order: plain Python {theirs:.2f} s, here {1e3 * ours:.1f} ms: {ratio:.0f} x")


if __name__ == "__main__":
    main()
