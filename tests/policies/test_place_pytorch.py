"""Does `pytorch` do what the real caching allocator does?

Consequences of its rules worked by hand, a recording of a real GPU, and what the real library answered to random requests.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from place_programs import Watched

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, HELD

pytestmark = pytest.mark.hand_worked

DATA = Path(__file__).parents[1] / "data"
K, MIB = 512, 1 << 20


def heap(capacity: int = 1 << 34, units: int = 120, spec: str = "pytorch") -> Watched:
    return Watched(registry.get("place", spec), capacity, units)


def test_segments_by_size() -> None:
    for size, segment, block in [
        (1, 2 * MIB, K),
        (513, 2 * MIB, 2 * K),
        (1 * MIB, 2 * MIB, 1 * MIB),
        (1 * MIB + 1, 20 * MIB, 1 * MIB + K),
        (10 * MIB - K, 20 * MIB, 10 * MIB - K),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB, 10 * MIB + K),  # the rest, 2 MiB - 512, is split off
        (15 * MIB, 16 * MIB, 16 * MIB),          # the rest, 1 MiB, is not
    ]:
        h = heap()
        assert h.alloc(0, size) == 0
        assert (h.S[HELD], h.S[BLOCK]) == (segment, block), size


def test_a_large_block_is_split_when_more_than_1_mib_remains() -> None:
    for size, block in [(19 * MIB, 20 * MIB), (19 * MIB - K, 19 * MIB - K)]:
        h = heap()
        h.alloc(0, 20 * MIB)
        h.free(0)
        assert h.alloc(1, size) == 0 and h.S[BLOCK] == block and h.calls() == []


def test_blocks_of_one_stream_are_not_another_streams() -> None:
    h = heap()
    h.alloc(0, 1000, stream=0)
    h.free(0)
    assert h.alloc(1, 1000, stream=3) == 2 * MIB
    assert h.alloc(2, 1000, stream=0) == 0


def test_the_small_pool_is_not_the_large_ones() -> None:
    h = heap()
    h.alloc(0, 20 * MIB)
    h.free(0)
    assert h.alloc(1, 1 * MIB) == 20 * MIB
    assert h.alloc(2, 2 * MIB) == 0


def test_blocks_merge_inside_a_segment_only() -> None:
    h = heap()
    for unit in range(2):
        h.alloc(unit, 20 * MIB)
    for unit in range(2):
        h.free(unit)
    assert h.policy.largest(h.S) == 20 * MIB
    assert h.alloc(2, 22 * MIB) == 40 * MIB
    for unit in range(4, 8):
        assert h.alloc(unit, 5 * MIB) == 5 * (unit - 4) * MIB
    for unit in (4, 6, 5, 7):
        h.free(unit)
    assert h.alloc(8, 20 * MIB) == 0


def test_among_equal_blocks_the_oldest_segment_wins() -> None:
    h = heap()
    h.alloc(0, 20 * MIB)
    h.alloc(1, 20 * MIB)
    h.free(0)
    h.release()
    assert h.alloc(2, 20 * MIB) == 0  # the third segment, at the lowest address
    h.free(1)
    h.free(2)
    assert h.alloc(3, 20 * MIB) == 20 * MIB


def test_among_equal_blocks_of_a_segment_the_lowest_address_wins() -> None:
    h = heap()
    for unit in range(9):
        assert h.alloc(unit, 2 * MIB) == 2 * unit * MIB
    for unit in (5, 1, 7, 3):
        h.free(unit)
    assert [h.alloc(unit, 2 * MIB) for unit in (1, 3, 5, 7)] == [2 * MIB, 6 * MIB, 10 * MIB, 14 * MIB]


def test_a_full_device_takes_the_cache_back_and_is_asked_again() -> None:
    h = heap(20 * MIB)
    h.alloc(0, 20 * MIB)
    h.free(0)
    assert h.alloc(1, K) == 0
    assert h.calls() == [(0, -20 * MIB), (0, 2 * MIB)]


def test_a_request_that_fails_leaves_the_cache_released() -> None:
    h = heap(24 * MIB)
    h.alloc(0, 12 * MIB)
    h.alloc(1, 512)
    h.free(0)
    assert h.alloc(2, 30 * MIB) == -1
    assert h.calls() == [(0, -12 * MIB)] and h.S[HELD] == 2 * MIB


def test_segments_with_a_block_in_use_stay() -> None:
    h = heap()
    h.alloc(0, 2 * MIB)
    h.alloc(1, 2 * MIB)
    h.free(0)
    assert h.release() == 0
    h.free(1)
    assert h.release() == 20 * MIB


def test_a_segment_needs_one_range_only_on_a_device_without_virtual_memory() -> None:
    for spec, addr in [("pytorch(device=contiguous)", -1), ("pytorch", 40 * MIB)]:
        h = heap(60 * MIB, spec=spec)
        for unit in range(3):
            h.alloc(unit, 20 * MIB)
        h.free(0)
        h.free(2)
        assert h.policy.alloc(h.S, 5, 40 * MIB, 0) == addr


@pytest.mark.oracle
def test_a_real_gpus_recording_from_empty() -> None:
    """Every segment at the recorded moment and of the recorded size, every block at the recorded place in such a segment.

    In which of several segments of 512 MiB that are wholly free is not compared: the recording's release took the lowest
    address, newer ones take the oldest.
    """
    with (DATA / "pytorch_from_empty.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    h = heap(16 << 30, len(rows))
    unit_at: dict[int, int] = {}
    recorded: list[tuple[int, int]] = []  # segments: address, size
    mine: list[tuple[int, int]] = []
    blocks = 0
    for unit, row in enumerate(rows):
        addr, size = int(row["addr"]), int(row["size"])
        if row["action"] == "segment_alloc":
            recorded.append((addr, size))
        elif row["action"] == "alloc":
            found = h.alloc(unit, size)
            mine += h.calls()
            assert [s for _, s in mine] == [s for _, s in recorded]
            assert place(found, mine) == place(addr, recorded), row
            unit_at[addr] = unit
            blocks += 1
        elif row["action"] == "free_requested":
            h.free(unit_at.pop(addr))
    assert (len(recorded), blocks) == (9, 36)


def place(addr: int, segments: list[tuple[int, int]]) -> tuple[int, int]:
    """(size of the segment, offset in it)."""
    return next((size, addr - start) for start, size in segments if start <= addr < start + size)


@pytest.mark.oracle
def test_random_requests_as_the_real_library_answered_them() -> None:
    h = heap()
    segments: list[tuple[int, int]] = []
    requests = 0
    for line in (DATA / "torch_allocator_cases.csv").read_text().splitlines():
        kind, *fields = line.split(",")
        numbers = [int(f) for f in fields] if not kind.startswith("#") else []
        if kind == "case":
            h = heap(numbers[0])
        elif kind == "s":
            segments.append((numbers[0], numbers[1]))
        elif kind in "afe":
            if kind == "a":
                unit, size, stream, addr = numbers
                assert h.alloc(unit, size, stream) == (addr if size else 0)
            elif kind == "f":
                h.free(numbers[0])
            else:
                h.release()
            assert h.calls() == segments
            segments = []
            requests += 1
    assert requests == 1200
