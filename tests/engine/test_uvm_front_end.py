"""Does the front end take the time that a kernel's threads need, and report faults one after the other?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, run

from gpusim.engine.pages.unfaulted import kernel_ns
from gpusim.machine.platforms import load
from gpusim.programs.managed import patterns
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, Prefetch
from gpusim.results.page_log import COPY

pytestmark = pytest.mark.hand_worked

GIB = 1 << 30


def few_threads(array_bytes: int, blocks_: int = 160) -> Kernel:
    threads = blocks_ * 128
    access = patterns.streaming("a", 128, threads=threads)
    return Kernel("read", [access], (blocks_, 1), (128, 1), (array_bytes // (4 * threads), 1))


def test_few_threads_reach_what_littles_law_says() -> None:
    # 20,480 threads of 4 bytes, 400 ns from one load to the next, and a memory that is never full: 204.8 bytes a ns.
    wide = replace(TINY, sms=80, hbm=1e15, turn=400.0)
    size = 1000 * 4 * 160 * 128
    assert kernel_ns(few_threads(size), wide, {"a": size}) == pytest.approx(1000 * 400)
    assert kernel_ns(few_threads(size), replace(wide, turn=0.0), {"a": size}) == pytest.approx(81.92)
    # As many threads as the machine holds reach its rate, whatever a load takes.
    full = replace(wide, hbm=1e12)
    many = Kernel("read", [patterns.streaming("a", 128, threads=80 * 2048)], (80 * 16, 1), (128, 1), (100, 1))
    assert kernel_ns(many, full, {"a": GIB}) == pytest.approx(100 * 4 * 80 * 2048 / 1000)
    # Loads that do not wait for each other share a latency; one that needs another's value has a latency of its own.
    two = [Access("a", tx=1, bx=128), Access("b", tx=1, bx=128)]
    chain = [two[0], replace(two[1], waits=True)]
    sizes = {"a": GIB, "b": GIB}
    alone = kernel_ns(Kernel("two", two, (160, 1), (128, 1)), wide, sizes)
    assert kernel_ns(Kernel("chain", chain, (160, 1), (128, 1)), wide, sizes) == pytest.approx(2 * alone)


@pytest.mark.oracle
def test_a_v100_reads_with_few_threads_as_slowly_as_measured() -> None:
    """207 GiB/s in a V100's memory (um_reprex.cu, run 2 of 1 GiB); by its bandwidth alone 752."""
    for machine in ("v100-sxm2-power9", "v100-pcie-16gb"):
        ns = kernel_ns(few_threads(GIB), load(machine), {"a": GIB})
        assert GIB / ns / GIB * 1e9 == pytest.approx(207, rel=0.25)


def test_a_kernel_that_computes_is_not_taken_for_its_memory_traffic() -> None:
    # 2 x 8192^3 at an A100's 19.5 TFLOP/s are 56.4 ms.
    a100 = load("a100-pcie-80gb")
    product = patterns.sgemm("a", "b", "c", 8192)
    sizes = dict.fromkeys("abc", 4 * 8192**2)
    assert 56.3e6 < kernel_ns(product, a100, sizes) < 62e6
    assert kernel_ns(replace(product, flops=0.0), a100, sizes) < 30e6


def test_sectors_a_page_apart_have_a_rate_of_their_own() -> None:
    # 1,024 threads, each a sector of another page, at 32 bytes a us.
    slow = replace(TINY, scattered_rate=32e6, l2=BLOCK)
    apart = Kernel("apart", [patterns.strided("a", 1024)], (4, 1), (256, 1))
    assert kernel_ns(apart, slow, {"a": 2 * BLOCK}) == pytest.approx(1024 * 1000)
    assert kernel_ns(apart, slow, {"a": BLOCK}) < 1000  # in L2
    near = Kernel("near", [patterns.strided("a", 64)], (4, 1), (256, 1))
    assert kernel_ns(near, slow, {"a": 2 * BLOCK}) < 1000


def test_stores_that_fill_no_line_take_longer_over_the_link() -> None:
    slow = replace(TINY, link=replace(TINY.link, remote_store=1000.0))
    zero_copy = [HostTouch("a"), Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1)]

    def ns(write: bool, tx: int) -> float:
        kernel = Kernel("warp", [Access("a", write, tx=tx)], (1, 1), (32, 1), ns=0.0)
        return float(run([*zero_copy, kernel], platform=slow).steps[-1].ns)

    assert ns(False, 1) == ns(True, 1) == 128       # a line; 1 ns a byte
    assert ns(False, 1024) == 32 * 32
    assert ns(True, 1024) == 32 * 1000              # 32 lines, of each a sector, whose bytes go beside


def test_a_utlb_reports_its_faults_one_after_the_other() -> None:
    # A warp misses 32 blocks.  The driver looks 10,050 ns after the first (3 reports by then), then 50 ns after each replay.
    slow = replace(TINY, memory=64 * BLOCK, work=replace(TINY.work, fault_interval=5000.0))
    warp = Kernel("warp", [Access("a", tx=512 * 1024)], (1, 1), (32, 1), ns=0.0)
    arrays = [Array("a", 32 * BLOCK)]
    once = run([HostTouch("a"), warp], arrays, replace(slow, work=TINY.work), parameters=WHOLE)
    assert once.counts[1]["batches"] == 1
    after = run([HostTouch("a"), warp], arrays, slow, parameters=WHOLE)
    sizes = after.batch_sizes[1]
    # 20 batches to a pass: 3 + 19 x 1, then 3 + 7 x 1.
    assert (sizes[3], sizes[1], after.counts[1]["batches"], after.counts[1]["passes"]) == (2, 26, 28, 2)
    # Without flushes the buffer fills while the driver works.
    kept = run([HostTouch("a"), warp], arrays, slow, parameters={**WHOLE, "uvm_perf_fault_replay_policy": 1})
    assert kept.counts[1]["batches"] == 1


def test_a_batch_is_what_the_gpu_has_reported_by_then() -> None:
    # Eight SMs. The driver looks 10,050 ns after the first report, and the GPU writes one in 5,000 ns: 3 by then.
    slow = replace(TINY, sms=8, memory=64 * BLOCK, work=replace(TINY.work, report_interval=5000.0))
    arrays = [Array("a", 32 * BLOCK)]
    same = Kernel("same", [Access("a")], (8, 1), (1, 1), ns=0.0)
    counts = run([HostTouch("a"), same], arrays, slow).counts[1]
    # Two of three are duplicates, so the flush drops the five that come later; the page is there then.
    assert (counts["fetched"], counts["heads"], counts["batches"]) == (3, 3, 1)
    own = Kernel("own", [Access("a", bx=512 * 1024)], (8, 1), (1, 1), ns=0.0)
    # No duplicates: the five that came while three blocks were served stay, and behind them is the first after the replay.
    counts = (ran := run([HostTouch("a"), own], arrays, slow, parameters=WHOLE)).counts[1]
    assert (ran.batch_sizes[1][3], ran.batch_sizes[1][6], counts["duplicates"]) == (1, 1, 1)


@pytest.mark.parametrize(("gpcs", "served"), [(1, [0, 1, 2, 3]), (2, [0, 2, 1, 3])])
def test_gpcs_report_in_turn(gpcs: int, served: list[int]) -> None:
    # Four SMs, each a block of its own, and two reports in a batch: the first two SMs', or the first of each GPC.
    four = replace(TINY, sms=4, gpcs=gpcs)
    own = Kernel("own", [Access("a", bx=512 * 1024)], (4, 1), (1, 1), ns=0.0)
    log = run([HostTouch("a"), own], [Array("a", 4 * BLOCK)], four, parameters={"uvm_perf_fault_batch_count": 2}, log=100).log
    assert list(dict.fromkeys(log["block"][log["kind"] == COPY].tolist())) == served


def test_a_utlb_keeps_pages_in_entries() -> None:
    # A warp with a page in each lane, side by side or 64 KiB apart: a batch has 16 pages of 4 entries, or a page of each.
    few = replace(TINY, entries=4)
    arrays = [Array("a", BLOCK)]
    for tx, pages in ((1024, 16), (16 * 1024, 4)):
        warp = Kernel("warp", [Access("a", tx=tx)], (1, 1), (32, 1), ns=0.0)
        assert run([HostTouch("a"), warp], arrays, few, parameters={"uvm_perf_prefetch_enable": 0}).batch_sizes[1][pages] > 0


def test_each_access_that_waits_is_reported() -> None:
    eight = Kernel("eight", [Access("a", tx=1)], (1, 1), (256, 1), ns=0.0)
    counts = run([HostTouch("a"), eight], [Array("a", BLOCK)]).counts[1]
    assert (counts["fetched"], counts["heads"], counts["faults"]) == (8, 8, 1)


def test_a_fault_waits_for_the_notices_before_it() -> None:
    """A sweep over twice the memory, with pages of 64 KiB: what counters bring throws out what comes next (pages 64 KiB)."""
    out = 1e6
    work = replace(TINY.work, page_out=out)
    coherent = replace(TINY, page=65536, coherent=True, ats=True, work=work, memory=16 * BLOCK)
    sweep = few_threads(32 * BLOCK, 1)
    program = [Array("a", 32 * BLOCK)], [HostTouch("a"), *[sweep] * 4]
    steps = run(program[1], program[0], coherent).steps[1:]
    quiet = run(program[1], program[0], coherent, parameters={"uvm_perf_access_counter_migration_enable": 0}).steps[1:]
    for step in steps[2:]:  # each block that comes throws out another, at 32 pages of `out`, and both are copied
        assert step.ns == pytest.approx(32 * (32 * out + BLOCK + BLOCK / 2), rel=0.1)
        assert step.counts[1]["evictions"] >= 31
        assert 0 < step.counts[1]["batches"] < 8
    # Without counters every pass faults for every block, and throws out as many.
    assert quiet[2].counts[1]["evictions"] == 32
    assert quiet[2].counts[1]["notices"] == 0


def test_what_was_evicted_by_a_prefetch_is_mapped_before_the_next_kernel() -> None:
    coherent = replace(TINY, page=65536, coherent=True, ats=True)
    prefetches = [Prefetch("a", first=b * BLOCK, count=BLOCK) for b in range(5)]
    last = run([HostTouch("a"), *prefetches, blocks(0)], platform=coherent).steps[-1].counts[1]
    assert (last["faults"], last["remote_bytes"]) == (0, 32)


def test_a_page_that_many_sms_miss_is_reported_by_each_of_them() -> None:
    # Four thread blocks on four SMs touch one page.
    same = Kernel("same", [Access("a")], (4, 1), (1, 1), ns=0.0)
    each = replace(TINY, sms=4)
    counts = run([HostTouch("a"), same], platform=each).counts[1]
    assert (counts["fetched"], counts["duplicates"], counts["faults"]) == (4, 3, 1)
    assert counts["heads"] == 4, "what a profiler's record of the batch says"


def test_the_neighbours_of_a_stencil_are_in_the_cache() -> None:
    n = 1024
    five = patterns.stencil2d("a", "b", n)
    one = replace(five, accesses=[five.accesses[2], five.accesses[-1]])
    sizes = {"a": 4 * n * n, "b": 4 * n * n}
    small, large = (replace(TINY, hbm=1e9, l2=size) for size in (2 * n, 8 * n))
    assert kernel_ns(five, large, sizes) == kernel_ns(one, large, sizes) == 8 * n * n  # 1 ns a byte
    assert kernel_ns(five, small, sizes) == 16 * n * n  # rows above and below are too far away


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("program", "size", "ms", "off"), [("stream", 134_217_728 * 4, 88.04, 0.05), ("stencil", 8192, 28.68, 0.10)]
)
def test_stream_and_stencil_take_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, program: str, size: int, ms: float, off: float
) -> None:
    """rayanw36/SpecAsync-UVM @ded7672 on an RTX 5070 Ti; a report's cost was fitted to a STREAM of this size."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import uvm_programs  # type: ignore[import-not-found]

    assert getattr(uvm_programs, program)(size).steps[-1].ns / 1e6 == pytest.approx(ms, rel=off)
