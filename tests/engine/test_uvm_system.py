"""Memory that is reached where it is: malloc'ed memory by ATS and HMM, access counters, chips with one memory.  By hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_uvm_counts import seen
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, one_thread, run

from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine.driver_parameters import UvmError
from gpusim.programs.managed.steps import Access, Advise, Array, Free, HostTouch, Kernel, Prefetch
from gpusim.results.page_log import COPY, FILL, KINDS, NOTICE

pytestmark = pytest.mark.hand_worked

BIG = 65536
# 32 pages of 64 KiB to a block; the CPU's first touch of 4 KiB costs 7 ns.
GRACE = replace(TINY, page=BIG, coherent=True, ats=True, work=replace(TINY.work, cpu_page=7.0))
SYSTEM = [Array("a", 8 * BLOCK, kind="system")]
QUIET = {"uvm_perf_access_counter_migration_enable": 0}


def often(page: int, times: int, array: str = "a", bytes_each: int = 32) -> Kernel:
    """One thread reads one element of a page of 64 KiB many times."""
    index = np.array([page * BIG // 4], np.int64)
    return Kernel("often", [Access(array, index=index, bytes=4)], (1, 1), (1, 1), (times, 1), ns=0.0)


def pages64(*which: int, **more: Any) -> Kernel:
    return one_thread(*(16 * p for p in which), **more)


def test_a_gpu_reads_malloced_memory_where_it_is() -> None:
    result = run([HostTouch("a"), pages64(*range(32))], SYSTEM, GRACE)
    host, gpu = result.steps[0], result.steps[1]
    assert host.counts[0]["faults"] == 8 * 32  # a page each, without a tree
    assert host.ns == pytest.approx(8 * 512 * 7 + 8 * BLOCK / 10)  # 10 bytes a ns
    assert (gpu.counts[1]["faults"], gpu.counts[1]["remote_bytes"], gpu.ns) == (0, 32 * 32, 32 * 32)


def test_the_gpu_that_touches_first_gets_the_page() -> None:
    result = run([pages64(0, 2, 3), HostTouch("a", count=BLOCK // 4), pages64(*range(8))], SYSTEM, GRACE, log=100)
    first, host, last = (s.counts for s in result.steps)
    # Pages 0, 2, 3 fault alone; 3 then has 3 of 4 pages at its node and brings 1.  The CPU reaches all, faults for the rest.
    assert (first[1]["faults"], first[1]["zeroed"], first[1]["came"].sum()) == (3, 4, 0)
    assert host[0]["faults"] == 4
    assert (last[1]["faults"], last[1]["remote_bytes"]) == (0, 4 * 32)
    assert [int(r["pages"]) for r in result.log if r["kind"] == FILL] == [1, 1, 2, 4]


def test_system_memory_stays_with_the_cpu_when_the_gpu_is_full() -> None:
    small = replace(GRACE, memory=2 * BLOCK)
    result = run([pages64(*range(4 * 32))], SYSTEM, small, log=1000)
    fills = [(int(r["processor"]), int(r["pages"])) for r in result.log if r["kind"] == FILL]
    assert sum(n for p, n in fills if p == 1) == 64
    assert sum(n for p, n in fills if p == 0) == 64
    assert result.counts[1]["evictions"] == 0
    # What is freed, another allocation gets.
    two = [*SYSTEM, Array("b", 2 * BLOCK, kind="system")]
    freed = run([pages64(*range(4 * 32)), Free("a"), pages64(*range(64), array="b")], two, small)
    assert freed.steps[2].counts[1]["remote_bytes"] == 0
    kept = run([pages64(*range(4 * 32)), pages64(*range(64), array="b")], two, small)
    assert kept.steps[1].counts[1]["remote_bytes"] == 64 * 32


def test_a_counter_brings_what_is_often_read_from_afar() -> None:
    # The 256th access notifies; the driver hears of it 10,000 ns later, which is 313 accesses of 32 ns; then one page comes.
    result = run([HostTouch("a"), often(5, 1000)], SYSTEM, GRACE, log=1000)
    step, c = result.steps[1], result.steps[1].counts[1]
    assert (c["notices"], c["faults"], c["came"].tolist()) == (1, 0, [0, 0, 0, 0, 1])
    assert c["remote_bytes"] == (256 + 313) * 32
    assert step.ns == (256 + 313) * 32 + 300 + BIG  # the copy; the driver's work goes on beside the kernel
    notice = result.log[result.log["kind"] == NOTICE][0]
    assert notice["mask"].tolist() == [1 << 5] + [0] * 7
    assert seen(result, "a")["notices"] == 1
    off = run([HostTouch("a"), often(5, 1000)], SYSTEM, GRACE, parameters=QUIET)
    assert (off.steps[1].counts[1]["remote_bytes"], off.steps[1].ns) == (32_000, 32_000)
    seldom = run([HostTouch("a"), often(5, 255)], SYSTEM, GRACE)
    assert seldom.steps[1].counts[1]["notices"] == 0


def test_a_notice_names_the_regions_that_were_read() -> None:
    many = Kernel("many", [Access("a", inner=BIG // 4, wraps=True, elements=4 * BIG // 4)], (1, 1), (1, 1), (1000, 1), ns=0.0)
    result = run([HostTouch("a"), many], SYSTEM, GRACE, log=1000)
    notice, copies = (result.log[result.log["kind"] == k] for k in (NOTICE, COPY))
    assert notice["mask"][0].tolist() == [0b1111] + [0] * 7
    assert copies["pages"].tolist() == [4]
    low = run([HostTouch("a"), often(0, 1000)], SYSTEM, GRACE, parameters={"uvm_perf_access_counter_threshold": 10})
    assert low.steps[1].counts[1]["remote_bytes"] == (10 + 313) * 32


def test_counters_do_nothing_on_hosts_with_small_pages() -> None:
    far = [Advise("a", "accessed_by", 1)]
    on = {"uvm_perf_access_counter_migration_enable": 1}
    result = run([HostTouch("a"), *far, often(0, 1000)], parameters=on)
    assert result.counts[1]["notices"] == 0
    assert result.told == [
        "uvm_perf_access_counter_migration_enable=1: on hosts with pages of 4 KiB nothing moves since release 575",
    ]
    # On 64 KiB pages and without ATS they work when they are asked to, on managed memory that is mapped remotely.
    power = replace(GRACE, ats=False)
    assert run([HostTouch("a"), *far, often(0, 1000)], platform=power).counts[1]["notices"] == 0
    moved = run([HostTouch("a"), *far, often(0, 1000)], platform=power, parameters=on)
    assert moved.steps[-1].counts[1]["came"].tolist() == [0, 0, 0, 0, 1]
    stays = [Advise("a", "preferred_location", 0), *far]
    assert run([HostTouch("a"), *stays, often(0, 1000)], platform=power, parameters=on).counts[1]["came"].sum() == 0


def test_evicted_pages_are_read_from_afar_where_counters_bring_them_back() -> None:
    program = [HostTouch("a"), *(Prefetch("a", first=b * BLOCK, count=BLOCK) for b in range(5)), pages64(0)]
    there = run(program, platform=GRACE).steps[-1].counts[1]
    assert (there["faults"], there["remote_bytes"]) == (0, 32)
    gone = run(program, platform=GRACE, parameters={"uvm_perf_map_remote_on_eviction": 0}).steps[-1].counts[1]
    assert (gone["faults"], gone["remote_bytes"]) == (1, 0)


def test_hmm_moves_single_pages_and_leaves_no_hole_behind() -> None:
    small = replace(TINY, memory=2 * BLOCK)
    result = run([HostTouch("a"), blocks(*range(8)), HostTouch("a", count=BLOCK), blocks(*range(8))], SYSTEM, small)
    host, gpu, back, again = (s.counts for s in result.steps)
    assert host[0]["faults"] == 8 * 512  # the host's kernel gives page by page
    # 64 KiB grow around each fault; eight blocks have 128 frames in one root chunk, where whole chunks would take eight.
    assert (gpu[1]["faults"], gpu[1]["came"].sum(), gpu[1]["evictions"]) == (8, 8 * 16, 0)
    assert back[0]["faults"] == 1  # a fault, and the driver's tree brings 16 pages back
    assert again[1]["faults"] == 1


def test_hmm_pages_leave_in_the_order_in_which_their_chunks_came() -> None:
    # 512 frames a root chunk: 0 fills one, 1 the other; a service of 0 does not refresh it, so that its chunk leaves for 2.
    program = [HostTouch("a"), Prefetch("a", count=2 * BLOCK), Prefetch("a", count=BLOCK), blocks(2), blocks(1), blocks(0)]
    result = run(program, SYSTEM, replace(TINY, memory=2 * BLOCK), parameters=WHOLE)
    assert result.steps[3].counts[1]["evictions"] == 1
    assert [s.counts[1]["faults"] for s in result.steps[4:]] == [0, 1]


def test_malloced_memory_needs_a_driver_that_reaches_it() -> None:
    with pytest.raises(UvmError, match="touch: segmentation fault at 0x0, 'a' is malloc'ed memory and HMM is off"):
        simulate_uvm(SYSTEM, [HostTouch("a"), blocks(0)], TINY, {"uvm_disable_hmm": 1})
    by_hmm = simulate_uvm(SYSTEM, [HostTouch("a"), pages64(0)], GRACE, {"uvm_ats_mode": 0})
    assert by_hmm.counts[1]["faults"] == 1


def test_a_chip_with_one_memory_moves_nothing() -> None:
    orin = replace(TINY, unified=True, memory=16 * BLOCK)
    result = run([HostTouch("a", count=4 * BLOCK), blocks(*range(8)), HostTouch("a"), Prefetch("a"), blocks(0)], platform=orin)
    c = result.counts
    assert c["came"].sum() == c["remote_bytes"].sum() == c["left"].sum() == 0
    assert result.steps[1].counts[1]["faults"] == 4  # those not touched before
    assert result.steps[4].counts[1]["faults"] == 0
    assert result.steps[3].counts[1]["copy_in"] == 0
    with pytest.raises(UvmError, match="16 MiB are allocated, and tiny has 8 MiB of memory"):
        simulate_uvm([Array("a", 8 * BLOCK)], [], replace(TINY, unified=True))


def test_host_memory_that_is_full_ends_the_program() -> None:
    small = replace(TINY, host_memory=6 * BLOCK)
    fits = run([HostTouch("a", count=6 * BLOCK), blocks(0)], platform=small)
    assert fits.steps[-1].ns > 0
    result = simulate_uvm([Array("a", 8 * BLOCK)], [HostTouch("a", count=6 * BLOCK), HostTouch("a"), blocks(0)], small)
    assert (result.full, len(result.steps)) == ("host", 2)
    assert result.failed.endswith("of managed pages lie in host memory, which has 12 MiB")


def test_faults_on_what_a_counter_brought_meanwhile_get_on() -> None:
    # One thread block reads 16 remote pages by turns, the other waits for page 20, which is nowhere.  With pages 16 and 18
    # the GPU will have 18 of 32 pages when the counter brings the 16: the others of the block come along, page 20 too.
    power = replace(GRACE, ats=False, sms=2)
    on = {"uvm_perf_access_counter_migration_enable": 1, "uvm_perf_access_counter_threshold": 16}
    index = np.concatenate([np.arange(1000) % 16, np.full(1000, 20)]) * (BIG // 4)
    both = Kernel("both", [Access("a", index=index, bytes=4, inner=1, bx=1000)], (2, 1), (1, 1), (1000, 1), ns=0.0)
    program = [HostTouch("a", count=16 * BIG), Advise("a", "accessed_by", 1), pages64(16), pages64(18), both]
    c = run(program, platform=power, parameters=on).steps[-1].counts[1]
    assert (c["notices"], c["batches"], c["satisfied"], c["faults"], c["touches"]) == (1, 1, 1, 0, 2000)


def test_faults_of_the_cpu_on_system_memory_are_in_the_log() -> None:
    result = run([HostTouch("a", count=BLOCK), HostTouch("a", count=2 * BLOCK, write=False)], SYSTEM, GRACE, log=100)
    assert [(KINDS[r["kind"]], int(r["pages"])) for r in result.log] == [
        ("write", 32), ("fill", 32), ("read", 32), ("fill", 32)
    ]  # fmt: skip
    assert result.counts[0]["faults"] == 64


def test_by_ats_there_is_one_copy_of_read_mostly_memory() -> None:
    result = run([HostTouch("a"), Advise("a", "read_mostly"), pages64(0, 1)], SYSTEM, GRACE)
    c = result.counts[1]
    assert (c["faults"], c["came"].sum(), c["remote_bytes"]) == (0, 0, 64)
    assert result.told == ["a: read_mostly has no effect: a reader that uses the host's page tables gets no copy"]


@pytest.mark.parametrize(("preferred", "zeroed", "faults"), [(1, 20, 1), (0, 0, 1)])
def test_a_first_touch_where_the_memory_is_preferred_brings_all_of_it(preferred: int, zeroed: int, faults: int) -> None:
    part = [Array("a", 20 * BIG, kind="system")]
    result = run([Advise("a", "preferred_location", preferred), pages64(3), pages64(0, 19)], part, GRACE)
    assert (result.counts[1]["zeroed"], result.steps[1].counts[1]["faults"]) == (zeroed, faults)
    assert result.steps[2].counts[1]["faults"] == (0 if preferred else 2)


def test_big_pages_that_leave_one_by_one_share_the_memory_with_what_the_host_gave_out() -> None:
    """Two chunks: one goes to 32 pages of system memory, and managed memory has the 32 pieces of the other."""
    small, arrays = replace(GRACE, memory=2 * BLOCK), [Array("a", BLOCK, kind="system"), Array("b", 2 * BLOCK)]
    first = run([pages64(*range(32)), Prefetch("b")], arrays, small, evict="big_page").counts[1]
    assert (first["zeroed"], first["evictions"], first["left"]) == (32 + 64, 32, 32)
    last = run([Prefetch("b"), pages64(*range(32))], arrays, small, evict="big_page")
    assert last.counts[1]["zeroed"] == 64 and last.steps[1].counts[1]["remote_bytes"] == 32 * 32
