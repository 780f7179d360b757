"""When copies run, and what a piece of host memory costs, to the nanosecond by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from unified_by_hand import BLOCK, TINY, WORK, one_thread

from gpusim.engine.pages.simulate import UvmResult, simulate_uvm
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, Prefetch

pytestmark = pytest.mark.hand_worked

COPY = 300 + 65536  # 64 KiB, a byte per ns


def ran(program: list, **work: float) -> UvmResult:
    machine = replace(TINY, work=replace(WORK, **work))
    return simulate_uvm([Array("a", 8 * BLOCK)], program, machine)


def at_once(*numbers: int) -> Kernel:
    """A thread for each of these blocks reads its first page."""
    index = np.array(numbers) * (BLOCK // 4)
    return Kernel("touch", [Access("a", tx=1, index=index)], (1, 1), (len(numbers), 1), ns=0.0)


def test_copies_run_while_the_driver_serves_the_next_block() -> None:
    step = ran([HostTouch("a"), at_once(0, 1)]).steps[-1]
    # A pass, a batch of two faults, the work on the first block; then its copy, and the second's behind it.
    assert step.counts[1]["batches"] == 1
    assert round(step.ns, 3) == 10_000 + 1000 + 2 * 10 + (100 + 5000 + 16) + 2 * COPY + 50


def test_work_that_is_longer_than_the_copies_hides_them() -> None:
    step = ran([HostTouch("a"), at_once(0, 1, 2)], first_touch=200_000.0).steps[-1]
    assert round(step.ns, 3) == 10_000 + 1000 + 3 * 10 + 3 * (100 + 200_000 + 16) + COPY + 50


FULL = [HostTouch("a"), at_once(0, 1, 2, 3)]  # four blocks in four chunks; each that comes now has to throw one out
OUT = 200 + 32_768  # its 64 KiB, 2 bytes per ns


def test_what_leaves_is_copied_while_the_driver_starts_again() -> None:
    # The victim's service is 100 and a ns for each of 16 pages; the second start is a block's and a first touch's work.
    begins = 10_000 + 1000 + 10 + 100 + (100 + 16)
    short, long = (ran([*FULL, at_once(4)], first_touch=work).steps[-1].ns for work in (5000.0, 50_000.0))
    assert round(short, 3) == begins + OUT + COPY + 50, "longer than what the driver does meanwhile"
    assert round(long, 3) == begins + 50_000 + (100 + 50_000) + 16 + COPY + 50, "hidden behind it"


def test_an_eviction_waits_for_the_copies_before_it_and_for_page_tables() -> None:
    step = ran([*FULL, at_once(4, 5)], invalidate=7000.0).steps[-1]
    # The driver pushes the second victim's copy at 10,000 and some ns, while the first's still runs.
    assert (step.counts[1]["batches"], step.counts[1]["evictions"]) == (1, 2)
    assert round(step.ns, 3) == 10_000 + 1000 + 2 * 10 + 100 + (100 + 16) + 2 * (7000 + OUT + COPY) + 50


def test_taking_the_right_to_store_invalidates_page_tables() -> None:
    """Of what is mostly read, a store may go to its own page alone: the pages that it could store to before lose that."""

    def last(invalidate: float) -> float:
        stores = [one_thread(page, write=True) for page in (0, 1)]
        return ran([HostTouch("a"), Advise("a", "read_mostly", 1), one_thread(0), *stores], invalidate=invalidate).steps[-1].ns

    assert round(last(7000.0) - last(0.0), 3) == 7000


def test_page_tables_of_several_blocks_are_set_up_at_once() -> None:
    step = ran([HostTouch("a"), at_once(0, 1)], first_touch=1000.0, setup=500_000.0).steps[-1]
    # The second block's copy may begin 1116 ns after the first's: it waits for that one alone.
    assert round(step.ns, 3) == 10_000 + 1000 + 2 * 10 + (100 + 1000 + 16) + 500_000 + 2 * COPY + 50


def test_pieces_of_host_memory_are_found_one_by_one() -> None:
    for sizes, threshold, pieces in ((4096, 51, 16), (2_162_688, 51, 1), (4096, 0, 512), (2_162_688, 0, 1), (69_632, 0, 32)):
        settings = {"uvm_cpu_chunk_allocation_sizes": sizes, "uvm_perf_prefetch_threshold": threshold}
        cost = [
            simulate_uvm([Array("a", 8 * BLOCK)], [HostTouch("a"), one_thread(0)],
                         replace(TINY, work=replace(WORK, chunk=chunk)), settings).steps[-1].ns
            for chunk in (0.0, 1000.0)
        ]  # fmt: skip
        assert round(cost[1] - cost[0], 3) == 1000 * pieces, (sizes, threshold)


def test_the_cpu_zeroes_what_has_not_been_touched() -> None:
    slow, fast = (ran([HostTouch("a"), HostTouch("a")], cpu_page=cost).steps for cost in (100.0, 0.0))
    assert round(slow[0].ns - fast[0].ns) == 8 * 512 * 100
    assert round(slow[1].ns - fast[1].ns, 3) == 0


def test_each_run_of_pages_beyond_the_first_is_unmapped_and_mapped_on_its_own() -> None:
    def last(run: float) -> float:
        # Units 1 and 3 are there; unit 0 brings unit 2 with it, which does not lie beside it.
        return ran([HostTouch("a"), one_thread(16), one_thread(48), one_thread(0)], run=run).steps[-1].ns

    assert round(last(7000.0) - last(0.0), 3) == 7000


def test_an_explicit_copy_waits_for_the_last_block() -> None:
    step = ran([HostTouch("a"), Prefetch("a", count=2 * BLOCK)]).steps[-1]
    assert round(step.ns, 3) == (100 + 5000 + 512) + 2 * (300 + BLOCK)
