"""Does the CPU touch managed memory as a host does: beside kernels, behind the streams that it waits for, over the links?"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hand_worked import machine
from unified_by_hand import BLOCK, LINK, PAGE, TINY, blocks, simulate_uvm

from gpusim.base.errors import ConfigError
from gpusim.engine.pages import account
from gpusim.engine.pages.issued import issued
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.simulate import UvmResult
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, ManagedProgram, Prefetch, Start
from gpusim.programs.managed.text import load
from gpusim.referee import pages
from gpusim.trace.trace import OP, RECORD, SYNC, WAIT

pytestmark = [pytest.mark.hand_worked, pytest.mark.slow]

# A byte each ns to the GPU, two from it, and copies that cost nothing to start; the CPU touches a byte each ns.
GPU = replace(TINY, memory=64 * BLOCK, cpu_rate=1e9, sms=8, link=replace(LINK, in_start=0.0, out_start=0.0))
TWO = [Array("a", 8 * BLOCK), Array("b", 8 * BLOCK)]
MS = 1_000_000.0
# The six faults of a block in ascending order, which the prefetcher grows to 64, 64, 128, 256, 512 and 1024 KiB.
FAULTS = 6 * 700


def run(*program: Any, arrays: list[Array] = TWO, **more: Any) -> UvmResult:
    return simulate_uvm(arrays, [HostTouch("a"), *program], GPU, **more)


def busy(ns: float, stream: int = 0) -> Kernel:
    return Kernel("busy", [Access("a", tx=1, bx=PAGE, elements=4 * PAGE)], (4, 1), (PAGE, 1), ns=ns, stream=stream)


def spans(ran: UvmResult) -> list[tuple[float, float]]:
    return [(step.start - ran.began, step.end - ran.began) for step in ran.steps]


def test_a_touch_that_waits_for_nothing_goes_on_beside_a_kernel() -> None:
    own = 8 * BLOCK + 8 * FAULTS
    kernel = Kernel("busy", [], (1, 1), ns=20 * MS)
    after, beside = (run(Start(), kernel, HostTouch("b", after=streams)) for streams in (None, ()))
    assert spans(after) == [(0, 20 * MS), (20 * MS, 20 * MS + own)]
    assert spans(beside) == [(0, 20 * MS), (0, own)] and beside.ns == 20 * MS
    report = account.of(beside)
    assert sum(report.times.values()) == pytest.approx(beside.ns) and report.beside["cpu"] == own
    assert "cpu" not in account.of(after).beside


def test_a_touch_waits_for_the_streams_that_it_names_and_what_is_behind_it_for_the_touch() -> None:
    own = 8 * BLOCK + 8 * FAULTS
    program = Prefetch("a"), Start(), busy(20 * MS), busy(2 * MS, 1), HostTouch("b", after=(1,)), busy(1 * MS, 1)
    ran = run(*program)
    assert spans(ran) == [(0, 20 * MS), (0, 2 * MS), (2 * MS, 2 * MS + own), (2 * MS + own, 3 * MS + own)]


def test_the_cpu_takes_pages_from_a_kernel_that_runs() -> None:
    """A kernel sweeps over a, which is on the GPU; the CPU writes b, which it takes from the GPU, or a."""
    sweep = Kernel("sweep", [Access("a", tx=1, bx=PAGE)], (8 * 512, 1), (PAGE, 1), (1, 8), ns=40 * MS)
    alone = run(Prefetch("a"), Start(), sweep)
    other = run(HostTouch("b"), Prefetch("a"), Prefetch("b"), Start(), sweep, HostTouch("b", after=()))
    assert alone.ns == 40 * MS and spans(other)[0] == (0, 40 * MS), "what it does not touch costs it nothing"
    assert spans(other)[1][1] == 8 * BLOCK + 8 * FAULTS + 8 * BLOCK / 2 + 8 * 512, "work, faults, copies, and 1 ns a page"
    same = run(Prefetch("a"), Start(), sweep, HostTouch("a", after=()))
    assert same.ns > 50 * MS and int(same.counts[1]["faults"]) > 0 and int(same.counts[1]["came"].sum()) * 4096 > BLOCK
    assert int(same.ranges[0]["ping_pong"]) > 0


def test_copies_of_a_touch_share_the_link_with_remote_stores() -> None:
    """A kernel stores 2 MiB over the link, a byte each ns; what the CPU takes has the other half of it."""
    far = Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1)
    stores = Kernel("stores", [Access("a", True, tx=1, bx=PAGE, elements=512 * PAGE)], (512, 1), (PAGE, 1), ns=0.0)
    program = HostTouch("b"), *far, Prefetch("b"), Start()
    touch = run(*program, HostTouch("b", after=())).ns
    both = spans(run(*program, stores, HostTouch("b", after=())))
    assert both[0] == (0, BLOCK), "alone at remote_rate, half of the link"
    # Copies of two bytes each ns flow at one while the kernel stores; each block of the CPU works for 2,097,152 ns first.
    assert both[1][1] == touch, "its first copy comes when the kernel has ended"
    twice = spans(run(*program, replace(stores, steps=(1, 4)), HostTouch("b", after=())))
    assert twice[1][1] > touch + BLOCK / 4, "the first copies take twice as long"


def test_what_the_program_waits_for_takes_what_it_took_alone() -> None:
    """Steps in turn have the times that they have one by one; a kernel between two touches begins when the first is over."""
    ran = run(Start(), blocks(0, 1), HostTouch("b"), Prefetch("b"), blocks(2, array="b"), HostTouch("a"))
    ends = spans(ran)
    assert all(a[1] == b[0] for a, b in pairwise(ends)) and ran.ns == ends[-1][1]
    assert [step.gpu for step in ran.steps] == [1, 0, 0, 1, 0]


def test_the_host_issues_waits_where_they_are_needed() -> None:
    steps = [busy(1, 0), busy(1, 1), HostTouch("b", after=(1,)), busy(1, 1), busy(1, 1), HostTouch("b")]
    said = issued(steps, range(6), 1)
    # The touch waits for stream 1 (event 0) and is event 1; the kernel behind it waits once; the last touch waits for both.
    assert said.kind.tolist() == [OP, OP, RECORD, WAIT, OP, RECORD, WAIT, OP, OP, RECORD, WAIT, RECORD, WAIT, OP, RECORD, SYNC]
    assert said.streams.tolist() == [0, 1, 2, 1, 1, 2]
    assert said.first[1:] == said.outer[:-1] == [1, 2, 6, 8, 9]
    assert issued(steps, range(6), 2).kind.tolist().count(SYNC) == 3, "of several GPUs none goes on beside what is waited for"


def test_the_referee_follows_touches_beside_kernels() -> None:
    sweep = Kernel("sweep", [Access("a", tx=1, bx=256)], (64, 1), (256, 1), (1, 64), ns=2e7)
    steps = [HostTouch("a"), HostTouch("b"), Start(), sweep, replace(sweep, stream=1), HostTouch("a", after=()),
             HostTouch("b", after=(0,)), sweep]  # fmt: skip
    program = ManagedProgram("beside", [Array("a", BLOCK), Array("b", 4 * BLOCK)], steps)
    result = simulate_unified(program, machine({}), capacity_bytes=16 * BLOCK, log=True)
    report = pages.check(result)
    assert report.ok, str(report)
    assert result.pages is not None
    early = result.pages["step_start"].copy()
    touch = int((result.pages["step_after"] == 1).argmax())
    early[touch] = 0
    wrong = pages.check(replace(result, pages={**result.pages, "step_start": early}))
    assert "behind the step before it on stream 0 of GPU 1" in str(wrong)


PROGRAM = """
arrays: {a: 8 MiB, b: 8 MiB}
steps:
  - host_write: [a, b]
  - start
  - kernel: k
    accesses: [{read: a}]
    stream: 2
  - host_read: [a, b]
    after: 2
  - host_write: b
    after: none
  - prefetch: b
    to: 2
    stream: 0
    gpu: 2
  - advise: a
    hint: accessed_by
    processor: 2
"""


def test_a_program_says_what_the_host_waits_for_and_which_gpu_is_meant(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PROGRAM)
    steps = load(tmp_path / "p.yaml").steps
    assert [step.after for step in steps if isinstance(step, HostTouch)] == [None, None, (2,), (), ()]
    assert [(step.to, step.gpu) for step in steps if isinstance(step, Prefetch)] == [(2, 2)]
    assert [step.processor for step in steps if isinstance(step, Advise)] == [2]


def test_streams_and_processors_that_there_are_not_are_told(tmp_path: Path) -> None:
    text = PROGRAM.replace("after: 2", "after: some").replace("to: 2", "to: 99")
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "p.yaml")
    assert "'some' names no streams" in str(refused.value) and "'99' is no processor" in str(refused.value)
