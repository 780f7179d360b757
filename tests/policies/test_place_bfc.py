"""Does `bfc` do what TensorFlow's and JAX's allocator does?  By hand from its rules, and as the real library answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from place_programs import Watched

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, HELD

pytestmark = pytest.mark.hand_worked

DATA = Path(__file__).parents[1] / "data"
MIB, GIB = 1 << 20, 1 << 30


def heap(capacity: int = GIB, parameters: str = "", units: int = 40) -> Watched:
    return Watched(registry.get("place", f"bfc(contiguous=1, {parameters})"), capacity, units)


def test_sizes_round_to_256() -> None:
    h = heap()
    for unit, (size, block) in enumerate([(1, 256), (256, 256), (257, 512), (1000, 1024)]):
        h.alloc(unit, size)
        assert h.S[BLOCK] == block


def test_a_chunk_below_twice_the_request_is_given_whole() -> None:
    """1024 of 2 MiB are gone, so 2,096,128 are left: less than twice 1 MiB."""
    h = heap()
    assert h.alloc(0, 1000) == 0
    assert h.alloc(1, 1 * MIB) == 1024 and h.S[BLOCK] == 2 * MIB - 1024
    assert h.S[HELD] == 2 * MIB
    h.free(1)
    assert h.alloc(1, 1 * MIB - 512) == 1024 and h.S[BLOCK] == 1 * MIB - 512  # exactly half


def test_a_chunk_is_split_when_128_mib_would_be_wasted() -> None:
    for size, block in [(250, 250), (272, 272), (273, 400)]:
        h = heap(400 * MIB, "allow_growth=0")
        h.alloc(0, size * MIB)
        assert h.S[BLOCK] == block * MIB
    h = heap(400 * MIB, "allow_growth=0, fragmentation_fraction=0.25")  # or a share of the limit, here 100 MiB
    h.alloc(0, 300 * MIB)
    assert h.S[BLOCK] == 300 * MIB


def test_best_fit_and_among_equals_the_lowest_address() -> None:
    """Chunks of 1, 3, 1, 2, 1, 2, 1 times 256 bytes; free are 3 at 1, 2 at 5 and 2 at 8, and the end."""
    h = heap()
    for unit, size in enumerate([1, 3, 1, 2, 1, 2, 1]):
        h.alloc(unit, 256 * size)
    for unit in (5, 1, 3):
        h.free(unit)
    assert h.alloc(7, 512) == 5 * 256
    assert h.alloc(8, 512) == 8 * 256
    assert h.alloc(9, 512) == 1 * 256 and h.S[BLOCK] == 3 * 256  # less than twice: the third 256 is wasted
    h.free(9)
    assert h.alloc(9, 256) == 1 * 256 and h.S[BLOCK] == 256      # 3 is more than twice 1


def test_regions_double() -> None:
    """2, 4 and 8 MiB; a request of 20 takes 32, and the next region is 32 again, for it was doubled for this one."""
    h = heap()
    for unit, (size, region) in enumerate([(2, 2), (4, 4), (8, 8), (20, 32), (32, 32), (64, 64)]):
        start = int(h.S[HELD])
        assert h.alloc(unit, size * MIB) == start
        assert h.calls() == [(start, region * MIB)]
    h = heap(20 * MIB)
    for unit, region in enumerate([2, 4, 8, 6]):  # the last one is what the limit leaves
        h.alloc(unit, min(2**unit, 3) * 2 * MIB)
        assert h.calls()[0][1] == region * MIB


def test_when_the_device_refuses_nine_tenths_are_asked_for() -> None:
    """9 MiB take five pages of 2 MiB, there are four: 9,437,184, then 8,493,568 (five pages), then 7,644,416 (four)."""
    h = heap(9 * MIB, "allow_growth=0")
    assert h.alloc(0, 256) == 0
    assert h.S[HELD] == 7_644_416


def test_regions_never_merge_unless_asked_to() -> None:
    """A region of 2 MiB and one of 4 behind it, both free; 5 MiB are in neither."""
    for parameters, addr, block in [("", 6 * MIB, 8 * MIB), ("coalesce_regions=1", 0, 6 * MIB)]:
        h = heap(parameters=parameters)
        h.alloc(0, 2 * MIB)
        h.alloc(1, 4 * MIB)
        h.free(0)
        h.free(1)
        assert h.alloc(2, 5 * MIB) == addr and h.S[BLOCK] == block


def full(parameters: str = "") -> Watched:
    """14 MiB in regions of 2, 4 and 8, each one chunk: units 0, 1, 2."""
    h = heap(14 * MIB, parameters)
    for unit, size in enumerate([2, 4, 8]):
        h.alloc(unit, size * MIB)
    assert h.S[HELD] == 14 * MIB
    return h


def test_free_regions_are_given_back_for_a_larger_one() -> None:
    h = full()
    for unit in range(3):
        h.free(unit)
    assert h.alloc(3, 12 * MIB) == 0
    assert h.calls() == [(0, -2 * MIB), (2 * MIB, -4 * MIB), (6 * MIB, -8 * MIB), (0, 14 * MIB)]
    h = full("garbage_collection=0")
    for unit in range(3):
        h.free(unit)
    assert h.alloc(3, 12 * MIB) == -1 and h.S[HELD] == 14 * MIB
    assert h.alloc(3, 8 * MIB) == 6 * MIB


def test_free_regions_stay_when_they_would_not_be_enough() -> None:
    h = full()
    h.free(0)
    h.free(2)
    assert h.alloc(3, 11 * MIB) == -1
    assert h.calls() == [] and h.S[HELD] == 14 * MIB


def test_nine_tenths_may_step_over_the_gap_that_is_there() -> None:
    """Gaps of 2 and 8 MiB around a live region of 4.  For 8 MiB it asks for 10, 9 and 8.1 MiB; 7.29 would be too little."""
    h = full()
    h.free(0)
    h.free(2)
    assert h.alloc(3, 9 * MIB) == -1
    assert h.calls() == [(0, -2 * MIB), (6 * MIB, -8 * MIB)] and h.S[HELD] == 4 * MIB
    assert h.alloc(3, 8 * MIB) == -1
    assert h.alloc(3, 6 * MIB) == 6 * MIB  # 10, 9, 8.1, then 7,644,416 bytes
    assert h.calls() == [(6 * MIB, 7_644_416)]


def test_jax_takes_three_quarters_at_the_first_request_and_keeps_them() -> None:
    h = heap(GIB, "fraction=0.75, allow_growth=0, garbage_collection=0")
    assert h.alloc(0, 1) == 0
    assert h.calls() == [(0, 768 * MIB)]
    assert h.alloc(1, 768 * MIB) == -1
    h.free(0)
    assert h.alloc(1, 768 * MIB) == 0


def test_the_limit_is_a_share_rounded_up_to_2_mib() -> None:
    """0.75 of 1001 MiB are 750.75."""
    h = heap(1001 * MIB, "fraction=0.75, allow_growth=0")
    h.alloc(0, 1)
    assert h.S[HELD] == 752 * MIB


def test_growth_begins_anew_once_all_is_given_back() -> None:
    h = full()
    h.free(0)
    assert h.release() == 2 * MIB
    h.free(1)
    h.free(2)
    h.release()
    h.alloc(0, 256)
    assert h.calls() == [(0, 2 * MIB)]


@pytest.mark.oracle
def test_as_the_real_library_answered() -> None:
    """Addresses, blocks, bytes held and device calls of random programs; `fuzz_bfc.py` makes more of them."""
    h, calls, requests = heap(), [], 0
    for line in (DATA / "bfc_cases.csv").read_text().splitlines():
        kind, *fields = line.split(",")
        if kind == "case":
            h = heap(int(fields[0]), ", ".join(fields[1:]), units=200)
        elif kind == "d":
            calls.append((int(fields[0]), int(fields[1])))
        elif kind == "a":
            unit, size, addr, block, held = map(int, fields)
            assert h.alloc(unit, size) == (addr if size else 0), line
            assert (h.S[BLOCK] if addr >= 0 else 0, h.S[HELD]) == (block, held), line
            assert h.calls() == calls, line
            calls, requests = [], requests + 1
        elif kind == "f":
            h.free(int(fields[0]))
            assert h.S[HELD] == int(fields[1]) and h.calls() == []
            requests += 1
    assert requests == 1920
