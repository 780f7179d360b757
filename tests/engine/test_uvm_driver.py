"""Does unified memory follow the driver's rules?  Small cases worked by hand, to the fault and to the nanosecond."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from unified_by_hand import BLOCK, PAGE, TINY, WHOLE, blocks, one_thread, run

from gpusim.engine.pages.simulate import UvmError, simulate_uvm
from gpusim.programs.managed.steps import Access, Advise, Array, Free, HostTouch, Kernel, Prefetch

pytestmark = pytest.mark.hand_worked


def test_one_fault_to_the_nanosecond() -> None:
    step = run([HostTouch("a"), one_thread(3)]).steps[-1]
    # A pass, a batch of one fault, its block, the GPU's first page of it; a page alone, and 15 in two runs beside it, copied
    # without a gap; a replay.
    assert step.ns == 10_000 + 1000 + 10 + 100 + 5000 + (300 + 16 * 4096) + 16 * 1 + 50
    c = step.counts[1]
    assert c["came"].tolist() == [1, 15, 0, 0, 0]
    assert c["copies"].tolist() == [1, 2, 0, 0, 0]


def test_six_faults_fill_a_block_and_wait_for_a_pass_each_twenty_batches() -> None:
    c = run([HostTouch("a"), one_thread(*range(512))]).steps[-1].counts[1]
    assert (c["faults"], c["batches"], c["passes"], c["touches"]) == (6, 6, 1, 512)
    off = run([HostTouch("a"), one_thread(*range(512))], parameters={"uvm_perf_prefetch_enable": 0}).steps[-1].counts[1]
    assert (off["faults"], off["batches"], off["passes"], off["came"].tolist()) == (512, 512, 26, [512, 0, 0, 0, 0])


def test_the_host_faults_six_times_for_a_block() -> None:
    result = run([HostTouch("a")])
    assert result.steps[0].counts[0]["faults"] == 6 * 8
    assert run([HostTouch("a")], parameters=WHOLE).steps[0].counts[0]["faults"] == 8


def test_a_use_does_not_refresh_a_chunk_but_a_service_does() -> None:
    # Four chunks.  Block 0 is used last but served first: it leaves, as a true LRU would not let it.
    driver = run([HostTouch("a"), blocks(0, 1, 2, 3, 0, 4, 1)], parameters=WHOLE)
    assert driver.steps[-1].counts[1]["faults"] == 5  # 0 left for 4; 1 is still there
    back = run([HostTouch("a"), blocks(0, 1, 2, 3, 0, 4, 0)], parameters=WHOLE)
    assert back.steps[-1].counts[1]["faults"] == 6
    lru = run([HostTouch("a"), blocks(0, 1, 2, 3, 0, 4, 0)], parameters=WHOLE, evict="lru")
    assert lru.steps[-1].counts[1]["faults"] == 5
    # A second service of block 0 (at threshold 51 its other half is elsewhere) does refresh it.
    served = run([HostTouch("a"), one_thread(0, 512, 1024, 1536, 256, 2048, 0)])
    assert served.steps[-1].counts[1]["faults"] == 6


def test_a_cyclic_sweep_over_one_block_too_many_misses_always() -> None:
    sweep = [0, 1, 2, 3, 4] * 3
    c = run([HostTouch("a"), blocks(*sweep)], parameters=WHOLE).steps[-1].counts[1]
    assert (c["faults"], c["evictions"]) == (15, 11)
    assert c["refetched"] == 10 * 512


def test_eviction_copies_the_whole_chunk_clean_or_not_before_the_copy_in() -> None:
    result = run([HostTouch("a"), blocks(0, 1, 2, 3), blocks(4)], parameters=WHOLE)
    fault, c = result.steps[-1], result.steps[-1].counts[1]
    # The fault's block is served until it finds no memory, and the victim, 1 ns for each page.  What leaves is copied, at twice
    # the rate, while the driver begins again; behind it comes what was asked for.
    assert fault.ns == 10_000 + 1000 + 10 + 100 + (100 + 512) + (200 + BLOCK / 2) + (300 + BLOCK) + 50
    assert (c["left"], c["left_clean"], c["evictions"]) == (512, 512, 1)
    clean = run([HostTouch("a"), blocks(0, 1, 2, 3), blocks(4)], parameters=WHOLE, evict="clean_drop")
    # Nothing to wait for but the driver: three services, two first touches, and a ns for each page either way.
    assert clean.steps[-1].ns == 10_000 + 1000 + 10 + 3 * 100 + 2 * 5000 + 2 * 512 + (300 + BLOCK) + 50


def test_unused_chunks_leave_first() -> None:
    # The CPU takes block 1 back: its chunk is unused, and goes before block 0, which was served first.
    back = HostTouch("a", write=False, first=BLOCK, count=BLOCK)
    result = run([HostTouch("a"), blocks(0, 1, 2, 3), back, blocks(4, 0)], parameters=WHOLE)
    assert result.steps[-1].counts[1]["faults"] == 1


def test_a_batch_holds_256_faults_and_the_flush_drops_the_rest() -> None:
    wide = replace(TINY, sms=16)
    threads = Kernel("wide", [Access("a", tx=PAGE, bx=32 * PAGE)], (16, 1), (32, 1), ns=0.0)  # 16 warps, 32 pages each
    c = run([HostTouch("a"), threads], platform=wide, parameters={"uvm_perf_prefetch_threshold": 100}).steps[-1].counts[1]
    assert (c["batches"], c["fetched"], c["full_batches"], c["dropped"], c["faults"]) == (2, 512, 2, 256, 512)
    policy = {"uvm_perf_prefetch_threshold": 100, "uvm_perf_fault_replay_policy": 3}
    kept = run([HostTouch("a"), threads], platform=wide, parameters=policy).steps[-1].counts[1]
    assert (kept["batches"], kept["fetched"], kept["replays"], kept["dropped"]) == (2, 512, 1, 0)
    # Replayed with the second half still in the buffer, that half faults again: fetched twice, satisfied once.
    policy["uvm_perf_fault_replay_policy"] = 1
    twice = run([HostTouch("a"), threads], platform=wide, parameters=policy).steps[-1].counts[1]
    assert (twice["fetched"], twice["satisfied"], twice["faults"]) == (768, 256, 512)


def test_a_utlb_waits_for_56_pages_at_most() -> None:
    threads = Kernel("warps", [Access("a", tx=PAGE, bx=0)], (1, 1), (128, 1), ns=0.0)  # 4 warps, 128 pages, one SM
    c = run([HostTouch("a"), threads], parameters={"uvm_perf_prefetch_threshold": 100}).steps[-1].counts[1]
    assert (c["batches"], c["fetched"]) == (3, 128)  # 56, 56, 16


def test_two_utlbs_report_one_page_twice() -> None:
    both = Kernel("both", [Access("a")], (2, 1), (32, 1), ns=0.0)
    c = run([HostTouch("a"), both], platform=replace(TINY, sms=2)).steps[-1].counts[1]
    assert (c["fetched"], c["duplicates"], c["faults"]) == (2, 1, 1)


def test_a_store_faults_again_when_more_blocks_are_in_flight_than_fit() -> None:
    # Every warp loads a page of 32 blocks and then stores to them; all warps' loads come before the first store.
    order = np.arange(128, dtype=np.int64) * 512 * PAGE
    sparse = [Access("a", tx=1, bx=32, index=order), Access("a", True, tx=1, bx=32, index=order)]
    kernel = Kernel("sparse", sparse, (4, 1), (32, 1), ns=0.0)
    big = [Array("a", 128 * BLOCK)]
    fits = run([HostTouch("a"), kernel], big, replace(TINY, memory=128 * BLOCK), parameters=WHOLE)
    assert fits.steps[-1].counts[1]["came"].sum() == 128 * 512
    tight = run([HostTouch("a"), kernel], big, replace(TINY, memory=80 * BLOCK, outstanding=4), parameters=WHOLE)
    assert tight.steps[-1].counts[1]["came"].sum() == 2 * 128 * 512


def test_zero_copy_never_faults() -> None:
    hints = [Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1)]
    result = run([HostTouch("a"), *hints, blocks(*range(8), write=True)])
    c = result.steps[-1].counts[1]
    assert (c["faults"], c["touches"], c["remote_bytes"], c["came"].sum()) == (0, 8, 8 * 32, 0)
    assert result.steps[-1].ns == 8 * 32  # at a byte per ns
    unset = [*hints, Advise("a", "unset_accessed_by", 1)]
    after = run([HostTouch("a"), *unset, blocks(0, 1)]).steps[-1].counts[1]
    assert (after["faults"], after["came"].sum(), after["remote_bytes"]) == (2, 0, 64)  # mapped from where it is preferred


def test_accessed_by_alone_maps_where_it_is() -> None:
    c = run([HostTouch("a"), Advise("a", "accessed_by", 1), blocks(0)]).steps[-1].counts[1]
    assert (c["faults"], c["came"].sum(), c["remote_bytes"]) == (0, 0, 32)


def test_preferred_gpu_brings_a_block_that_is_nowhere_at_once() -> None:
    result = run([Advise("a", "preferred_location", 1), one_thread(7)])
    c = result.steps[-1].counts[1]
    assert (c["faults"], c["zeroed"], c["came"].sum()) == (1, 512, 0)
    again = run([Advise("a", "preferred_location", 1), one_thread(7), one_thread(*range(512), name="all")])
    assert again.steps[-1].counts[1]["faults"] == 0


def test_read_duplication_keeps_both_copies_until_a_write() -> None:
    program = [HostTouch("a"), Advise("a", "read_mostly"), one_thread(*range(512)), HostTouch("a", write=False, count=BLOCK)]
    result = run(program)
    assert result.steps[2].counts[1]["came"].sum() == 512
    assert result.steps[3].counts[0]["faults"] == 0  # the CPU has its own copy still
    written = run([*program, one_thread(0, write=True), HostTouch("a", write=False, count=4096)])
    assert written.steps[-2].counts[1]["faults"] == 1  # for the permission; nothing is copied
    assert written.steps[-2].counts[1]["came"].sum() == 0
    assert written.steps[-1].counts[0]["faults"] == 1


def test_pages_that_cpu_and_gpu_take_from_each_other_are_pinned_to_the_cpu() -> None:
    pong = [HostTouch("a", count=4096), one_thread(0, write=True)] * 16
    result = run([HostTouch("a"), *pong], parameters={"uvm_perf_thrashing_pin_threshold": 2})
    assert result.counts["throttled"].sum() > 0
    assert result.counts["pinned"].sum() == 1
    last = result.steps[-1].counts[1]
    assert (last["faults"], last["remote_bytes"]) == (0, 32)
    free = run([HostTouch("a"), *pong], parameters={"uvm_perf_thrashing_enable": 0})
    assert free.counts["pinned"].sum() == 0
    assert [s.counts[1]["faults"] for s in free.steps[2::2]] == [1] * 16


def test_throttled_batches_are_counted_in_one_service_pass() -> None:
    pong = [HostTouch("a", count=4096), one_thread(0, write=True)] * 8
    often = {"uvm_perf_fault_max_throttle_per_service": 2}
    yields = run([HostTouch("a"), *pong], parameters=often)
    assert yields.counts[1]["throttled"] >= 2 and yields.counts[1]["waited"] > 0
    passes = run([HostTouch("a"), *pong], parameters={**often, "uvm_perf_fault_max_batches_per_service": 1})
    c = passes.counts[1]  # a pass of one batch never has two: it goes on asking
    assert c["throttled"] > 10 and (c["waited"], c["passes"]) == (0, c["batches"])


def test_one_gpu_that_faults_on_evicted_pages_does_not_thrash() -> None:
    result = run([HostTouch("a"), blocks(*([0, 1, 2, 3, 4] * 20))], parameters=WHOLE)
    assert result.counts["throttled"].sum() == 0


def test_explicit_prefetch_has_no_faults_and_refreshes() -> None:
    result = run([HostTouch("a"), Prefetch("a", count=4 * BLOCK), Prefetch("a", count=BLOCK), blocks(4, 0)], parameters=WHOLE)
    explicit = result.steps[1]
    assert explicit.counts[1]["came"].tolist() == [0, 0, 0, 4 * 512, 0]
    assert explicit.ns == (100 + 5000 + 512) + 4 * (300 + BLOCK)  # the copies hide the driver's work on later blocks
    assert result.steps[-1].counts[1]["faults"] == 1  # block 1 left for 4, not 0
    back = run([HostTouch("a"), Prefetch("a", count=BLOCK), Prefetch("a", to=0, count=BLOCK), one_thread(0)])
    assert back.steps[-1].counts[1]["faults"] == 1


def test_small_allocations_share_root_chunks() -> None:
    small = [Array(f"s{k}", 65536 + 4096, at=65536) for k in range(8)]
    touch = [one_thread(0, array=a.name) for a in small]
    result = run([*(HostTouch(a.name) for a in small), *touch, blocks(0)], [*small, Array("a", 4 * BLOCK)],
                 replace(TINY, memory=2 * BLOCK), parameters=WHOLE)  # fmt: skip
    assert result.counts[1]["evictions"] == 0  # eight times 64 KiB and a page in one root chunk, block 0 in the other
    evicted = run([*(HostTouch(a.name) for a in small), *touch, blocks(0, 1), *touch], [*small, Array("a", 4 * BLOCK)],
                  replace(TINY, memory=2 * BLOCK), parameters=WHOLE)  # fmt: skip
    assert evicted.counts[1]["evictions"] == 2  # all pieces left at once for block 1, and then block 0 for the first of them


@pytest.mark.slow
def test_freed_memory_is_not_copied() -> None:
    two = [Array("a", 4 * BLOCK), Array("b", 4 * BLOCK)]
    result = run([HostTouch("a"), HostTouch("b"), blocks(0, 1, 2, 3), Free("a"), blocks(0, 1, 2, 3, array="b")], two,
                 parameters=WHOLE)  # fmt: skip
    assert result.counts[1]["evictions"] == 0


def test_pages_prefetched_in_vain_are_counted() -> None:
    result = run([HostTouch("a"), blocks(0, 1, 2, 3, 4)], parameters=WHOLE)
    assert result.counts[1]["wasted"] == 511


def test_least_often_used_leaves() -> None:
    # Blocks 0 and 1 were used twice, 2 and 3 once: 2, the earlier in line, leaves for 4.
    c = run([HostTouch("a"), blocks(0, 1, 2, 3, 0, 1, 4, 0, 1)], parameters=WHOLE, evict="lfu").steps[-1].counts[1]
    assert (c["faults"], c["evictions"]) == (5, 1)


def test_random_eviction_beats_fifo_on_a_cycle() -> None:
    sweep = [0, 1, 2, 3, 4] * 40
    program = [HostTouch("a"), blocks(*sweep)]
    assert run(program, parameters=WHOLE).counts[1]["faults"] == 200
    assert run(program, parameters=WHOLE, evict="random").counts[1]["faults"] < 150


@pytest.mark.parametrize(("prefetcher", "moved"), [("tree", [16, 16, 32]), ("sequential", [32, 32]), ("block", [512])])
def test_other_prefetchers_move_other_pages(prefetcher: str, moved: list[int]) -> None:
    result = run([HostTouch("a"), *(one_thread(p) for p in (0, 16, 32))], prefetcher=prefetcher)
    assert [int(s.counts[1]["came"].sum()) for s in result.steps[1:] if s.counts[1]["faults"]] == moved


def test_what_cannot_be_done_is_said() -> None:
    arrays = [Array("a", BLOCK)]
    with pytest.raises(UvmError, match=r"no allocation is called 'b' \(did|no allocation is called 'b'"):
        simulate_uvm(arrays, [HostTouch("b")], TINY)
    with pytest.raises(UvmError, match="touch: segmentation fault at 0x200000, index 524288 of 'a'"):
        simulate_uvm(arrays, [blocks(1)], TINY)
    with pytest.raises(UvmError, match="unknown module parameter"):
        simulate_uvm(arrays, [HostTouch("a")], TINY, {"uvm_perf_prefetch_treshold": 1})
    told = simulate_uvm(arrays, [HostTouch("a")], TINY, {"uvm_perf_prefetch_threshold": 101}).told
    assert told == ["uvm_perf_prefetch_threshold=101 is outside of 0..100: the driver takes its default, 51"]
    full = simulate_uvm([Array("a", 8 * BLOCK)], [blocks(*range(8))], TINY, {"uvm_global_oversubscription": 0})
    assert full.failed == "touch: GPU memory is full and may not be evicted"


MIXED = """
from dataclasses import replace
import numpy as np
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, Prefetch
from unified_by_hand import BLOCK, PAGE, TINY, one_thread
order = np.random.default_rng(3).permutation(6 * 512)[:512].astype(np.int64) * PAGE
arrays = [Array("a", 6 * BLOCK), Array("s", 65536 + 4096, at=65536), Array("c", 3 * BLOCK)]
gather = Kernel("gather", [Access("a", tx=1, bx=64, index=order), Access("c", True, tx=1, bx=64)], (8, 1), (64, 1), ns=1e4)
random = Kernel("random", [Access("a", random=4, tx=1, bx=64)], (9, 1), (64, 1), (2, 1))
program = [HostTouch("a"), gather, one_thread(0, array="s"), HostTouch("c", count=9999), random, Advise("c", "read_mostly"),
           HostTouch("c", write=False), Prefetch("a", count=BLOCK), gather,
           *[HostTouch("c", count=4096), one_thread(0, array="c")] * 9]
for evict in ("driver", "lru", "random"):
    r = simulate_uvm(arrays, program, replace(TINY, sms=4, sms_per_utlb=2), evict=evict, log=100)
    print(r.ns, r.counts.tolist(), r.log.tolist())
"""


@pytest.mark.agreement
@pytest.mark.slow
def test_interpreted_is_compiled() -> None:
    here = Path(__file__).parents[1]
    out = []
    for more in ({}, {"NUMBA_DISABLE_JIT": "1"}):
        env = {**os.environ, **more, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])}
        done = subprocess.run([sys.executable, "-c", MIXED], env=env, capture_output=True, text=True, check=True)
        out.append(done.stdout)
    assert out[0] == out[1]
    assert len(out[0]) > 1000
