"""Does the map of the heap show the blocks, segments and holes that the event log tells of?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.engine.run.simulate import simulate
from gpusim.machine.profile import load_file
from gpusim.results.heap_over_time import blocks, holes, segments
from gpusim.results.log import LOG, PLACE, RELEASE, RESERVE, UNPLACE
from gpusim.trace.files import load_trace

ROOT = Path(__file__).parents[2]


def log_of(*rows):
    log = np.zeros(len(rows), LOG)
    for i, (t, kind, a, addr, size) in enumerate(rows):
        log[i] = (t, kind, a, 0, addr, size)
    return log


def test_blocks_span_place_to_unplace_and_unclosed_ones_last_to_the_end():
    log = log_of(
        (0, PLACE, 0, 0, 100),
        (1, PLACE, 1, 100, 50),
        (5, UNPLACE, 0, 0, 100),
        (7, PLACE, 2, 0, 30),
        (9, UNPLACE, 1, 100, 50),
    )
    b = blocks(log, 20)
    spans = sorted(zip(b.unit.tolist(), b.start.tolist(), b.end.tolist(), b.addr.tolist(), b.bytes.tolist(), strict=True))
    assert spans == [(0, 0, 5, 0, 100), (1, 1, 9, 100, 50), (2, 7, 20, 0, 30)]


def test_blocks_of_the_host_are_not_on_the_map_of_the_device():
    log = log_of((0, PLACE, 0, -1, 100))
    log["b"] = 1
    assert len(blocks(log, 10)) == 0


def test_a_segment_released_in_part_keeps_its_rest():
    s = segments(log_of((0, RESERVE, -1, 0, 100), (4, RELEASE, -1, 20, 30)), 10)
    spans = list(zip(s.start.tolist(), s.end.tolist(), s.addr.tolist(), s.bytes.tolist(), strict=True))
    assert spans == [(0, 4, 0, 100), (4, 10, 0, 20), (4, 10, 50, 50)]


def test_holes_are_the_gaps_between_live_blocks_of_a_segment():
    log = log_of(
        (0, RESERVE, -1, 0, 100),
        (0, PLACE, 0, 0, 20),
        (0, PLACE, 1, 20, 30),
        (0, PLACE, 2, 50, 10),
        (5, UNPLACE, 1, 20, 30),
    )
    h = holes(blocks(log, 10), segments(log, 10), 10, samples=2)  # at 2.5 and 7.5 ns
    assert h.free.tolist() == [40, 70]
    assert h.largest.tolist() == [40, 40]
    assert h.largest_addr.tolist() == [60, 60]
    assert h.external.tolist() == pytest.approx([0, 1 - 40 / 70])
    assert h.worst == 1


def test_a_hole_does_not_reach_across_two_segments_and_an_empty_block_does_not_cut_one():
    log = log_of((0, RESERVE, -1, 0, 100), (0, RESERVE, -1, 100, 100), (0, PLACE, 0, 40, 0))
    h = holes(blocks(log, 10), segments(log, 10), 10, samples=1)
    assert (h.free.tolist(), h.largest.tolist()) == ([200], [100])


def test_an_empty_log_has_neither_blocks_nor_holes():
    log = log_of()
    assert len(blocks(log, 0)) == len(segments(log, 0)) == 0
    assert holes(blocks(log, 10), segments(log, 10), 10, samples=3).free.tolist() == [0, 0, 0]


def test_segments_count_as_one_where_blocks_lie_across_their_border():
    log = log_of((0, RESERVE, -1, 0, 100), (0, RESERVE, -1, 100, 100), (0, PLACE, 0, 80, 40))
    h = holes(blocks(log, 10), segments(log, 10), 10, samples=1)
    assert (h.free.tolist(), h.largest.tolist(), h.largest_addr.tolist()) == ([160], [80], [0])
    apart = log_of(
        (0, RESERVE, -1, 0, 100), (0, RESERVE, -1, 100, 100), (0, RESERVE, -1, 200, 100),
        (0, PLACE, 0, 80, 40), (0, PLACE, 1, 290, 10),
    )  # fmt: skip
    h = holes(blocks(apart, 10), segments(apart, 10), 10, samples=1)
    assert (h.free.tolist(), h.largest.tolist(), h.largest_addr.tolist()) == ([250], [170], [120])


@pytest.mark.parametrize("place", ["pytorch", "best_fit"])
def test_the_map_of_a_real_run_agrees_with_its_log_and_timeline_to_the_byte(place):
    profile = load_file(ROOT / "hardware_profiles/a100-pcie-40gb.yaml")
    trace = load_trace(ROOT / "traces/gpt2-small-train.npz")
    run = simulate(trace, profile, place=place, evict="lru", capacity_bytes=9 * 2**30, log=True)
    log, end = run.log, int(run.log["t"][-1]) + 1
    block, segment = blocks(log, end), segments(log, end)
    assert len(block) == ((log["kind"] == PLACE) & (log["b"] == 0)).sum() > 2000

    def level(up, down):
        sign = (log["kind"] == up).astype(np.int64) - (log["kind"] == down)
        return np.cumsum(sign * log["bytes"] * (log["b"] == 0))

    allocated, reserved = level(PLACE, UNPLACE), level(RESERVE, RELEASE)
    rows = range(0, len(run.timeline["time_ns"]), len(run.timeline["time_ns"]) // 40)
    for row in rows:
        time = run.timeline["time_ns"][row]
        first, last = np.searchsorted(log["t"], time), np.searchsorted(log["t"], time, "right") - 1
        here, held = block.at(time), segment.at(time)
        assert (here.bytes.sum(), held.bytes.sum()) == (allocated[last], reserved[last])
        assert (here.addr[1:] >= here.addr[:-1] + here.bytes[:-1]).all()
        # A row of the timeline is a moment between the records of its time.
        moments = set(zip(allocated[first - 1 : last + 1].tolist(), reserved[first - 1 : last + 1].tolist(), strict=True))
        assert first == 0 or (run.timeline["allocated_bytes"][row], run.timeline["reserved_bytes"][row]) in moments
