"""Which address does an allocator choose?  Hand-worked heaps, and random programs against slow, clear references."""

from __future__ import annotations

import math
from typing import Any

import pytest
from place_programs import Watched, program
from place_reference import Buddies, Classes, Intervals, Slabs

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, HELD, ROUNDED

pytestmark = pytest.mark.hand_worked

K = 512
MIB = 1 << 20
FITS = ["first_fit", "next_fit", "best_fit", "worst_fit"]


def heap(spec: str, capacity: int, units: int = 40) -> Watched:
    return Watched(registry.get("place", spec), capacity, units)


# --- random programs --------------------------------------------------------------------------------------------------


def same_as_reference(spec: str, reference: Any, capacity: int, seed: int, scale: int = 1) -> int:
    """Runs one program on both; returns how many requests were refused."""
    mine, refused = heap(spec, capacity, 150), 0
    for unit, size, _ in program(seed, 500, 150, scale):
        if size < 0:
            mine.free(unit)
            reference.free(unit)
            continue
        wanted = reference.alloc(unit, size)
        assert mine.alloc(unit, size) == wanted
        refused += wanted < 0
        if wanted >= 0 and size > 0:
            assert mine.S[BLOCK] == reference.live[unit][1]
        assert mine.S[ROUNDED] == sum(s for _, s in reference.live.values())
    return refused


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize(("align", "min_rest"), [(512, 512), (16, 16), (512, 4096), (64, 700)])
def test_fits_choose_as_the_reference(name: str, align: int, min_rest: int) -> None:
    refused = 0
    for seed, capacity in enumerate([1 << 20, 300_000, 1 << 18, 150_001]):
        reference = Intervals(name, capacity, align, min_rest)
        refused += same_as_reference(f"{name}(align={align}, min_rest={min_rest})", reference, capacity, seed)
    assert refused > 0


@pytest.mark.agreement
@pytest.mark.parametrize("seed", range(8))
def test_buddy_tlsf_and_slabs_choose_as_the_reference(seed: int) -> None:
    capacity = [1 << 20, 300_000, 1 << 18, 150_001][seed % 4]
    same_as_reference("buddy", Buddies(capacity), capacity, seed)
    same_as_reference("tlsf", Classes(capacity), capacity, seed)
    same_as_reference("slab", Slabs(64 * capacity), 64 * capacity, seed, 64)
    large = "slab(steps=4, page=8388608, min_block=4096)"
    same_as_reference(large, Slabs(512 * capacity, 4, 8 << 20, 4096), 512 * capacity, seed, 256)


# --- the four fits ------------------------------------------------------------------------------------------------------


def holes(spec: str) -> Watched:
    """Holes, in units of 512 B: 4 at 0, 2 at 5, 6 at 8, and the untouched end, 5 at 15; the last allocation ended at 15."""
    h = heap(spec, 20 * K)
    for unit, size in enumerate([4, 1, 2, 1, 6, 1]):
        h.alloc(unit, size * K)
    for unit in (0, 2, 4):
        h.free(unit)
    return h


@pytest.mark.parametrize(
    ("name", "size", "at"),
    [
        ("first_fit", 2, 0), ("best_fit", 2, 5), ("worst_fit", 2, 8), ("next_fit", 2, 15),
        ("first_fit", 5, 8), ("best_fit", 5, 15), ("worst_fit", 5, 8), ("next_fit", 5, 15),
        ("first_fit", 6, 8), ("best_fit", 6, 8), ("worst_fit", 6, 8), ("next_fit", 6, 8),  # next fit wraps round
    ],
)  # fmt: skip
def test_four_fits_among_the_same_holes(name: str, size: int, at: int) -> None:
    assert holes(name).alloc(9, size * K) == at * K


def test_equal_holes_lowest_address_first() -> None:
    for name in ("best_fit", "worst_fit", "first_fit"):
        h = heap(name, 7 * K)
        for unit in range(7):
            h.alloc(unit, K)
        for unit in (5, 3, 1):
            h.free(unit)
        assert [h.alloc(unit, K) for unit in (1, 3, 5)] == [1 * K, 3 * K, 5 * K], name


def test_neighbours_merge_on_both_sides() -> None:
    for name in FITS:
        h = heap(name, 4 * K)
        for unit in range(4):
            h.alloc(unit, K)
        for unit in (0, 2, 1):
            h.free(unit)
        assert h.alloc(5, 3 * K) == 0, name


def test_next_fit_goes_on_where_it_was() -> None:
    h = heap("next_fit", 5 * K)
    for unit in range(5):
        h.alloc(unit, K)
    for unit in (0, 1, 3):
        h.free(unit)
    assert h.alloc(5, K) == 0  # wrapped round
    assert h.alloc(6, K) == K  # behind it, though 3 K is as good
    h.free(5)
    assert h.alloc(7, K) == 3 * K


def test_next_fit_returns_to_the_start_of_a_hole_that_swallowed_its_place() -> None:
    h = heap("next_fit", 8 * K)
    for unit in range(3):
        h.alloc(unit, 2 * K)
    h.free(1)
    h.free(2)  # the search stood at 6 K, now inside the hole from 2 K
    assert h.alloc(4, K) == 2 * K


def test_small_remainders_stay_with_the_block() -> None:
    h = heap("best_fit(min_rest=1024)", 8 * K)
    h.alloc(0, 3 * K)
    h.alloc(1, K)
    h.free(0)
    assert h.alloc(2, 2 * K + 1) == 0 and h.S[BLOCK] == 3 * K
    h.free(2)
    assert h.alloc(2, 2 * K) == 0 and h.S[BLOCK] == 3 * K  # one unit would remain, two must
    h.free(2)
    assert h.alloc(2, K) == 0 and h.S[BLOCK] == K


@pytest.mark.parametrize("name", [*FITS, "buddy", "tlsf"])
def test_what_is_held_grows_in_pages_and_shrinks_on_release(name: str) -> None:
    h = heap(name, 5 * MIB)
    h.alloc(0, 1 * MIB)
    assert h.calls() == [(0, 2 * MIB)] and h.S[HELD] == 2 * MIB
    h.alloc(1, 1 * MIB)
    assert h.calls() == []
    h.alloc(2, 1 * MIB)
    assert h.calls() == [(2 * MIB, 2 * MIB)]
    h.free(0)
    h.alloc(3, 2 * MIB) if name != "buddy" else h.alloc(3, MIB // 2)
    h.free(3)
    h.free(2)
    h.release()
    assert h.S[HELD] == 2 * MIB  # the block at 1 MiB is still in use
    h.free(1)
    h.release()
    assert h.S[HELD] == 0 and h.calls() == [(0, -2 * MIB)]


def test_the_last_page_is_as_large_as_the_device() -> None:
    h = heap("first_fit", 3 * MIB)
    h.alloc(0, 3 * MIB)
    assert h.calls() == [(0, 3 * MIB)]


# --- buddy --------------------------------------------------------------------------------------------------------------


def test_buddy_by_hand() -> None:
    h = heap("buddy", 24 * K)  # tiled by 16 K and 8 K
    assert h.alloc(0, 1) == 0 and h.S[BLOCK] == K
    assert h.alloc(1, 1000) == 2 * K and h.S[BLOCK] == 2 * K
    assert h.alloc(2, K) == K          # the other half of unit 0
    assert h.alloc(3, 5 * K) == 8 * K  # rounds up to 8
    assert h.alloc(4, 16 * K) == -1    # 16 are free, but not in one power of two
    assert h.alloc(5, 8 * K) == 16 * K
    h.free(0)
    h.free(1)
    assert h.alloc(6, 2 * K) == 2 * K  # 0 and 1 may not merge: unit 2 is the buddy of 0
    h.free(6)
    h.free(2)
    assert h.alloc(7, 8 * K) == 0
    h.free(3)
    h.free(7)
    assert h.alloc(8, 16 * K) == 0


def test_buddy_wastes_a_quarter_of_uniform_sizes() -> None:
    """Mean of n / 2^ceil(log2 n) over a doubling is 3/4."""
    h = heap("buddy", 1 << 30, 256)
    requested = sum(size for size in range(257 * K, 513 * K, K))
    for unit, size in enumerate(range(257 * K, 513 * K, K)):
        h.alloc(unit, size)
    assert 1 - requested / int(h.S[ROUNDED]) == pytest.approx(0.25, abs=0.002)


def test_buddy_wastes_28_per_cent_of_log_uniform_sizes() -> None:
    """The mean of n over a doubling up to 2 A is A / ln 2, and 1 - 1 / (2 ln 2) = 0.2787."""
    h = heap("buddy", 1 << 30, 400)
    sizes = [int(256 * K * 2 ** ((i + 0.5) / 400)) for i in range(400)]
    for unit, size in enumerate(sizes):
        h.alloc(unit, size)
    assert 1 - sum(sizes) / int(h.S[ROUNDED]) == pytest.approx(1 - 1 / (2 * math.log(2)), abs=0.0005)


def test_a_buddy_does_not_merge_with_its_other_neighbour() -> None:
    """1 K and 2 K are free side by side, but 1 xor 1 is 0 and 2 xor 1 is 3."""
    h = heap("buddy", 8 * K)
    for unit in range(4):
        assert h.alloc(unit, K) == unit * K
    h.free(1)
    h.free(2)
    assert h.alloc(4, 2 * K) == 4 * K
    h.free(3)
    assert h.alloc(5, 2 * K) == 2 * K
    assert h.alloc(6, K) == 1 * K  # the lowest address, and not a half of 6 K


# --- TLSF -----------------------------------------------------------------------------------------------------------------


def test_tlsf_takes_the_latest_freed_of_a_class() -> None:
    h = heap("tlsf", 6 * K)
    for unit in range(6):
        h.alloc(unit, K)
    for unit in (0, 4, 2):
        h.free(unit)
    assert [h.alloc(unit, K) for unit in (0, 2, 4)] == [2 * K, 4 * K, 0]


def test_tlsf_does_not_see_a_block_of_the_requests_own_class() -> None:
    """Between 32 and 64 KiB a class is 1 KiB wide: 65 * 512 B lies inside one."""
    h = heap("tlsf", 66 * K)
    h.alloc(0, 65 * K)
    h.alloc(1, K)
    h.free(0)
    assert h.alloc(2, 65 * K) == -1
    assert h.policy.largest(h.S) == 64 * K
    assert h.alloc(2, 64 * K) == 0


def test_tlsf_takes_the_head_of_a_class_though_another_fits_better() -> None:
    """64 and 65 times 512 bytes are of one class; the latest freed is the larger, and its rest is split off."""
    h = heap("tlsf", 200 * K)
    for unit, size in enumerate([64, 1, 65, 1]):
        h.alloc(unit, size * K)
    h.free(0)
    h.free(2)
    assert h.alloc(4, 64 * K) == 65 * K and h.S[BLOCK] == 64 * K
    assert h.alloc(5, K) == 129 * K  # the rest
    assert h.alloc(6, 64 * K) == 0


def test_tlsf_rounds_the_search_up_by_at_most_a_32nd() -> None:
    """A class between 2^f and 2^(f+1) is 2^(f-5) wide: a block is seen from the next multiple of that on."""
    for size in (33, 63, 64, 65, 66, 100, 127, 128, 129, 1000, 5000):
        width = 2 ** max(0, size.bit_length() - 1 + 9 - 5) // K  # in units of 512 B; classes narrower than one are exact
        seen = -(-size // max(1, width)) * max(1, width)
        for block in (seen - 1, seen):
            if block >= size:
                h = heap("tlsf", (block + 1) * K)
                h.alloc(0, block * K)
                h.alloc(1, K)
                h.free(0)
                assert (h.alloc(2, size * K) == 0) == (block == seen), (size, block)


# --- size classes -----------------------------------------------------------------------------------------------------------


def test_size_classes_by_hand() -> None:
    h = heap("slab", 64 * MIB)
    assert h.alloc(0, 9000) == 0 and h.S[BLOCK] == 9216        # 8192 + 1024: eight steps a doubling
    assert h.alloc(1, 9216) == 9216
    assert h.alloc(2, 700) == 2 * MIB and h.S[BLOCK] == 1024   # another class, another slab
    assert h.alloc(3, 3 * MIB) == 4 * MIB and h.S[BLOCK] == 4 * MIB  # whole pages
    assert h.alloc(4, 1 * MIB) == 8 * MIB and h.S[HELD] == 16 * MIB  # a slab of eight
    h.free(0)
    assert h.alloc(5, 8193) == 0       # the latest freed block of the slab
    h.free(1)
    h.free(5)
    assert h.alloc(6, 512) == 0        # the empty slab's page serves another class


def test_a_slab_of_the_smallest_class_has_4096_blocks() -> None:
    h = heap("slab", 4 * MIB, 4100)
    assert [int(h.policy.alloc(h.S, unit, 1, 0)) for unit in range(4097)] == [*range(0, 2 * MIB, K), 2 * MIB]
    for unit in (4095, 63, 64):
        h.policy.free(h.S, unit, 0)
    assert [int(h.policy.alloc(h.S, unit, 1, 0)) for unit in (64, 63, 4095)] == [64 * K, 63 * K, 4095 * K]  # latest freed first


def test_the_words_of_an_empty_slab_are_used_again() -> None:
    h = heap("slab", 64 * MIB, 2)
    for size, addr in [(1000, 0), (70_000, 0), (1 * MIB, 2 * MIB)] * 5:  # more slabs one after another than there are units
        assert h.alloc(0, size) == addr
        h.free(0)


@pytest.mark.slow
def test_only_whole_empty_pages_are_given_back() -> None:
    """A page with one block of 512 bytes, three blocks of two pages each; the middle one and its neighbour are freed."""
    h = heap("slab", 64 * MIB)
    for unit, size in enumerate([K, K, 4 * MIB, 4 * MIB, 4 * MIB]):
        h.alloc(unit, size)
    for unit in (0, 3):
        h.free(unit)
    assert h.release() == 4 * MIB and h.calls() == [(6 * MIB, -4 * MIB)]
    h.free(1)
    h.free(2)
    assert h.release() == 6 * MIB and h.S[HELD] == 4 * MIB


def test_a_full_device_takes_empty_pages_back() -> None:
    """12 MiB, of which 4 and 4 are held but empty, in two segments."""
    h = heap("slab", 12 * MIB)
    for unit in range(3):
        h.alloc(unit, 4 * MIB)
    h.free(0)
    h.free(2)
    assert h.alloc(3, 8 * MIB) == 8 * MIB
    assert h.calls() == [(0, -4 * MIB), (8 * MIB, -4 * MIB), (8 * MIB, 8 * MIB)]


# --- no allocator ---------------------------------------------------------------------------------------------------------


def test_device_calls_one_by_one() -> None:
    h = heap("device", 10 * K)
    h.alloc(0, 700)
    assert h.calls() == [(0, 2 * K)]
    h.alloc(1, K)
    assert h.calls() == [(2 * K, K)]
    h.free(0)
    assert h.calls() == [(0, -2 * K)] and h.S[HELD] == K
    assert h.alloc(2, K) == 0
