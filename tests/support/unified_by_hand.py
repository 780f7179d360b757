"""A GPU with round numbers for unified memory, and short programs for it, so that every fault can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine.platforms import DriverWork, HostLink, Platform
from gpusim.programs.managed.steps import Access, Array, Kernel, Wait

MIB = 1 << 20
BLOCK = 2 * MIB
# Copies of 1 byte/ns in, 2 bytes/ns out; everything else is a round number.
WORK = DriverWork(interrupt=10_000.0, batch=1000.0, fault=10.0, block=100.0, first_touch=5000.0, page=1.0, run=0.0, replay=50.0,
            cpu_fault=700.0, cpu_page=0.0)  # fmt: skip
LINK = HostLink(in_start=300.0, in_rate=1e9, out_start=200.0, out_rate=2e9, remote_rate=1e9)
TINY = Platform("tiny", 1, 4 * BLOCK, 1e15, LINK, WORK, warps=64, sms_per_utlb=1)
PAGE = 1024  # elements of 4 bytes


def one_thread(*pages: int, array: str = "a", write: bool = False, name: str = "touch", gpu: int = 1) -> Kernel:
    """One thread touches pages one after the other."""
    index = np.array([p * PAGE for p in pages], np.int64)
    return Kernel(name, [Access(array, write, inner=1, index=index)], (1, 1), (1, 1), (len(pages), 1), ns=0.0, gpu=gpu)


def blocks(*which: int, **more: Any) -> Kernel:
    """One thread touches the first page of blocks."""
    return one_thread(*(512 * b for b in which), **more)


def in_turn(program: list[Any]) -> list[Any]:
    """The same steps, where a kernel of another GPU than the one before begins when that has ended."""
    out: list[Any] = []
    for step in program:
        if out and isinstance(step, Kernel) and isinstance(out[-1], Kernel) and step.gpu != out[-1].gpu:
            out.append(Wait())
        out.append(step)
    return out


def run(program: list[Any], arrays: list[Array] | None = None, platform: Platform = TINY, **more: Any) -> Any:
    result = simulate_uvm(arrays or [Array("a", 8 * BLOCK)], in_turn(program), platform, more.pop("parameters", None), **more)
    assert not result.failed
    return result


WHOLE = {"uvm_perf_prefetch_threshold": 0}
