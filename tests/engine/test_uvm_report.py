"""Does the fault report say exactly what happened?  Small programs whose faults and bytes are counted by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, one_thread, run

from gpusim.engine.pages import account
from gpusim.programs.managed.steps import Advise, Array, HostTouch, Start
from gpusim.results import fault_picture as pictures
from gpusim.results import faults as report

pytestmark = pytest.mark.hand_worked

PAGE = 4096


def reported(*program: Any, **more: Any) -> report.FaultReport:
    return account.of(run(list(program), **more))


def test_the_report_of_a_cyclic_sweep_is_known_exactly() -> None:
    # Four chunks, five blocks, three rounds: every fault brings a block in, and from the fifth on one leaves.
    found = reported(HostTouch("a"), blocks(*([0, 1, 2, 3, 4] * 3)), parameters=WHOLE)
    (a,) = found.allocations
    assert (a.name, a.bytes, a.faults["gpu_reads"], a.faults["gpu_writes"]) == ("a", 8 * BLOCK, 15, 0)
    assert (a.faults["cpu_writes"], a.faults["faults_again"], a.faults["faults_new"]) == (8, 10, 0)
    assert a.came == {"demand": 15 * PAGE, "prefetch": 15 * 511 * PAGE, "eviction": 0, "explicit": 0, "counter": 0}
    assert a.went["eviction"] == a.evicted_clean == 11 * BLOCK
    assert a.again == a.thrashed == 10 * BLOCK
    assert a.wasted == 11 * 511 * PAGE  # only the first page of a block was used
    assert found.batches == [(1, 15)]
    assert found.counts["evictions"] == 11 and found.counts["replays"] == 15


def test_the_times_add_up_to_the_makespan_and_are_those_of_the_hand_worked_fault() -> None:
    found = reported(HostTouch("a"), one_thread(3))
    copies = 300 + 16 * 4096  # which nothing hides
    host = 48 * (700 + 0)  # six faults of each block
    assert found.times["cpu"] == pytest.approx(8 * 512 * PAGE / 10)  # at 10 bytes/ns
    assert found.times["copy_in"] == copies
    # A kernel begins at a tick: up to 1 ns behind the CPU's last byte.
    assert found.times["for_cpu"] == pytest.approx(host, abs=1) and found.allocations[0].cpu_service_ns == host
    assert found.times["driver"] == pytest.approx(10_000 + 1000 + 10 + 100 + 5000 + 16 + 50, abs=1)
    assert sum(found.times.values()) == pytest.approx(found.makespan_ns)
    assert [s.name for s in found.steps] == ["host writes a", "touch"]


def test_pages_that_go_to_and_fro_are_ping_pong_and_rank_first() -> None:
    arrays = [Array("quiet", 2 * BLOCK), Array("ball", BLOCK)]
    back = HostTouch("ball")
    touch = one_thread(0, array="ball", write=True)
    found = reported(
        HostTouch("quiet"), back, one_thread(*range(0, 1024, 16), array="quiet"), *[touch, back] * 3, arrays=arrays,
        parameters=WHOLE | {"uvm_perf_thrashing_enable": 0},
    )  # fmt: skip
    ball, quiet = found.allocations
    assert (ball.name, ball.ping_pong, ball.again) == ("ball", 2 * BLOCK, 0)  # the first time it is no return
    assert sum(ball.went.values()) == 3 * BLOCK
    assert (quiet.name, quiet.thrashed, quiet.faults["gpu_reads"]) == ("quiet", 0, 2)


def test_a_write_to_what_may_be_read_only_is_a_fault_of_its_own() -> None:
    found = reported(
        HostTouch("a"), Advise("a", "read_mostly"), one_thread(0), one_thread(0, write=True), parameters=WHOLE
    )  # fmt: skip
    (a,) = found.allocations
    assert (a.faults["gpu_reads"], a.faults["gpu_writes"], a.faults["faults_permission"]) == (1, 1, 1)


def test_the_picture_holds_every_page_and_what_is_resident() -> None:
    result = run([HostTouch("a"), blocks(*([0, 1, 2, 3, 4] * 3))], parameters=WHOLE)
    picture = result.picture
    assert picture.pages.shape[1] == 8 * 8 and picture.row_bytes == BLOCK // 8  # eight blocks, a row for each word of pages
    per_row = picture.pages.sum(2)
    assert per_row[pictures.FAULTED].reshape(8, 8).sum(1).tolist() == [3] * 5 + [0] * 3
    assert per_row[pictures.CAME].reshape(8, 8).sum(1).tolist() == [3 * 512] * 5 + [0] * 3
    assert int(per_row[pictures.EVICTED].sum()) == 11 * 512 and int(per_row[pictures.TAKEN].sum()) == 0
    # The last five were 0 1 2 3 4: block 0 had to leave for block 4.
    assert picture.resident[:, -1].reshape(8, 8).mean(1).tolist() == [0, 1, 1, 1, 1, 0, 0, 0]
    assert picture.pages.shape[2] * picture.column_ns >= result.ns > (picture.pages.shape[2] - 1) * picture.column_ns


def test_what_stands_before_the_start_is_not_counted_but_known_to_be_there() -> None:
    result = run([HostTouch("a"), blocks(0, 1), Start(), blocks(0, 1, 2)], parameters=WHOLE)
    found = account.of(result)
    (a,) = found.allocations
    assert (a.faults["gpu_reads"], a.faults["cpu_writes"], a.brought) == (1, 0, BLOCK)
    assert [s.name for s in found.steps] == ["touch"] and found.makespan_ns == result.steps[0].ns
    assert sum(found.times.values()) == pytest.approx(found.makespan_ns)
    assert result.picture.resident[:, 0].reshape(8, 8).mean(1).tolist()[:2] == [1, 1]
    assert result.picture.resident[:, -1].reshape(8, 8).mean(1).tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_a_picture_of_many_blocks_has_no_more_rows_and_loses_nothing() -> None:
    large = [Array("a", 300 * BLOCK)]
    result = run([HostTouch("a"), blocks(*range(0, 300, 7))], large, replace(TINY, memory=4 * BLOCK), parameters=WHOLE)
    picture = result.picture
    assert picture.pages.shape[1] == 75 and picture.row_bytes == 4 * BLOCK
    assert int(picture.pages[pictures.CAME].sum()) == 43 * 512 == int(result.ranges["came"].sum())
    first = picture.pages[pictures.FAULTED].argmax(1)[[0, 1, 3, 5, 7]]  # rows of blocks 0, 7, 14, 21, 28
    assert np.all(np.diff(first) > 0)


def test_a_picture_and_a_report_are_the_same_after_a_file() -> None:
    result = run([HostTouch("a"), blocks(0, 1, 5)])
    back = pictures.from_arrays(result.picture.arrays())
    assert np.array_equal(back.pages, result.picture.pages) and back.row_bytes == result.picture.row_bytes
    found = account.of(result)
    assert report.from_plain(json.loads(json.dumps(found.plain()))) == found


def test_percentiles_of_batches_count_batches() -> None:
    sizes = [(1, 5), (10, 4), (256, 1)]
    assert [report.percentile(sizes, share) for share in (0.5, 0.9, 1.0)] == [1, 10, 256]
    assert report.percentile([], 0.5) == 0


def test_allocations_that_differ_in_a_number_only_are_one_where_that_is_asked_for() -> None:
    arrays = [Array("weights_0", BLOCK), Array("weights_1", 2 * BLOCK), Array("x", BLOCK)]
    program = [one_thread(0, array="weights_0"), one_thread(0, 512, array="weights_1"), one_thread(0, array="x", write=True)]
    result = run(program, arrays, parameters=WHOLE)
    weights, x = sorted(account.of(result, together=True).allocations, key=lambda a: a.first)
    assert (weights.name, weights.first, weights.bytes, weights.faults["gpu_reads"]) == ("weights_*", 0, 3 * BLOCK, 3)
    assert (x.name, x.first, x.faults["gpu_writes"], x.faults["gpu_reads"]) == ("x", 3 * BLOCK, 1, 0)
    apart = {a.name: a for a in account.of(result).allocations}
    assert weights.service_ns == apart["weights_0"].service_ns + apart["weights_1"].service_ns
