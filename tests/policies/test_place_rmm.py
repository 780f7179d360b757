"""Do the policies rmm_* answer as RMM's resources, and in the way their rules say?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from place_programs import Watched
from rmm_logs import answers, of_trace, policy_of

from gpusim.base.errors import PolicyError
from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, HELD
from gpusim.programs.recordings import import_trace

DATA = Path(__file__).parents[1] / "data" / "rmm"
CASES = {case["name"]: case for case in json.loads((DATA / "manifest.json").read_text())}
MIB = 1 << 20


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_the_library_answers_the_same(name: str) -> None:
    """Addresses, bytes held, what is refused; waits between streams and calls of the device."""
    case = CASES[name]
    trace = import_trace(DATA / f"{name}.csv")
    streams = trace.meta["streams"]
    major, minor = map(int, case["rmm"].split("."))
    spec, capacity = policy_of(case["args"], (major, minor), streams.index("0x1") if "0x1" in streams else -1)
    policy = registry.get("place", spec)
    lines, S = answers(policy, capacity, of_trace(trace))
    assert lines == (DATA / f"{name}.expect").read_text().splitlines()
    assert sum(" OOM " in line for line in lines) == case["oom"]
    counts = policy.module.statistics(S)
    assert (counts["cross_stream_waits"], counts["upstream_calls"]) == (case["stream_waits"], case["upstream_calls"])
    assert S[HELD] == case["final_pool_bytes"]


def resource(spec: str, capacity: int) -> Watched:
    return Watched(registry.get("place", spec), capacity, 40)


def counts(heap: Watched) -> dict[str, int]:
    found: dict[str, int] = heap.policy.module.statistics(heap.S)
    return found


def held(heap: Watched) -> int:
    return int(heap.S[HELD])


# --- pool ---


def test_a_pool_without_maximum_doubles() -> None:
    pool = resource("rmm_pool(initial=0)", MIB)
    sizes = []
    for unit in range(6):
        pool.alloc(unit, 1000)
        sizes.append(held(pool))
    # 1,024; as much again; 2,048 more, of which the fourth gets the rest; 4,096 more
    assert sizes == [1024, 2048, 4096, 4096, 8192, 8192]


def test_a_pool_with_a_maximum_goes_half_way_and_backs_off() -> None:
    pool = resource("rmm_pool(initial=0, maximum=65536)", MIB)
    assert [pool.alloc(0, 256), held(pool)] == [0, 32768]  # half of 65,536
    assert [pool.alloc(1, 40_000), held(pool)] == [-1, 32768]  # more than the 32,768 that are left
    assert [pool.alloc(1, 32_600), held(pool)] == [32768, 65536]  # more than half of what is left: all that it needs
    tight = resource("rmm_pool(initial=0, maximum=65536)", 20_000)
    assert [tight.alloc(0, 256), held(tight)] == [0, 16384]  # 32,768 is refused, half of it is not
    assert counts(tight)["upstream_calls"] == 2


def test_a_capped_pool_may_exceed_its_maximum_by_less_than_256_bytes() -> None:
    pool = resource("rmm_pool(initial=0, maximum=768)", MIB)
    assert [pool.alloc(0, 256), held(pool)] == [0, 384]
    assert [pool.alloc(1, 512), held(pool)] == [512, 896]  # 384 are left, which counts as 512
    assert pool.alloc(2, 1) == -1  # 128 bytes are free, none is left


def test_a_free_pool_cannot_serve_more_than_its_largest_range() -> None:
    pool = resource("rmm_pool(initial=0)", MIB)
    pool.alloc(0, 4096)
    pool.alloc(1, 4096)  # a range of its own, right behind the first
    pool.free(0)
    pool.free(1)
    assert pool.policy.largest(pool.S) == 4096
    assert [pool.alloc(2, 8192), held(pool)] == [8192, 16384]


def test_the_smallest_block_serves_and_the_lowest_among_equal_ones() -> None:
    pool = resource("rmm_pool(initial=10240, maximum=10240)", MIB)
    for unit in range(10):
        pool.alloc(unit, 1024)
    for unit in (7, 2, 3, 5):
        pool.free(unit)
    assert pool.alloc(20, 1024) == 5 * 1024  # not 2 and 3, which are one block; not 7, which is higher
    assert pool.alloc(21, 512) == 7 * 1024
    assert pool.alloc(22, 513) == 2 * 1024
    assert pool.alloc(23, 512) == 7 * 1024 + 512
    assert pool.alloc(24, 1024) == 2 * 1024 + 768


def test_what_is_left_of_a_stolen_block_stays_in_the_other_list() -> None:
    pool = resource("rmm_pool(initial=4096, maximum=4096)", MIB)
    assert pool.alloc(0, 1024, stream=1) == 0  # from the default stream's list, which waits
    assert counts(pool)["cross_stream_waits"] == 1
    assert pool.alloc(1, 1024, stream=1) == 1024
    assert counts(pool)["cross_stream_waits"] == 2  # the rest was still the other stream's
    pool.free(0)  # by the default stream: its list has [0, 1024) and [2048, 4096)
    assert pool.alloc(2, 512, stream=0) == 0
    assert counts(pool) == {
        "cross_stream_waits": 2, "event_records": 1, "synchronisations": 0, "upstream_calls": 1,
    }  # fmt: skip


def test_lists_merge_only_when_no_single_one_serves() -> None:
    pool = resource("rmm_pool(initial=4096, maximum=4096, reclaim=0)", MIB)
    for unit in range(4):
        pool.alloc(unit, 1024)
    for unit in range(4):
        pool.policy.free(pool.S, unit, unit)  # each by another stream: neighbours stay apart
        pool.live.pop(unit)
    assert pool.policy.largest(pool.S) == 1024
    assert pool.alloc(5, 2048, stream=2) == 0  # with list 0 there are two blocks of 1,024, with list 1 one of 3,072
    assert counts(pool)["cross_stream_waits"] == 2


def test_a_refused_request_has_merged_all_lists() -> None:
    pool = resource("rmm_pool(initial=2048, maximum=2048, reclaim=0)", MIB)
    pool.alloc(0, 1024)
    pool.alloc(1, 1024)
    pool.policy.free(pool.S, 0, 0)
    pool.policy.free(pool.S, 1, 1)
    pool.live.clear()
    assert pool.alloc(2, 4096, stream=2) == -1
    assert pool.policy.largest(pool.S) == 2048
    assert pool.alloc(2, 2048, stream=2) == 0
    assert counts(pool)["cross_stream_waits"] == 2


def test_the_legacy_stream_shares_the_list_of_the_default_stream() -> None:
    for legacy, waits in ((3, 0), (-1, 1)):
        pool = resource(f"rmm_pool(initial=1024, legacy={legacy})", MIB)
        pool.alloc(0, 1024, stream=3)
        assert counts(pool)["cross_stream_waits"] == waits


def test_a_capped_pool_reclaims_whole_ranges_from_26_10_on() -> None:
    for reclaim, found in ((0, -1), (1, 0)):
        pool = resource(f"rmm_pool(initial=0, maximum=8192, reclaim={reclaim})", MIB)
        assert [pool.alloc(0, 1024), held(pool)] == [0, 4096]
        assert [pool.alloc(1, 4096), held(pool)] == [4096, 8192]
        pool.free(0)
        assert pool.alloc(2, 4352) == -1  # the one free range is not enough; it is given back all the same
        assert held(pool) == (8192 if not reclaim else 4096)
        assert pool.alloc(2, 4096) == 0
        pool.free(1)
        pool.free(2)
        assert pool.alloc(3, 8192) == found
        assert held(pool) == 8192


def test_an_idle_pool_is_destroyed_by_release_and_a_used_one_keeps_all() -> None:
    pool = resource("rmm_pool(initial=0.25)", MIB)
    assert [pool.alloc(0, 1), held(pool)] == [0, MIB // 4]
    assert pool.release() == 0
    pool.free(0)
    assert pool.release() == MIB // 4
    assert [pool.alloc(0, 1), held(pool)] == [0, MIB // 4]


def refused(spec: str, *words: str) -> None:
    with pytest.raises(PolicyError) as error:
        resource(spec, 64 * MIB)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_sizes_that_rmm_refuses_are_refused_in_one_sentence() -> None:
    refused("rmm_pool(initial=1000)", "'initial'", "1000 bytes", "multiple of 256")
    refused("rmm_pool(initial=-1)", "'initial'", "negative")
    refused("rmm_pool(maximum=1048576)", "initial size of 33554432", "maximum of 1048576")


def test_a_pool_whose_initial_size_the_device_refuses_gives_nothing() -> None:
    pool = resource("rmm_pool(initial=2097152)", MIB)
    assert [pool.alloc(0, 1), pool.alloc(1, 0), held(pool)] == [-1, 0, 0]


# --- arena ---


def sync(heap: Watched) -> int:
    return counts(heap)["synchronisations"]


def test_an_arena_cuts_superblocks_of_one_mebibyte_for_small_requests() -> None:
    arena = resource(f"rmm_arena(size={8 * MIB})", 16 * MIB)
    assert [arena.alloc(0, 1000), held(arena)] == [0, 8 * MIB]
    assert arena.alloc(1, 1000, stream=1) == MIB  # another stream, another superblock
    assert arena.alloc(2, MIB) == 2 * MIB  # 1 MiB is small; the stream's superblock has less left
    assert arena.alloc(3, 1000) == 1024
    assert arena.alloc(4, MIB + 1) == 3 * MIB  # large: from the global set
    assert arena.alloc(5, 4 * MIB) == -1
    assert sync(arena) == 1  # a refused request defragments


def test_a_superblock_is_cut_only_when_a_mebibyte_remains() -> None:
    arena = resource(f"rmm_arena(size={2 * MIB - 256})", 16 * MIB)
    assert arena.alloc(0, 1000) == 0  # takes the whole superblock
    assert arena.alloc(1, MIB, stream=1) == 1024  # which comes back when another stream needs it, in use or not
    assert sync(arena) == 1


def test_an_empty_superblock_stays_with_its_stream_until_memory_runs_out() -> None:
    arena = resource(f"rmm_arena(size={2 * MIB})", 16 * MIB)
    assert arena.alloc(0, 1000) == 0
    arena.free(0)
    assert sync(arena) == 0
    assert arena.alloc(1, 1000, stream=1) == MIB
    assert arena.alloc(2, 1000, stream=2) == 0  # after defragmentation
    assert sync(arena) == 1
    arena.free(1)  # the stream's superblock is global now: the host waits for the stream
    assert sync(arena) == 2


def test_large_blocks_are_waited_for_and_their_superblocks_merge() -> None:
    arena = resource(f"rmm_arena(size={8 * MIB})", 16 * MIB)
    assert [arena.alloc(unit, 2 * MIB) for unit in range(4)] == [0, 2 * MIB, 4 * MIB, 6 * MIB]
    for unit in (0, 2, 1):
        arena.free(unit)
    assert sync(arena) == 3
    assert arena.policy.largest(arena.S) == 6 * MIB
    assert arena.alloc(5, 6 * MIB) == 0


def test_the_null_and_the_legacy_stream_have_arenas_of_their_own() -> None:
    arena = resource(f"rmm_arena(size={4 * MIB})", 16 * MIB)
    assert [arena.alloc(0, 256, stream=0), arena.alloc(1, 256, stream=1)] == [0, MIB]


def test_size_classes_have_four_steps_a_doubling_and_one_oddity() -> None:
    kib = 1 << 10
    for size, block in (
        (1, 256), (2048, 2048), (2049, 2560), (5 * kib, 5 * kib), (5 * kib + 1, 6 * kib), (48 * kib + 1, 54 * kib),
        (54 * kib + 1, 64 * kib), (56 * kib, 64 * kib), (1025 * kib, 1280 * kib),
    ):  # fmt: skip
        arena = resource("rmm_arena(size=1, size_classes=1)", 16 * MIB)
        arena.alloc(0, size)
        assert arena.live[0] == (0, block)


def test_an_arena_below_one_mebibyte_is_refused() -> None:
    refused("rmm_arena(size=1000000)", "'size'", "1000000 bytes", "1 MiB")
    assert resource("rmm_arena", MIB).alloc(0, 1) == -1  # half of the memory is too little


# --- fixed size, binning ---


def test_blocks_of_one_size_are_served_first_in_first_out() -> None:
    fixed = resource("rmm_fixed_size(block_size=1000, blocks=3)", MIB)
    assert [fixed.alloc(unit, 1) for unit in range(2)] == [0, 1024]
    fixed.free(1)
    fixed.free(0)
    assert [fixed.alloc(unit, 1024) for unit in range(2, 5)] == [2048, 1024, 0]
    assert held(fixed) == 3072
    assert fixed.alloc(5, 1) == 3072  # the next chunk
    assert fixed.alloc(6, 1025) == -1
    assert fixed.alloc(7, 1, stream=1) == 4096
    assert counts(fixed) == {
        "cross_stream_waits": 1, "event_records": 2, "synchronisations": 0, "upstream_calls": 2,
    }  # fmt: skip


def test_bins_take_their_chunks_from_the_pool() -> None:
    bins = resource("rmm_binning(min_size_exponent=8, max_size_exponent=9)", MIB)
    assert bins.alloc(0, 256) == 0
    assert held(bins) == 128 * 256 + 128 * 512
    assert bins.alloc(1, 257) == 128 * 256
    assert bins.alloc(2, 513) == 128 * 768  # the pool's, which doubles
    assert held(bins) == 2 * 128 * 768
    assert bins.S[BLOCK] == 768
    usual = resource("rmm_binning", 2048 * MIB)
    usual.alloc(0, 1)
    assert held(usual) == 992 * MIB


def test_bins_and_chunks_that_cannot_be_are_refused() -> None:
    refused("rmm_fixed_size(blocks=0)", "0 blocks", "at least 1")
    refused("rmm_binning(min_size_exponent=9, max_size_exponent=8)", "2**9 to 2**8")
    assert resource("rmm_fixed_size", MIB).alloc(0, 1) == -1  # no room for the first chunk
    assert [resource("rmm_binning", MIB).alloc(0, 1), resource("rmm_binning", MIB).release()] == [-1, 0]
