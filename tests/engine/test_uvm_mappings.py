"""Which processor maps what, how large page table entries are, and what GPUs do with each other's memory.  Worked by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from plain_python import interpreted
from test_uvm_system import GRACE, SYSTEM, often, pages64
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, one_thread, run

from gpusim.programs.managed.steps import Advise, Array, Discard, Free, HostTouch, Prefetch, Wait

pytestmark = pytest.mark.hand_worked

ONE = [Array("a", BLOCK)]


def sizes(*program: Any, arrays: list[Array] | None = None, **more: Any) -> list[int]:
    """Entries of the first GPU, of 4 KiB, 64 KiB and 2 MiB."""
    return list(run([*program], arrays or ONE, **more).page_tables[1])


def test_an_entry_is_as_large_as_what_is_mapped_alike() -> None:
    assert sizes(HostTouch("a")) == [0, 0, 0]
    assert sizes(HostTouch("a"), one_thread(3)) == [0, 1, 0]
    assert sizes(HostTouch("a"), one_thread(3), parameters={"uvm_perf_prefetch_enable": 0}) == [1, 0, 0]
    assert sizes(HostTouch("a"), one_thread(3), parameters=WHOLE) == [0, 0, 1]
    # The CPU takes a big page back, of which one page returns: 31 entries of 64 KiB are what is left of the large one.
    split = [HostTouch("a"), Prefetch("a"), Prefetch("a", to=0, count=65536)]
    assert sizes(*split) == [0, 31, 0]
    assert sizes(*split, one_thread(0), parameters={"uvm_perf_prefetch_enable": 0}) == [1, 31, 0]
    assert sizes(*split, one_thread(0)) == [0, 0, 1]  # and with the tree all is alike again


def test_permission_and_place_count_as_attributes() -> None:
    read = [HostTouch("a"), Advise("a", "read_mostly"), *(one_thread(*range(512)),)]
    assert sizes(*read) == [0, 0, 1]
    assert sizes(*read, one_thread(17, write=True)) == [15 + 1, 31, 0]  # one page is written: alone in its big page
    # Mapped remotely: host memory that was taken page by page is not contiguous, in one piece it is.
    far = [Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1)]
    by_tree = run([HostTouch("a"), *far], ONE).page_tables
    assert by_tree.tolist() == [[512, 0, 0], [0, 32, 0]]  # six faults; the pieces that the first one took are of 64 KiB
    at_once = run([HostTouch("a"), *far], ONE, parameters=WHOLE).page_tables
    assert at_once.tolist() == [[512, 0, 0], [0, 0, 1]]


def test_blocks_that_are_no_whole_window() -> None:
    small = [Array("a", 3 * 65536 + 4096, at=65536 - 4096)]  # a page, three big pages
    assert sizes(Prefetch("a"), arrays=small) == [1, 3, 0]
    assert sizes(HostTouch("a"), Prefetch("a"), arrays=[Array("a", BLOCK, kind="system")]) == [512, 0, 0]  # HMM
    assert run([HostTouch("a"), pages64(0)], SYSTEM, GRACE).page_tables.tolist() == [[0, 8 * 32, 0], [0, 0, 0]]  # ATS


NVLINK = replace(TINY, peer_rate=4e9)  # 4 bytes a ns from GPU to GPU


def test_gpus_copy_over_their_link_or_through_the_host() -> None:
    program = [HostTouch("a"), one_thread(0), one_thread(0, gpu=2)]
    near = run(program, ONE, NVLINK, parameters=WHOLE, gpus=2).steps[-1].counts[2]
    far = run(program, ONE, parameters=WHOLE, gpus=2).steps[-1].counts[2]
    assert near["copy_in"] == 2 * 300 + BLOCK / 4
    assert far["copy_in"] == 2 * (300 + 200) + BLOCK + BLOCK / 2  # out at two bytes a ns, in at one


def test_a_gpu_reads_what_its_peer_has() -> None:
    program = [HostTouch("a"), one_thread(0), Advise("a", "accessed_by", 2), one_thread(0, gpu=2)]
    near = run(program, ONE, NVLINK, parameters=WHOLE, gpus=2).steps[-1]
    assert (near.counts[2]["faults"], near.counts[2]["remote_bytes"], near.ns) == (0, 32, 32 / 4)
    far = run(program, ONE, parameters=WHOLE, gpus=2).steps[-1].counts[2]
    assert (far["faults"], far["remote_bytes"]) == (1, 0)


def test_rivals_with_fast_links_are_pinned_at_once() -> None:
    calm = {"uvm_perf_prefetch_enable": 0}
    turns = [one_thread(0, write=True, gpu=1 + k % 2) for k in range(8)]
    near = run([HostTouch("a"), *turns], ONE, NVLINK, gpus=2, parameters=calm)
    far = run([HostTouch("a"), *turns], ONE, gpus=2, parameters=calm)
    # A second GPU's event begins the watch, the third thrashes; the next fault pins, and both reach the page from then on.
    assert (near.counts["pinned"].sum(), near.counts["throttled"].sum()) == (1, 0)
    assert [int(s.counts[k]["faults"]) for s, k in zip(near.steps[1:], [1, 2] * 4, strict=True)][-2:] == [0, 0]
    assert far.counts["pinned"].sum() == 0
    assert far.counts["throttled"].sum() > 0


def test_the_lapse_grows_with_short_intervals_and_shrinks_after_many_long_ones() -> None:
    lapses: list[float] = []
    pong = [HostTouch("a", count=4096), Wait(), one_thread(0, write=True), Wait()] * 4  # the next is not begun when one looks
    run([HostTouch("a"), Wait(), *pong], ONE, watch=lambda M, step: lapses.append(float(M.state["lapse"][0])))
    grown = sorted(set(lapses))
    assert grown[0] == 500_000
    assert all(b == pytest.approx(a * 1.125) for a, b in itertools.pairwise(grown))
    assert len(grown) > 2
    # The CPU works for 8 ms in between: three long intervals lower it by one step.
    lapses.clear()
    rest = HostTouch("b", write=False)
    turns = [rest, HostTouch("a", count=4096), rest, one_thread(0, write=True), rest, Wait(), HostTouch("a", count=4096)]
    program = [HostTouch("b"), HostTouch("a", count=4096), *pong, *turns]
    run(program, [*ONE, Array("b", 4 * BLOCK)], replace(TINY, cpu_rate=1e9), parameters={"uvm_perf_lapse_vote_threshold": 3},
        watch=lambda M, step: lapses.append(float(M.state["lapse"][0])))  # fmt: skip
    assert lapses[-1] == pytest.approx(max(lapses) / 1.125)
    assert lapses[-2] == max(lapses) > 500_000


def test_one_use_of_all_blocks_is_mapped_in_large_entries() -> None:
    assert sizes(HostTouch("a"), blocks(*range(4)), arrays=[Array("a", 4 * BLOCK)], parameters=WHOLE) == [0, 0, 4]


def mixture(machine: int) -> list[Any]:
    """A little of everything on one machine: what the run counted, mapped and logged."""
    platform = (NVLINK, GRACE, replace(TINY, unified=True, memory=32 * BLOCK))[machine]
    arrays = [Array("a", 6 * BLOCK, kind="system"), Array("b", 5 * BLOCK), Array("s", 65536 + 4096, at=65536)]
    program = [HostTouch("a", count=3 * BLOCK), HostTouch("b"), blocks(*range(6)), blocks(*range(5), array="b", gpu=2),
               often(2, 400), often(3, 400, array="b"), Advise("b", "accessed_by", 1), often(40, 600, array="b"),
               Discard("b", count=BLOCK), one_thread(0, array="s", write=True), Advise("s", "read_mostly"),
               HostTouch("s", write=False), Prefetch("a", count=2 * BLOCK),
               *[one_thread(0, array="s", write=True, gpu=1 + k % 2) for k in range(6)], HostTouch("b", count=BLOCK),
               Free("a"), blocks(*range(5), array="b", write=True)]  # fmt: skip
    r = run(program, arrays, platform, gpus=2, log=10_000)
    return [r.ns, r.counts.tolist(), r.ranges.tolist(), r.page_tables.tolist(), r.log.tolist()]


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("machine", range(3))
def test_interpreted_is_compiled(machine: int) -> None:
    said = interpreted("test_uvm_mappings", f"repr(t.mixture({machine}))")
    assert said == repr(mixture(machine))
