"""What a warp moves: the sectors of 32 bytes that its lanes touch, in lines of 128, wherever its pages are.  All by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, TINY, run

from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, Prefetch, moved_bytes

pytestmark = pytest.mark.hand_worked

LINES = replace(TINY, link=replace(TINY.link, remote_request=1e6))
ZERO_COPY = [HostTouch("a"), Advise("a", "preferred_location", 0), Advise("a", "accessed_by", 1)]


def warp(lanes: int = 32, **access: Any) -> Kernel:
    return Kernel("warp", [Access("a", **access)], (1, 1), (lanes, 1), ns=0.0)


def moved(kernel: Kernel, at: int = 0) -> tuple[int, int, int]:
    """Pages, sectors and lines that a kernel touches; the same local and remote."""
    arrays = [Array("a", BLOCK, at)]
    near = run([Prefetch("a"), kernel], arrays, LINES).steps[-1].counts[1]
    far = run([*ZERO_COPY, kernel], arrays, LINES).steps[-1]
    assert near["touched_bytes"] == far.counts[1]["touched_bytes"] == far.counts[1]["remote_bytes"]
    assert (near["touches"], near["remote_bytes"], far.counts[1]["faults"]) == (far.counts[1]["touches"], 0, 0)
    lines, rest = divmod(round(far.ns), 1_000_000)  # a request; 1 ns a byte
    assert rest == near["touched_bytes"]
    return int(near["touches"]), int(near["touched_bytes"]) // 32, int(lines)


@pytest.mark.parametrize(
    ("stride", "pages", "sectors", "lines"),
    [(4, 1, 4, 1), (8, 1, 8, 2), (32, 1, 32, 8), (36, 1, 32, 9), (64, 1, 32, 16), (128, 1, 32, 32), (256, 2, 32, 32),
     (2048, 16, 32, 32), (4096, 32, 32, 32), (8192, 32, 32, 32)],
)  # fmt: skip
def test_a_warp_moves_the_sectors_that_its_lanes_touch(stride: int, pages: int, sectors: int, lines: int) -> None:
    assert moved(warp(tx=stride // 4)) == (pages, sectors, lines)
    assert moved(warp(tx=-stride // 4, start=31 * stride // 4)) == (pages, sectors, lines)


def test_one_lane_moves_a_sector() -> None:
    assert moved(warp(lanes=1, tx=1)) == (1, 1, 1)
    assert moved(warp(tx=0)) == (1, 1, 1)  # all lanes the same element


def test_what_is_not_aligned_touches_sectors_at_both_ends() -> None:
    assert moved(warp(tx=1, start=1)) == (1, 5, 2)       # bytes 4 to 131
    assert moved(warp(tx=1, start=1008)) == (2, 4, 2)    # 4032 to 4159: two sectors of each page
    # 16 bytes every 48, to byte 1503: from 0 on each lies in one sector; from 24 on every other one in two.
    assert moved(warp(bytes=16, tx=3)) == (1, 32, 12)
    assert moved(warp(bytes=16, tx=3), at=24) == (1, 48, 12)


def test_lanes_outside_of_the_array_move_nothing() -> None:
    assert moved(warp(tx=16, start=-1)) == (1, 31, 16)            # bytes 60, 124, ...: the first of 31 has a line of its own
    assert moved(warp(tx=16, elements=16 * 4 + 1)) == (1, 5, 3)   # bytes 0, 64, 128, 192, 256
    assert moved(warp(tx=16, start=-16 * 31 - 1)) == (0, 0, 0)


def test_lanes_that_follow_an_index_share_sectors_with_their_neighbours() -> None:
    def gather(*index: int) -> Kernel:
        return warp(len(index), tx=1, index=np.array(index, np.int64))

    assert moved(gather(*range(32))) == (1, 4, 1)
    assert moved(gather(*range(0, 64, 2))) == (1, 8, 2)
    assert moved(gather(5, 5, 6, -1, 7)) == (2, 2, 2)  # nothing in between: the sector is asked for again
    assert moved(gather(0, 512, 1024)) == (3, 3, 3)
    assert moved(warp(tx=1, wraps=True)) == (1, 4, 1)


def test_time_without_a_fault_is_of_sectors() -> None:
    def each(lanes: int = 32, **access: Any) -> float:
        kernel = warp(lanes, **access)
        return moved_bytes(kernel.accesses, kernel) / 32

    assert [each(tx=tx) for tx in (0, 1, 2, 8, 16, 1024)] == [1, 4, 8, 32, 32, 32]
    assert (each(1, tx=1), each(tx=1, random=3), each(tx=1, bytes=48)) == (1, 32, 48)
    assert each(tx=1, index=np.arange(32)) == 4
    assert each(tx=1, index=np.array([0, 1, -1, 9] * 8)) == 16
