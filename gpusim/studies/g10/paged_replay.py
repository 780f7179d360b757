"""The replay of a program through the paged memory, two iterations of it by default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.tables import table
from gpusim.studies.g10.conditions import Conditions
from gpusim.studies.g10.extent_tables import (
    DEVICE,
    EXTENT,
    GROW,
    ITERATION,
    LAUNCH,
    NONE,
    NOWHERE,
    QUEUE,
    QUEUES,
    RUNNING,
    SSD,
    STATE,
    STUCK,
    TENSOR,
    KernelWork,
    PagedState,
)
from gpusim.studies.g10.kernel_program import I64, KernelProgram
from gpusim.studies.g10.loop import SPARE, run

Hint = tuple[int, int, int]  # kernel, tensor, where to


@dataclass(frozen=True)
class ReplayPolicy:
    """degree 0: hints say what comes ahead of need; else all that the kernel so far ahead uses is asked for.

    drops: a page of a dead tensor is dropped when it is the victim, not copied.
    """

    degree: int = 0
    drops: bool = False


@dataclass(frozen=True)
class PagedReplay:
    """What a replay has counted: one row per iteration, and per kernel of each."""

    iterations: Any  # ITERATION[n]
    launches: Any    # LAUNCH[n, K]

    @property
    def cycles(self) -> I64:
        """Of each iteration: from the end of the one before to its own."""
        lengths: I64 = np.diff(self.iterations["end"], prepend=0)
        return lengths

    @property
    def best(self) -> int:
        """The iteration that the study publishes: the shorter one."""
        return int(np.argmin(self.cycles))


def replay(
    program: KernelProgram,
    conditions: Conditions,
    policy: ReplayPolicy,
    hints: Iterable[Hint] = (),
    *,
    iterations: int = 2,
    steady: bool = True,
) -> PagedReplay:
    """Run the program.  hints: acted on when their kernel begins, in the order given; steady: see `gpusim.studies.g10.steady`.

    GpusimError when a kernel alone needs more than the device holds.
    """
    widest = max(int(program.size[walk].sum()) for walk in program.walk) // conditions.page
    if widest > conditions.device_pages:
        raise GpusimError(
            f"'{program.name}': a kernel works on {widest} pages", hint=f"the device has {conditions.device_pages}"
        )
    work = _work(program, conditions, policy, list(hints))
    memory = _memory(program, conditions, policy, iterations, steady)
    while (why := run(memory, work)) == GROW:
        memory = _grown(memory)
    if why == STUCK:
        kernel = int(memory.state[0]["kernel"])
        raise GpusimError(
            f"'{program.name}': kernel {kernel} waits for pages, and no page may be evicted",
            hint=f"the device has {conditions.device_pages} pages",
        )
    return PagedReplay(memory.iterations, memory.launches.reshape(iterations, program.kernels))


def _work(program: KernelProgram, conditions: Conditions, policy: ReplayPolicy, hints: Sequence[Hint]) -> KernelWork:
    run, outs, alls = program.cycles(conditions.hertz)
    used = [np.concatenate(both) for both in zip(program.inputs, program.outputs, strict=True)]
    start = np.concatenate(([0], np.cumsum([len(u) for u in used])))
    pages = program.size // conditions.page
    rates = np.empty((program.kernels, 2))
    whole = [(t // conditions.hertz) * 1000.0 for t in (alls, outs, run)]  # the study divides integers: whole seconds, as ms
    for k, (inputs, outputs) in enumerate(zip(program.inputs, program.outputs, strict=True)):
        for side, (tensors, slow, fast) in enumerate(((inputs, whole[0], whole[1]), (outputs, whole[1], whole[2]))):
            size = int(pages[tensors].sum()) * conditions.page
            took = slow[k] - fast[k]
            rates[k, side] = size / took if took > 0 else conditions.unprofiled
    if policy.degree:
        n = program.kernels
        hints = [(k, int(t), DEVICE) for k in range(n) for t in program.walk[(k + policy.degree) % n]]
    rows = np.array(hints, np.int64).reshape(-1, 3)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    pcie, ssd = (rate * 1e9 / conditions.hertz * conditions.hertz / 1000 for rate in (conditions.pcie, conditions.ssd))
    links = np.array([pcie, ssd, conditions.fault_us, conditions.ssd_us, conditions.page, conditions.hertz], np.float64)
    return KernelWork(
        run, start, start[:-1] + np.array([len(i) for i in program.inputs]), np.concatenate(used), rates,
        np.searchsorted(rows[:, 0], np.arange(program.kernels + 2)), np.ascontiguousarray(rows[:, 1:]), links,
    )  # fmt: skip


def _memory(program: KernelProgram, conditions: Conditions, policy: ReplayPolicy, iterations: int, steady: bool) -> PagedState:
    n = program.tensors
    extents, tensors = table(max(1 << 14, 2 * n + 2 * SPARE), EXTENT), table(n, TENSOR)
    tensors["pages"] = program.size // conditions.page
    tensors["extent"] = np.arange(n)
    tensors["begin"] = np.where(program.everlasting, -1, program.begin)
    tensors["end"] = np.where(program.everlasting, 2**40, np.where(program.unread, program.begin + 1, program.end))
    for name in ("needed", "window"):
        tensors[name] = NONE
    for name in ("queue", "before", "after", "older", "newer", "behind"):
        extents[name] = NONE
    extents["tensor"][:n], extents["pages"][:n] = np.arange(n), tensors["pages"]
    extents["where"][:n] = np.where(program.everlasting, SSD, NOWHERE)
    extents["after"][n:] = np.append(np.arange(n + 1, len(extents)), NONE)
    queues = table(QUEUES, QUEUE)
    queues["head"] = queues["tail"] = NONE
    state = table(1, STATE)
    for name, value in {
        "tick": conditions.tick, "link": conditions.burst, "ssd": conditions.ssd_pages, "allocs": conditions.allocs,
        "device": conditions.device_pages, "host": conditions.host_pages, "free": conditions.device_pages,
        "degree": policy.degree, "drops": policy.drops, "steady": steady, "kernels": program.kernels, "iterations": iterations,
        "oldest": NONE, "newest": NONE, "candidate": NONE, "spare": n, "spares": len(extents) - n, "seen": NONE,
        "mode": RUNNING, "kernel": -1,
    }.items():  # fmt: skip
        state[name] = value
    launches = table(iterations * program.kernels, LAUNCH)
    return PagedState(extents, tensors, queues, state, launches, table(iterations, ITERATION))


def _grown(memory: PagedState) -> PagedState:
    """The same with twice as many extents."""
    old, s = memory.extents, memory.state[0]
    n = len(old)
    new = table(2 * n, EXTENT)
    new[:n] = old
    new["after"][n:] = np.append(np.arange(n + 1, 2 * n), s["spare"])
    s["spare"] = n
    s["spares"] += n
    return memory._replace(extents=new)

