"""Do kernels under managed memory go on the one clock: streams and GPUs side by side, each trace as long as without?"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hand_worked import machine
from unified_by_hand import BLOCK, TINY, blocks, simulate_uvm

from gpusim.base.yaml.find import find, names
from gpusim.engine.pages import account
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.pages.simulate import UvmResult
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.durations import durations
from gpusim.machine.profile import changed
from gpusim.programs.managed.steps import (
    Access,
    Advise,
    Array,
    Discard,
    Free,
    HostTouch,
    Kernel,
    ManagedProgram,
    Prefetch,
    Start,
    Wait,
)
from gpusim.results.result import Result
from gpusim.trace.answers import answers
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import COPY_IN, COPY_OUT
from gpusim.trace.workload import build

pytestmark = [pytest.mark.hand_worked, pytest.mark.slow]

# Eight SMs, each with room for eight thread blocks of 256 threads.
GPU = replace(TINY, sms=8, hbm=1e12, memory=64 * BLOCK)
TWO = [Array("a", 8 * BLOCK), Array("b", 8 * BLOCK)]
MS = 1e6


def kernel(grid: int, array: str = "a", **more: Any) -> Kernel:
    return Kernel("k", [Access(array, tx=1, bx=256, elements=1024)], (grid, 1), (256, 1), ns=MS, **more)


def run(*program: Any, **more: Any) -> UvmResult:
    return simulate_uvm(TWO, [Prefetch("a"), Start(), *program], GPU, **more)


@pytest.mark.parametrize(("grid", "ns"), [(4 * 8, 10 * MS), (8 * 8, 20 * MS), (6 * 8, 15 * MS)])
def test_two_streams_of_ten_kernels_take_what_they_need_of_the_sms(grid: int, ns: float) -> None:
    """Half of the SMs each, all of them, or three quarters: of the rest the second has a third of what it can use."""
    ran = run(*[kernel(grid, stream=stream) for _ in range(10) for stream in (0, 1)])
    if grid == 6 * 8:  # what is left is shared in waves: between both
        assert 10 * MS < ran.ns <= 20 * MS
    else:
        assert ran.ns == ns


def test_kernels_of_two_gpus_go_side_by_side_and_wait_where_they_are_told() -> None:
    both = [kernel(64), kernel(64, "b", gpu=2)]
    assert run(Prefetch("b", 2), Start(), *both, gpus=2).ns == MS
    assert run(Prefetch("b", 2), Start(), both[0], Wait(), both[1], gpus=2).ns == 2 * MS


@pytest.mark.parametrize(
    ("step", "ns"),
    [(Advise("b", "read_mostly"), 2), (Advise("b", "read_mostly", after=()), 1), (Advise("b", "read_mostly", after=(1,)), 1),
     (Discard("b"), 2), (Discard("b", after=()), 1), (Free("b"), 2)],
)  # fmt: skip
def test_hints_and_frees_wait_for_the_kernels_that_they_name(step: Any, ns: int) -> None:
    """Between two kernels that use half of the GPU each, on two streams; a discard takes the driver 100 ns a block."""
    ran = run(kernel(32), step, kernel(32, stream=1))
    late = 800 if isinstance(step, Discard) else 0
    assert ran.ns == ns * MS + late
    assert [one.ns for one in ran.steps] == [MS, late, MS]


def test_a_hint_beside_a_kernel_counts_from_then_on() -> None:
    """What the first kernel has to fetch the second, behind the hint, reads where it is."""
    first, second = kernel(32), replace(kernel(32, "b", stream=1), accesses=[Access("b", tx=1, bx=256, elements=1024)])
    hint = Advise("b", "accessed_by", after=())
    ran = run(HostTouch("b"), Start(), first, hint, second)
    assert ran.ns == MS and int(ran.counts["faults"][1]) == 0 and int(ran.counts["remote_bytes"][1]) > 0


def faulting(stream: int = 1, gpu: int = 1) -> UvmResult:
    """Two threads touch four blocks each, one after the other, which are in host memory."""
    program = [HostTouch("a"), HostTouch("b"), Start(), blocks(0, 1, 2, 3)]
    other = replace(blocks(0, 1, 2, 3, array="b"), stream=stream, gpu=gpu)
    return simulate_uvm(TWO, [*program, other], GPU, gpus=2)


# One fault of a block: 11,000 ns of pass and batch, 10 + 100 + 5000 + 16 of the driver (its first touch of a block, 16 pages),
# 300 + 65,536 of the copy, which begins when the driver is done, and 50 of the replay.  Passes are of 20 batches: one each.
FIRST, LATER = 10_000 + 1000 + 10 + 100 + 5000 + 16 + 300 + 65_536 + 50, 1000 + 10 + 100 + 5000 + 16 + 300 + 65_536 + 50


def test_one_driver_serves_the_faults_of_two_streams_in_turn() -> None:
    after, beside = faulting(stream=0), faulting(stream=1)
    assert after.ns == 2 * (FIRST + 3 * LATER)
    assert beside.ns == FIRST + 7 * LATER, "one pass serves both; the kernel that stands for longer is next"
    assert [int(step.counts["batches"][1]) for step in beside.steps[-2:]] == [4, 4]


def test_two_gpus_have_a_driver_each() -> None:
    assert faulting(gpu=2).ns == FIRST + 3 * LATER


def test_a_kernel_that_works_goes_on_while_another_stands_at_faults() -> None:
    beside = [blocks(0, 1, 2, 3, array="b"), *[kernel(32, stream=1) for _ in range(2)]]
    ran = simulate_uvm(TWO, [Prefetch("a"), HostTouch("b"), Start(), *beside], GPU)
    assert ran.ns == 2 * MS and ran.steps[0].end - ran.steps[0].start == FIRST + 3 * LATER
    report = account.of(ran)
    assert sum(report.times.values()) == pytest.approx(ran.ns)
    assert report.beside["kernels"] == 2 * MS + FIRST + 3 * LATER and report.beside["any"] == 2 * MS


def faulting_trace(copies: bool, engines: int = 1, way: int = COPY_IN) -> Result:
    """A kernel reads weights again that another has thrown out; meanwhile the program may copy 64 MiB on another stream."""
    b = TraceBuilder("by hand")
    weights, activations = b.alloc(2 * BLOCK), b.alloc(2 * BLOCK)
    b.op("write", (), (activations,), duration=1000)
    b.op("read", (weights,), (), duration=3000)
    if copies:
        b.op("copy", (), (), read_bytes=64 << 20, activity=way, stream=1)
    trace = b.finish()
    rates = {"paging.rate_h2d": 10e9, "paging.rate_d2h": 8e9, "paging.start_h2d": 0.0, "paging.start_d2h": 0.0,
             "paging.invalidate": 0.0}  # fmt: skip
    profile = machine({"copy_engines.h2d": engines, **rates, "memory.copy": 400e9}, base="gtx-1080-ti")
    work = build(trace, durations(trace, profile)[0])
    return simulate_unified(work, profile, capacity_bytes=2 * BLOCK, place="best_fit", log=True)


@pytest.mark.parametrize("engines", [1, 2])
def test_copies_of_pages_and_of_the_program_share_the_link(engines: int) -> None:
    """The driver's copies to the GPU have engines of their own, however many those of the program take turns in."""
    pages, both = (faulting_trace(copies=copies, engines=engines).metrics for copies in (False, True))
    assert both["h2d_bytes"] == pages["h2d_bytes"] == 2 * BLOCK, "the same pages come"
    # At 10 bytes/ns what comes takes 419,430 ns, and twice that beside a copy; what leaves has its own direction.
    assert both["stall_migration_ns"] - pages["stall_migration_ns"] == pytest.approx(2 * BLOCK / 10, abs=4)
    whole = 1000 + ((64 << 20) + 2 * BLOCK) / 10
    assert both["makespan_ns"] == pytest.approx(whole, abs=4), "the link carries both without a gap"
    # A kernel that stands and goes on again ends a stretch at a whole ns.
    assert [both["compute_busy_ns"], pages["compute_busy_ns"]] == pytest.approx([4000, 4000], abs=2)


def test_copies_of_pages_to_the_host_take_turns_with_those_of_the_program() -> None:
    alone, both = faulting_trace(copies=False), faulting_trace(copies=True, way=COPY_OUT)
    log = alone.pages
    assert log is not None
    leaves = log["flow_begin"][log["flow_way"] == alone.spec["paging"]["traffic"]["copies"][1][1]].min()
    # The program's copy begins at once, with 1000 ns before its first byte, of which the link takes 8 each ns.
    late = 1000 + (64 << 20) // 8 - int(leaves)
    assert both.metrics["makespan_ns"] - alone.metrics["makespan_ns"] == pytest.approx(late, abs=1)


def shipped() -> list[str]:
    """Three quick traces, or with GPUSIM_ALL_TRACES in the environment all that have times and accesses: five minutes."""
    if not os.environ.get("GPUSIM_ALL_TRACES"):
        return ["gpt-medium-infer", "resnet50-sgd", "unet3d-train"]
    files = {name: find("trace", name) for name in names("trace")}
    can = {name: answers(load_trace(file)) for name, file in files.items() if file.suffix == ".npz"}
    return [name for name, answer in can.items() if answer.times and answer.accesses]


@pytest.mark.parametrize("name", shipped())
def test_with_all_memory_populated_a_trace_takes_what_it_takes_without_unified_memory(name: str) -> None:
    profile = changed(changed(load("h100-sxm-80gb"), "memory.capacity", 1e13), "host.capacity", 1e13)  # the largest has 1.8 TB
    trace = load_trace(find("trace", name))
    work = build(trace, durations(trace, profile)[0])
    plain = simulate(trace, profile, work=work)
    driven = simulate_unified(work, profile, settings=DriverSettings(advice="populate"))
    assert driven.metrics["gpu_faults"] == 0
    assert driven.metrics["makespan_ns"] == plain.metrics["makespan_ns"]
    assert driven.metrics["compute_busy_ns"] == plain.metrics["compute_busy_ns"]


def test_the_idle_share_is_that_of_the_average_stream() -> None:
    """Two kernels of 1 ms on streams of their own, of half of the GPU each: no stream idles; one of them twice: a quarter."""
    profile, half = load("a100-pcie-80gb"), kernel(432)
    for more, idle in ((), 0.0), ((half,), 0.25):
        steps = [Prefetch("a"), Start(), half, replace(half, stream=1), *more]
        program = ManagedProgram("p", [Array("a", 1 << 21)], steps)
        assert simulate_unified(program, profile).metrics["compute_idle_share"] == pytest.approx(idle, abs=1e-3)
