"""What a program tells the driver: hints and discards, which hint wins, and what is no hint but a mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_uvm_counts import seen
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, one_thread, run

from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine.driver_parameters import UvmError
from gpusim.programs.managed.steps import Access, Advise, Array, Discard, Free, HostTouch, Kernel, Prefetch

pytestmark = pytest.mark.hand_worked


def told(*hints: Advise) -> list[str]:
    return list(run([HostTouch("a"), *hints]).told)


def test_one_hint_contradicts_nothing() -> None:
    assert told(Advise("a", "read_mostly")) == []
    assert told(Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1)) == []  # zero-copy
    assert told(Advise("a", "preferred_location", 0), Advise("a", "preferred_location", 0)) == []


def test_read_mostly_wins_over_all() -> None:
    copy = "each reader of a page gets a copy of its own"
    assert told(Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1), Advise("a", "read_mostly")) == [
        f"a: read_mostly wins over preferred_location: {copy}",
        f"a: read_mostly wins over accessed_by: {copy}",
    ]
    assert told(Advise("a", "read_mostly"), Advise("a", "accessed_by", 1)) == [f"a: read_mostly wins over accessed_by: {copy}"]
    hints = [Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1), Advise("a", "read_mostly")]
    c = run([HostTouch("a"), *hints, one_thread(0)]).steps[-1].counts[1]
    assert (c["faults"], c["remote_bytes"], c["came"].sum()) == (1, 0, 1)  # preferred elsewhere: nothing is prefetched


def test_an_allocation_has_one_preferred_location() -> None:
    assert told(Advise("a", "preferred_location", 0), Advise("a", "preferred_location", 1)) == [
        "a: preferred_location GPU 1 replaces CPU: an allocation has one, the last",
    ]
    assert told(Advise("a", "accessed_by", 1), Advise("a", "preferred_location", 1)) == [
        "a: preferred_location GPU 1 wins over accessed_by GPU 1: pages move there, and remote access ends",
    ]


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ([Advise("b", "read_mostly")], "advise b read_mostly: no allocation is called 'b'"),
        ([Advise("a", "read_mostley")], "unknown advice 'read_mostley'"),
        ([Advise("a", "accessed_by", 2)], "advise a accessed_by: there is no GPU 2 among 1"),
        ([Prefetch("a", to=-1)], "prefetch a: there is no GPU -1 among 1"),
        ([one_thread(0, gpu=2)], "touch: there is no GPU 2 among 1"),
        ([Free("a"), one_thread(0)], "touch: segmentation fault at 0x0, 'a' has been freed"),
        ([Free("a"), Free("a")], "free a: segmentation fault at 0x0, 'a' has been freed"),
        ([HostTouch("a", first=4096, count=BLOCK)], "host writes a: bytes 4096..2101248 lie outside of the allocation of"),
        ([Discard("a", count=3 * BLOCK)], "discard a: bytes 0..6291456 lie outside"),
        ([Kernel("far", [Access("a", elements=1 << 20)], (1, 1), (1, 1))], "far: segmentation fault at 0x200000, behind"),
    ],
)
def test_mistakes_are_named(program: list[Any], text: str) -> None:
    with pytest.raises(UvmError, match=text.replace("(", r"\(")):
        simulate_uvm([Array("a", BLOCK)], program, TINY)


def test_discarded_pages_leave_first_and_without_a_copy() -> None:
    # Block 3 is the youngest; discarded, its chunk goes before block 0, the oldest.
    lost = Discard("a", first=3 * BLOCK, count=BLOCK)
    result = run([HostTouch("a"), blocks(0, 1, 2, 3), lost, blocks(4), blocks(0)], parameters=WHOLE)
    fault, again = result.steps[3], result.steps[4]
    assert (fault.counts[1]["evictions"], fault.counts[1]["left"], fault.counts[1]["dropped_lost"]) == (1, 0, 512)
    # Copies in, of the faulted page and of the 511 behind it, without a gap; nothing out.  The service starts twice.
    assert fault.ns == 10_000 + 1000 + 10 + 3 * 100 + 2 * 5000 + (300 + BLOCK) + 512 + 50
    assert again.counts[1]["faults"] == 0
    assert result.steps[2].ns == 100  # the driver's work for one block


def test_discarded_contents_come_from_nowhere() -> None:
    # What the CPU wrote is discarded: the GPU's fault zeroes a chunk and copies nothing.
    lost = Discard("a", count=BLOCK)
    c = run([HostTouch("a"), lost, one_thread(0)], parameters=WHOLE).steps[-1].counts[1]
    assert (c["faults"], c["zeroed"], c["came"].sum()) == (1, 512, 0)
    # Discarded where it is wanted again it is there: a fault, no copy, nothing to zero; and it is an ordinary page after that.
    result = run([HostTouch("a"), blocks(0), lost, blocks(0), blocks(1, 2, 3, 4)], parameters=WHOLE)
    back, evicted = result.steps[3].counts[1], result.steps[4].counts[1]
    assert (back["faults"], back["zeroed"], back["came"].sum()) == (1, 0, 0)
    assert (evicted["left"], evicted["dropped_lost"]) == (512, 0)
    assert seen(result, "a")["refetched"] == 0


def test_half_a_discarded_chunk_is_a_used_one() -> None:
    half = Discard("a", first=3 * BLOCK, count=BLOCK // 2)
    result = run([HostTouch("a"), blocks(0, 1, 2, 3), half, blocks(4), blocks(5, 6, 7)], parameters=WHOLE)
    first, rest = result.steps[3].counts[1], result.steps[4].counts[1]
    assert (first["left"], first["dropped_lost"]) == (512, 0)  # block 0 left
    assert (rest["left"], rest["dropped_lost"]) == (512 + 512 + 256, 256)


def test_a_prefetch_takes_a_discard_back() -> None:
    result = run([HostTouch("a"), blocks(0), Discard("a"), Prefetch("a", count=BLOCK), blocks(0, 1, 2, 3, 4)], parameters=WHOLE)
    assert result.steps[3].counts[1]["came"].sum() == 0
    assert result.steps[4].counts[1]["left"] == 512


def test_a_write_takes_copies_back_that_a_prefetch_made() -> None:
    program = [HostTouch("a"), Advise("a", "read_mostly"), Prefetch("a", count=BLOCK), HostTouch("a", count=BLOCK), blocks(0)]
    result = run(program, parameters=WHOLE)
    assert result.steps[2].counts[1]["came"].sum() == 512
    assert result.steps[3].counts[0]["faults"] > 0  # the CPU may read its copy, no more
    assert result.steps[4].counts[1]["faults"] == 1  # the GPU's has gone


def test_what_is_mostly_read_faults_at_each_store_but_the_last() -> None:
    """uvm_va_block.c, compute_new_permission: what comes ahead of need is read only, as is what was there."""
    stores = [blocks(0, write=True), one_thread(1, write=True), blocks(0, write=True), blocks(0, write=True)]
    steps = run([HostTouch("a"), Advise("a", "read_mostly"), *stores], parameters=WHOLE).steps[2:]
    assert [int(step.counts[1]["faults"]) for step in steps] == [1, 1, 1, 0]
    assert [int(step.counts[1]["came"].sum()) for step in steps] == [512, 0, 0, 0]  # pages move once
    plain = run([HostTouch("a"), *stores], parameters=WHOLE).steps[1:]
    assert [int(step.counts[1]["faults"]) for step in plain] == [1, 0, 0, 0]


def test_of_what_is_mostly_read_pages_that_are_there_take_time() -> None:
    """uvm_va_block.c, uvm_va_block_service_finish: each page that comes along is worked through, there or not."""
    slow = replace(TINY, work=replace(TINY.work, page_kept=3.0))
    served = 10_000 + 1000 + 10 + 100 + 50

    def ns(program: list[Any], machine: Any = slow, **more: Any) -> list[float]:
        return [step.ns for step in run([HostTouch("a"), Advise("a", "read_mostly"), *program], platform=machine, **more).steps]

    stores = [blocks(0, write=True), one_thread(1, write=True), blocks(0, write=True)]
    assert ns(stores, parameters=WHOLE)[3:] == [served + 511 * 3] * 2
    assert ns(stores, parameters=WHOLE)[:3] == ns(stores, TINY, parameters=WHOLE)[:3]  # nothing was there
    # A read of page 16 brings 16 pages, and the tree names the 16 before them as well.
    reads = [blocks(0), one_thread(16)]
    assert ns(reads)[3] == ns(reads, TINY)[3] + 16 * 3
    plain = [[step.ns for step in run([HostTouch("a"), *reads], platform=x).steps] for x in (slow, TINY)]
    assert plain[0] == plain[1]


def test_read_mostly_takes_the_right_to_store() -> None:
    """uvm_policy.c, va_block_set_read_duplication_locked."""
    steps = run([blocks(0, write=True), Advise("a", "read_mostly"), blocks(0), blocks(0, write=True)]).steps
    assert [int(step.counts[1]["faults"]) for step in steps] == [1, 0, 0, 1]


def test_accessed_by_is_mapped_again_when_read_duplication_ends() -> None:
    hints = [Advise("a", "accessed_by", 1), Advise("a", "read_mostly"), Advise("a", "unset_read_mostly")]
    c = run([HostTouch("a"), *hints, blocks(0, 1)]).steps[-1].counts[1]
    assert (c["faults"], c["came"].sum(), c["remote_bytes"]) == (0, 0, 2 * 32)


def test_an_eviction_leaves_other_gpus_their_copies() -> None:
    # Both have room for two blocks.  GPU 1 throws block 0 out, which is nothing to GPU 2, that has a copy of its own.
    reads = [blocks(0, 1, gpu=2), blocks(0, 1, 2, gpu=1), blocks(0, 1, gpu=2)]
    machine = replace(TINY, memory=2 * BLOCK)
    result = run([HostTouch("a"), Advise("a", "read_mostly"), *reads], platform=machine, parameters=WHOLE, gpus=2)
    assert result.steps[3].counts[1]["evictions"] == 1
    assert result.steps[4].counts[2]["faults"] == 0
