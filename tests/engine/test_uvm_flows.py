"""Does what managed memory moves share links and memory with what else moves, and take its own time alone?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unified_by_hand import BLOCK, LINK, PAGE, TINY, blocks, simulate_uvm

from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.simulate import UvmResult
from gpusim.machine.driver_parameters import UvmError
from gpusim.machine.topology.build import load as topology
from gpusim.machine.topology.connections import Connections
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, ManagedProgram, Prefetch, Start

pytestmark = [pytest.mark.hand_worked, pytest.mark.slow]

# A byte each ns to the GPU, two from it, and copies that cost nothing to start.
GPU = replace(TINY, memory=64 * BLOCK, link=replace(LINK, in_start=0.0, out_start=0.0))
TWO = [Array("a", 8 * BLOCK), Array("b", 8 * BLOCK)]
WORK = 100 + 5000 + 512  # of the driver, on a block of which nothing has been on the GPU


def run(*program: Any, machine: Any = GPU, arrays: list[Array] = TWO, **more: Any) -> UvmResult:
    return simulate_uvm(arrays, [HostTouch("a"), HostTouch("b"), *program], machine, **more)


def reader(grid: int, array: str = "b", stream: int = 0, write: bool = False, gpu: int = 1) -> Kernel:
    """So many thread blocks read 4 KiB each, whose own work takes no time."""
    return Kernel("reads", [Access(array, write, tx=1, bx=PAGE, elements=grid * PAGE)], (grid, 1), (PAGE, 1), ns=0.0,
                  stream=stream, gpu=gpu)  # fmt: skip


def ends(ran: UvmResult) -> list[float]:
    return [step.end - ran.began for step in ran.steps]


def test_a_prefetch_in_a_stream_takes_its_time_while_kernels_run() -> None:
    one = Kernel("works", [], (1, 1), ns=1e6)
    ran = run(Start(), Prefetch("a", stream=1), one)
    assert ends(ran) == [WORK + 8 * BLOCK, 1e6]
    after = run(Start(), Prefetch("a", stream=0), one)
    assert ends(after) == [WORK + 8 * BLOCK, WORK + 8 * BLOCK + 1e6]
    assert after.ns == run(Start(), Prefetch("a"), one).ns, "as if the program waited"


def test_a_kernel_in_its_stream_finds_what_the_prefetch_has_brought() -> None:
    ran = run(Start(), Prefetch("a", stream=1), replace(blocks(*range(8)), stream=1))
    assert ran.ns == WORK + 8 * BLOCK and int(ran.counts[1]["faults"]) == 0


def test_two_prefetches_of_one_driver_follow_one_another() -> None:
    ran = run(Start(), Prefetch("a", stream=1), Prefetch("b", stream=2))
    assert ends(ran) == [WORK + 8 * BLOCK, WORK + 16 * BLOCK]


def test_remote_reads_and_a_prefetch_share_the_link() -> None:
    mapped = Advise("b", "preferred_location", 0), Advise("b", "accessed_by", 1)
    alone = run(*mapped, Start(), reader(512))
    assert alone.ns == BLOCK and int(alone.counts[1]["remote_bytes"]) == BLOCK
    both = run(*mapped, Start(), reader(512), Prefetch("a", stream=1))
    # The kernel has the link to itself until the first copy, then half of it; then the prefetch has all of it.
    together = WORK + 2 * (BLOCK - WORK)
    assert ends(both) == pytest.approx([together, BLOCK + 8 * BLOCK], abs=1)


def test_remote_reads_are_no_faster_than_the_kernel_asks_for_them() -> None:
    mapped = Advise("b", "preferred_location", 0), Advise("b", "accessed_by", 1)
    slow = replace(reader(512), ns=4.0 * BLOCK)  # a quarter of a byte each ns
    both = run(*mapped, Start(), slow, Prefetch("a", stream=1))
    rest = WORK + 8 * BLOCK / 0.75 - 4 * BLOCK
    assert ends(both) == pytest.approx([4 * BLOCK, 4 * BLOCK + 0.75 * rest], abs=9)


def test_remote_writes_go_the_other_way() -> None:
    mapped = Advise("b", "preferred_location", 0), Advise("b", "accessed_by", 1)
    both = run(*mapped, Start(), reader(512, write=True), Prefetch("a", stream=1))
    assert ends(both) == [BLOCK, WORK + 8 * BLOCK], "at remote_rate, of a link of two bytes each ns"


SWITCH = Connections({"switch": 1.0}, [{"h2d": ("switch",)}, {"h2d": ("switch",)}])


def test_two_gpus_behind_one_switch_halve_each_other() -> None:
    program = Start(), Prefetch("a", stream=0), Prefetch("b", 2, stream=0, gpu=2)
    assert ends(run(*program, gpus=2)) == [WORK + 8 * BLOCK] * 2, "each with a way of its own"
    # The two take the switch in turn piece by piece, or half of it each: what one waits for, the other has.
    assert ends(run(*program, gpus=2, between=SWITCH)) == [WORK + 16 * BLOCK] * 2


def test_faults_of_two_gpus_behind_one_switch_halve_each_other() -> None:
    program = Start(), blocks(0), replace(blocks(0, array="b"), gpu=2)
    alone, both = run(*program, gpus=2), run(*program, gpus=2, between=SWITCH)
    assert ends(both) == [end + 65_536 for end in ends(alone)], "64 KiB each, at half of a byte each ns"
    after = run(*program, HostTouch("a"), *program[1:], gpus=2, between=SWITCH)
    assert after.ns > both.ns, "the host has a turn between, and the links are there again"


NVLINK = replace(GPU, peer_rate=4e9)


def test_a_copy_between_gpus_and_remote_reads_share_their_link() -> None:
    there = Prefetch("a", 2), Prefetch("b", 2), Advise("b", "preferred_location", 2), Advise("b", "accessed_by", 1)
    alone = run(*there, Start(), Prefetch("a", stream=0), gpus=2, machine=NVLINK)
    assert alone.ns == WORK + 8 * BLOCK / 4, "not over the host"
    both = run(*there, Start(), Prefetch("a", stream=0), reader(512, stream=1), gpus=2, machine=NVLINK)
    assert ends(both) == pytest.approx([WORK + 8 * BLOCK / 4 + (BLOCK / 4 - WORK), WORK + 2 * (BLOCK / 4 - WORK)], abs=8)


def test_zero_fills_and_a_kernel_share_the_memory() -> None:
    machine, arrays = replace(GPU, hbm=4e9, sms=8), [*TWO, Array("c", 8 * BLOCK)]
    alone = run(Start(), blocks(0, array="c"), machine=machine, arrays=arrays).ns  # it ends with a fill of 524,288 ns, and 50
    begins, own = alone - 50 - BLOCK / 4, 14 * PAGE * 4 * 32 / 4
    streams = Kernel("streams", [Access("a", tx=1, bx=PAGE, inner=14 * PAGE)], (14, 1), (PAGE, 1), (32, 1), stream=1)
    both = run(Prefetch("a"), Start(), blocks(0, array="c"), streams, machine=machine, arrays=arrays)
    # The kernel has all of the memory, and half of it from then on; it loses what the fill loses meanwhile.
    assert ends(both) == pytest.approx([alone + own - begins, 2 * own - begins], abs=1)


def test_gpus_of_a_machine_share_the_links_that_it_says() -> None:
    machine = topology("dgx-a100")  # two GPUs behind each switch
    profile = machine.profile("gpu0")
    arrays = [Array("a", 32 * BLOCK), Array("b", 32 * BLOCK)]
    steps = [HostTouch("a"), HostTouch("b"), Start(), Prefetch("a", stream=0), Prefetch("b", 2, stream=0, gpu=2)]
    program = ManagedProgram("two", arrays, steps)
    apart, together = (simulate_unified(program, profile, machine=m).metrics["makespan_ns"] for m in (None, machine))
    assert together / apart == pytest.approx(2, rel=0.1)
    with pytest.raises(UvmError, match="runs kernels on 9 GPUs, and dgx-a100 has 8"):
        simulate_unified(replace(program, steps=[*steps, Prefetch("a", 9, stream=0, gpu=9)]), profile, machine=machine)
