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

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from uvm_reference import Reference

from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine.platforms import load
from gpusim.programs.managed import patterns as p
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel, Prefetch

GIB = 1 << 30
GTX_1080_TI, RTX_5070_TI = load("gtx-1080-ti"), load("rtx-5070-ti")


def best(what: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Seconds of processor time of the fastest of several runs, after one that compiles."""
    what()
    seconds, answer = float("inf"), None
    for _ in range(times):
        begin = time.process_time()
        answer = what()
        seconds = min(seconds, time.process_time() - begin)
    return seconds, answer


def resident() -> None:
    kernel = p.sweep("a", GIB // 4)
    seconds, r = best(lambda: simulate_uvm([Array("a", GIB)], [Prefetch("a"), kernel, kernel], RTX_5070_TI))
    touches = int(r.counts[1]["touches"])
    assert touches == 2 * GIB // 128
    print(f"resident, a warp a 128 bytes: {touches / seconds / 1e6:.1f} M touches/s")


def faults() -> None:
    n = 2 * GIB // 4096
    kernel = p.sweep("a", n, stride=1024)
    settings = {"uvm_perf_prefetch_enable": 0}
    seconds = float("inf")
    for _ in range(5):
        at: list[float] = []
        r = simulate_uvm([Array("a", 2 * GIB)], [HostTouch("a"), kernel], RTX_5070_TI, settings,
                         watch=lambda memory, steps, at=at: at.append(time.process_time()))  # fmt: skip
        seconds = min(seconds, at[2] - at[1])  # of the kernel alone
    assert int(r.counts[1]["faults"]) == n
    print(f"a fault a page, one page each: {n / seconds / 1e6:.2f} M faults/s")


def oversubscribed() -> None:
    machine = replace(RTX_5070_TI, memory=16 * GIB)
    kernel = p.sweep("a", 24 * GIB // 4096, stride=1024, write=True)
    seconds, r = best(lambda: simulate_uvm([Array("a", 24 * GIB)], [HostTouch("a"), kernel, kernel, kernel], machine), 2)
    assert int(r.counts[1]["touches"]) == 3 * 24 * GIB // 4096
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"24 GiB on 16 GiB, three passes page by page: {seconds:.2f} s, {peak:.0f} MiB of memory")


def against_python() -> None:
    blocks, chunks, sms, block = 24, 16, 8, 128
    order = np.random.default_rng(1).permutation(blocks * 512)
    machine = replace(GTX_1080_TI, sms=sms, memory=chunks * (2 << 20))
    index = order.astype(np.int64) * 1024
    kernel = Kernel("gather", [Access("a", tx=1, bx=block, index=index)], (len(order) // block, 1), (block, 1), ns=0.0)

    def plain() -> Reference:
        reference = Reference(blocks, chunks, sms, machine.warps)
        reference.run(order.tolist(), block, [False])
        return reference

    array = [Array("a", blocks * (2 << 20))]
    ours, r = best(lambda: simulate_uvm(array, [HostTouch("a"), kernel], machine))
    theirs, reference = best(plain, 1)
    assert int(r.counts[1]["faults"]) == reference.faults
    assert int(r.counts[1]["batches"]) == reference.batches
    ratio = theirs / ours
    print(f"{reference.faults} faults in random order: plain Python {theirs:.2f} s, here {1e3 * ours:.1f} ms: {ratio:.0f} x")


if __name__ == "__main__":
    resident()
    faults()
    oversubscribed()
    against_python()
