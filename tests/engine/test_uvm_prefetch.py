"""Prefetchers of unified memory beside the driver's: small cases worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, PAGE, TINY, WHOLE, blocks, one_thread, run

from gpusim.engine.pages.prefetchers import PREFETCHERS, foresees
from gpusim.programs.managed.steps import Access, Advise, Array, Free, HostTouch, Kernel, Prefetch

pytestmark = pytest.mark.hand_worked


def came(program: list[Any], prefetcher: str, **more: Any) -> list[tuple[int, int]]:
    """Of each step behind the first: faulted pages, pages that came."""
    steps = run([HostTouch("a"), *program], prefetcher=prefetcher, **more).steps[1:]
    return [(int(s.counts[1]["faults"]), int(s.counts[1]["came"].sum())) for s in steps]


def test_none_is_the_driver_with_its_prefetcher_off() -> None:
    program = [HostTouch("a"), one_thread(*range(0, 600, 7)), HostTouch("a", count=BLOCK), blocks(0, 3)]
    none = run(program, prefetcher="none")
    off = run(program, parameters={"uvm_perf_prefetch_enable": 0})
    assert none.ns == off.ns
    assert (none.counts == off.counts).all()


def test_a_stride_is_learned_from_three_equal_distances() -> None:
    # 0, 24, 48, 72 fault: the distance 24 twice more.  With 72 come 96 to 504 of its block; the other 46 of 64 pages lie in
    # blocks 1 to 3.  While the driver worked on the fault the link was idle for long enough to begin with block 1: 528 to 1008.
    first = came([one_thread(0, 24, 48), one_thread(72)], "stride")
    assert first == [(3, 3), (1, 1 + 18 + 21)]
    on = came([one_thread(0, 24, 48, 72), one_thread(*range(96, 72 + 64 * 24 + 1, 24)), one_thread(72 + 65 * 24)], "stride")
    # A thread without work of its own is at block 2 before it has come: a fault, which goes on with the stride.
    assert [faults for faults, _ in on] == [4, 1, 0]
    # Another distance has to be learned anew; 5 pages at random teach nothing.
    assert came([one_thread(0, 100, 7, 300, 13)], "stride") == [(5, 5)]


def test_a_stride_goes_down_as_well_and_stays_in_its_allocation() -> None:
    assert came([one_thread(511, 510, 509, 508)], "stride") == [(4, 4 + 64)]
    two = [Array("a", BLOCK), Array("b", BLOCK)]
    program = [HostTouch("a"), HostTouch("b"), one_thread(500, 502, 504, 506)]
    steps = run(program, two, prefetcher="stride").steps
    assert int(steps[-1].counts[1]["came"].sum()) == 4 + 2  # 508 and 510; what follows is b


def iteration(ns: float = 4e7) -> list[Kernel]:
    """Four kernels that write two blocks each, one page of both: the memory holds half of them."""

    def kernel(name: str, *which: int) -> Kernel:
        index = np.array([512 * b * PAGE for b in which], np.int64)
        return Kernel(name, [Access("a", True, inner=1, index=index)], (1, 1), (1, 1), (len(which), 1), ns)

    return [kernel(f"k{i}", 2 * i, 2 * i + 1) for i in range(4)]


def test_successions_of_kernels_and_blocks_are_learned_in_one_iteration() -> None:
    learned = came(iteration() * 3, "correlation")
    # Each kernel faults twice and brings 64 KiB for each; the same comes back ahead of the second and third time.
    assert learned == [(2, 32)] * 4 + [(0, 32)] * 8
    assert came(iteration() * 3, "tree") == [(2, 32)] * 12
    # A kernel without work of its own: while the driver works on the fault of its first block the second comes.
    assert came(iteration(0.0) * 3, "correlation")[4:] == [(1, 32)] * 8


def test_room_is_made_ahead_and_what_is_expected_stays() -> None:
    program = [HostTouch("a"), *iteration() * 3]
    results = {(p, e): run(program, prefetcher=p, evict=e) for p in ("tree", "correlation") for e in ("driver", "early")}
    ns = {key: r.ns for key, r in results.items()}
    assert ns["correlation", "early"] < ns["correlation", "driver"] < ns["tree", "early"] < ns["tree", "driver"]
    # Nothing but the moment of an eviction differs: 64 KiB leave for each that come, and a chunk is always free.
    assert results["tree", "early"].counts[1]["faults"] == results["tree", "driver"].counts[1]["faults"]
    saved = ns["tree", "driver"] - ns["tree", "early"]
    # The copy waits for the victim's service and for what leaves, which takes longer than the driver's second start.
    assert saved == pytest.approx(20 * (100 + 200 + 16 * 4096 / 2), rel=0.05)  # the first evictions before the memory is full


def test_the_oracle_brings_what_the_kernel_will_use_and_nothing_else() -> None:
    pages = [0, 5, 300, 301, 700, 5]
    assert came([one_thread(*pages)], "oracle") == [(2, 5)]
    twice = came([one_thread(0, 1), one_thread(1, 2)], "oracle")
    assert twice == [(1, 2), (1, 1)]  # of the next kernel it knows when that has begun
    wasted = run([HostTouch("a"), one_thread(*pages)], prefetcher="oracle").counts[1]["wasted"]
    assert wasted == 0
    assert [name for name in PREFETCHERS if foresees(name)] == ["oracle"]


def test_cpu_faults_are_the_tree_s_where_a_policy_learns_from_a_gpu() -> None:
    for prefetcher in ("stride", "correlation", "oracle"):
        assert run([HostTouch("a")], prefetcher=prefetcher).steps[0].counts[0]["faults"] == 6 * 8


def test_what_was_freed_or_hinted_elsewhere_does_not_come_ahead() -> None:
    two = [Array("a", 8 * BLOCK), Array("b", 4 * BLOCK)]
    program = [HostTouch("a"), *iteration() * 2, Free("a"), HostTouch("b"), *iteration_of("b")]
    assert run(program, two, prefetcher="correlation").steps[-1].counts[1]["came"].sum() == 32
    stay = [HostTouch("a"), *iteration() * 2, Advise("a", "preferred_location", 0), Prefetch("a", to=0), *iteration()]
    ahead = run(stay, prefetcher="correlation").steps[-4:]
    assert [int(s.counts[1]["came"].sum()) for s in ahead] == [0, 0, 0, 0]


def iteration_of(array: str) -> list[Kernel]:
    return [replace(k, accesses=[replace(k.accesses[0], array=array)]) for k in iteration()[:1]]


def test_whole_blocks_come_for_a_policy_that_takes_the_block() -> None:
    assert came([one_thread(3)], "block") == [(1, 512)]
    assert came([one_thread(3)], "sequential") == [(1, 32)]
    assert came([one_thread(3)], "tree", parameters=WHOLE) == [(1, 512)]
    assert TINY.page == 4096
