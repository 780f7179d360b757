"""Two GPUs that take pages from each other, or reach them: what the host has seen of them, what was in vain, what is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unified_by_hand import TINY, blocks, one_thread, run

from gpusim.programs.managed.steps import Advise, Discard, HostTouch, Prefetch

pytestmark = pytest.mark.hand_worked

ALONE = {"uvm_perf_prefetch_enable": 0, "uvm_perf_thrashing_enable": 0}
PEERS = replace(TINY, peer_rate=4e9)


def evicted(program: list[Any], gpu: int, **more: Any) -> tuple[int, int]:
    """Pages that leave a GPU with a copy and without, once four other blocks have come, under a policy that copies what was
    written alone."""
    program = [HostTouch("a"), *program, blocks(1, 2, 3, 4, gpu=gpu)]
    result = run(program, evict="clean_drop", gpus=2, parameters=ALONE, **more)
    c = result.counts[gpu]
    assert c["evictions"] == 1
    return int(c["left"]), int(c["dropped_clean"])


def test_what_one_gpu_wrote_is_copied_from_the_gpu_that_took_it() -> None:
    assert evicted([one_thread(0), one_thread(0, gpu=2)], 2) == (0, 1)
    assert evicted([one_thread(0, write=True), one_thread(0, gpu=2)], 2) == (1, 0)


def test_what_was_written_from_afar_is_copied() -> None:
    there = [Prefetch("a", count=4096), Advise("a", "accessed_by", 2)]
    assert evicted([*there, one_thread(0, gpu=2)], 1, platform=PEERS) == (0, 1)
    assert evicted([*there, one_thread(0, write=True, gpu=2)], 1, platform=PEERS) == (1, 0)
    coherent = replace(TINY, coherent=True)
    there = [Prefetch("a", count=4096), Advise("a", "accessed_by", 0)]
    assert evicted([*there, HostTouch("a", write=False, count=4096)], 1, platform=coherent) == (0, 1)
    assert evicted([*there, HostTouch("a", write=True, count=4096)], 1, platform=coherent) == (1, 0)


@pytest.mark.slow
def test_one_of_two_copies_may_go_and_what_was_written_is_not_lost() -> None:
    both = [one_thread(0, write=True), Advise("a", "read_mostly"), one_thread(0, gpu=2), Advise("a", "preferred_location", 2)]
    assert evicted([*both, Advise("a", "unset_read_mostly")], 2) == (1, 0)  # the copy on GPU 1 has gone


def test_what_a_gpu_gets_ahead_from_another_is_in_vain_on_the_gpu_that_never_touches_it() -> None:
    # GPU 1 touches all 16 pages that its first fault brings; GPU 2 gets them with one, and the CPU takes them back.
    program = [HostTouch("a"), one_thread(*range(16)), one_thread(0, gpu=2), Prefetch("a", to=0, count=65536)]
    result = run(program, gpus=2, parameters={"uvm_perf_thrashing_enable": 0})
    assert result.counts["came"][:, 1].tolist() == [0, 15, 15]
    assert result.counts["wasted"].tolist() == [0, 0, 15]


def test_a_remote_mapping_of_what_two_others_hold_is_for_reads_only() -> None:
    # GPU 1's first store takes its page to the CPU, and copies of the other 15: GPU 2 keeps those.
    hints = [Advise("a", "read_mostly"), Advise("a", "preferred_location", 0)]
    result = run([one_thread(*range(16), gpu=2), *hints, one_thread(0, write=True), one_thread(1, write=True)], gpus=2)
    assert [step.counts[1]["faults"] for step in result.steps[-2:]] == [1, 1]
    assert result.counts["came"][0].tolist() == [1, 15, 0, 0, 0]


def test_what_is_discarded_is_mapped_nowhere_before_it_is_asked_for() -> None:
    program = [one_thread(0, gpu=2), Discard("a", count=4096), Advise("a", "accessed_by", 1)]
    result = run([*program, one_thread(0), one_thread(0)], platform=PEERS, gpus=2, parameters=ALONE)
    # Mapped where it is by a fault, which shows that it is wanted; what is evicted later is copied.
    assert [step.counts[1]["faults"] for step in result.steps[-2:]] == [1, 0]
