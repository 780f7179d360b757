"""Is what each allocation saw counted for it, and does the log tell the whole story?  Worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, WHOLE, blocks, one_thread, run

from gpusim.engine.pages.driver_tables import CAUSES, DEMAND, EVICTION, EXPLICIT, NONE, PREFETCH
from gpusim.engine.pages.events import pages
from gpusim.programs.managed.steps import Advise, Array, Free, HostTouch, Kernel, Prefetch
from gpusim.results.page_log import BATCH, COPY, FILL, GONE, KEEP, KINDS, PIN, READ, THROTTLE, UNPIN, WRITE

pytestmark = pytest.mark.hand_worked

TWO = [Array("a", 4 * BLOCK), Array("b", 4 * BLOCK)]


def seen(result: Any, name: str) -> Any:
    return result.ranges[list(result.spans).index(name)]


def causes(**n: int) -> list[int]:
    out = [0] * CAUSES
    for name, count in n.items():
        out[{"demand": DEMAND, "prefetch": PREFETCH, "eviction": EVICTION, "explicit": EXPLICIT}[name]] = count
    return out


def test_each_allocation_has_counts_of_its_own() -> None:
    result = run([HostTouch("a"), HostTouch("b", write=False), blocks(0, 1), blocks(2, array="b", write=True)], TWO)
    a, b = seen(result, "a"), seen(result, "b")
    assert (a["cpu_writes"], a["cpu_reads"], b["cpu_writes"], b["cpu_reads"]) == (24, 0, 0, 24)  # six for each block
    assert (a["gpu_reads"], a["gpu_writes"], b["gpu_reads"], b["gpu_writes"]) == (2, 0, 0, 1)
    assert (a["came"].tolist(), b["came"].tolist()) == (causes(demand=2, prefetch=30), causes(demand=1, prefetch=15))
    assert a["wasted"] == a["went"].sum() == a["faults_new"] == a["faults_again"] == 0
    # A block's cost, its first touch, copies (the page, 15 beside it) after 300 ns at a byte per ns, a ns for each page.
    assert a["service"] == 2 * (100 + 5000 + 300 + 65536 + 16)
    assert a["copy_in"] == 2 * (2 * 300 + 65536)


def test_faults_by_what_they_are_for() -> None:
    sweep = blocks(0, 1, 2, 3, 4, 0)
    result = run([HostTouch("a", count=5 * BLOCK), sweep, one_thread(7 * 512)], parameters=WHOLE)
    a = seen(result, "a")
    assert (a["gpu_reads"], a["faults_again"], a["faults_new"]) == (7, 1, 1)
    assert a["went"].tolist() == causes(eviction=3 * 512)  # 0, 1 and 2 for 4, 0 and 7
    assert (a["refetched"], a["left_clean"], a["wasted"]) == (512, 3 * 512, 3 * 511)
    assert (a["zeroed"], a["ping_pong"]) == (512, 0)
    assert a["copy_out"] == 3 * (200 + BLOCK / 2)
    shared = run([HostTouch("a"), Advise("a", "read_mostly"), one_thread(0), one_thread(0, write=True)])
    assert (seen(shared, "a")["gpu_writes"], seen(shared, "a")["faults_permission"]) == (1, 1)


def test_ping_pong_is_what_comes_back_after_the_cpu_had_taken_it() -> None:
    calm = {"uvm_perf_thrashing_enable": 0, "uvm_perf_prefetch_enable": 0}
    result = run([HostTouch("a"), *[one_thread(0), HostTouch("a", count=4096)] * 3, one_thread(1)], parameters=calm)
    a = seen(result, "a")
    assert a["ping_pong"] == 2  # the first time it had never been there
    assert (a["came"].tolist(), a["went"].tolist()) == (causes(demand=4), causes(demand=3))
    back = run([HostTouch("a"), Prefetch("a", count=BLOCK), Prefetch("a", to=0, count=BLOCK), Prefetch("a", count=4096)])
    assert seen(back, "a")["ping_pong"] == 1
    assert seen(back, "a")["went"].tolist() == causes(explicit=512)


def test_remote_bytes_throttles_and_pins_belong_to_an_allocation() -> None:
    far = [Advise("b", "preferred_location", 0), Advise("b", "accessed_by", 1)]
    pong = [HostTouch("a", count=4096), one_thread(0, write=True)] * 16
    result = run([HostTouch("a"), HostTouch("b"), *far, *pong, blocks(0, 1, array="b")], TWO,
                 parameters={"uvm_perf_thrashing_pin_threshold": 2}, log=10_000)  # fmt: skip
    a, b = seen(result, "a"), seen(result, "b")
    assert (b["remote_bytes"], b["throttled"], b["pinned"]) == (64, 0, 0)
    assert (a["throttled"], a["pinned"]) == (result.counts["throttled"].sum(), 1)
    assert a["remote_bytes"] == result.counts[1]["remote_bytes"] - 64
    kinds = result.log["kind"].tolist()
    assert (kinds.count(PIN), kinds.count(THROTTLE), kinds.count(UNPIN)) == (1, a["throttled"], 0)
    pin = result.log[kinds.index(PIN)]
    assert (pin["source"], pin["pages"], pin["mask"].tolist()) == (0, 1, [1] + [0] * 7)


def test_batches_are_counted_by_their_size() -> None:
    threads = Kernel("warps", [blocks(0).accesses[0]], (1, 1), (1, 1), ns=0.0)
    result = run([HostTouch("a"), threads, blocks(1, 2)], log=1000)
    assert np.flatnonzero(result.batch_sizes[1]).tolist() == [1]
    assert result.batch_sizes[1, 1] == result.counts[1]["batches"] == 3
    batches = result.log[result.log["kind"] == BATCH]
    assert (batches["pages"].tolist(), batches["batch"].tolist()) == ([1, 1, 1], [1, 2, 3])
    short = run([HostTouch("a"), threads, blocks(1, 2)], log=50)
    assert (len(short.log), short.events) == (50, len(result.log))


def test_the_log_of_a_migration_and_an_eviction() -> None:
    result = run([HostTouch("a", count=5 * BLOCK), blocks(0, 1, 2, 3), blocks(4)], parameters=WHOLE, log=1000)
    assert result.events == len(result.log)
    tail = [(KINDS[r["kind"]], int(r["cause"]), int(r["processor"]), int(r["source"]), int(r["block"]), int(r["pages"]))
            for r in result.log[-7:]]  # fmt: skip
    assert tail == [
        ("batch", NONE, 1, NONE, NONE, 1),
        ("read", DEMAND, 1, NONE, 4, 1),
        ("copy", EVICTION, 0, 1, 0, 512),
        ("gone", EVICTION, 1, NONE, 0, 512),
        ("copy", PREFETCH, 1, 0, 4, 511),
        ("copy", DEMAND, 1, 0, 4, 1),
        ("gone", DEMAND, 0, NONE, 4, 512),
    ]


def test_residency_follows_from_the_log() -> None:
    program = [HostTouch("a", count=6 * BLOCK), blocks(0, 1, 2, 3, 4, 0, 5, write=True), HostTouch("b"),
               Advise("b", "read_mostly"), blocks(0, 1, array="b"), HostTouch("a", count=BLOCK), Prefetch("b", count=BLOCK),
               Free("b"), blocks(3, 2)]  # fmt: skip
    for evict in ("driver", "clean_drop"):
        result = run(program, [Array("a", 8 * BLOCK), Array("b", 2 * BLOCK)], evict=evict, log=100_000)
        there = {(p, b): set() for p in (0, 1) for b in range(10)}
        for r, mask in zip(result.log, pages(result.log), strict=True):
            who, which = (int(r["processor"]), int(r["block"])), set(np.flatnonzero(mask).tolist())
            if r["kind"] == COPY:
                assert which <= there[int(r["source"]), who[1]]  # a page comes from where it is
            if r["kind"] in (COPY, FILL, KEEP):
                assert not which & there[who]
                there[who] |= which
            if r["kind"] == GONE:
                assert which <= there[who]
                there[who] -= which
            if r["kind"] in (READ, WRITE):
                assert len(which) == r["pages"]
            assert sum(bool(there[1, b]) for b in range(10)) <= 4
        assert np.all(np.diff(result.log["time"]) >= 0)
