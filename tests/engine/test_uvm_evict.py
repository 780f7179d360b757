"""Eviction policies of unified memory: small cases worked by hand, and what holds for all of them over random programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, one_thread, run

from gpusim.engine.pages.driver_tables import EVICTION, DriverState
from gpusim.engine.pages.events import pages
from gpusim.engine.pages.memory import resident_bytes
from gpusim.engine.pages.prefetchers import PREFETCHERS
from gpusim.engine.pages.victims import EVICT, POLICIES, foresees
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, Prefetch
from gpusim.results.page_log import COPY, FILL, GONE, KEEP

PIECES = [name for name, policy in POLICIES.items() if hasattr(policy, "PIECES")]


def misses(order: list[int], evict: str, **more: Any) -> tuple[int, int]:
    """Faults and evictions of one thread that touches the first pages of blocks; four chunks, whole blocks come."""
    c = run([HostTouch("a"), blocks(*order)], parameters=WHOLE, evict=evict, **more).steps[-1].counts[1]
    return int(c["faults"]), int(c["evictions"])


@pytest.mark.hand_worked
@pytest.mark.parametrize(
    ("evict", "order", "expected"),
    [
        # 0 was served first and leaves for 4, though it was used last: then 0 misses.
        ("driver", [0, 1, 2, 3, 0, 4, 0], (6, 2)),
        ("clean_drop", [0, 1, 2, 3, 0, 4, 0], (6, 2)),
        # 1 has not been used for longest.
        ("lru", [0, 1, 2, 3, 0, 4, 0], (5, 1)),
        ("lru", [0, 1, 2, 3, 0, 4, 1], (6, 2)),
        # 2 and 3 were used once, 2 came first; then 4, used once since it came, is the newest of 3 and 4: 3 leaves for 2.
        ("lfu", [0, 1, 2, 3, 0, 1, 4, 2, 4], (6, 2)),
        ("lfu", [0, 1, 2, 3, 0, 1, 4, 2, 3], (7, 3)),
        # Belady: 3 is never used again, then 2 is not.
        ("belady", [0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 4], (6, 2)),
        ("driver", [0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 4], (10, 6)),
        # The cycle over one block too many: the one that was used last leaves, so that one in four misses.
        ("belady", [0, 1, 2, 3, 4] * 4, (8, 4)),
        ("driver", [0, 1, 2, 3, 4] * 4, (20, 16)),
    ],
)
def test_by_hand(evict: str, order: list[int], expected: tuple[int, int]) -> None:
    assert misses(order, evict) == expected


@pytest.mark.parametrize(
    ("evict", "evictions"),
    [
        # The tree brings 1, 1, 2, 4, 8 big pages of block 4; as many leave, the oldest first, one at a time ...
        ("big_page", [1, 1, 2, 4, 8]),
        # ... or by the same tree: 0 alone (half of a node is no majority), 1 alone, 2 with 3, 4 with 5 to 7, 8 with 9 to 15.
        ("tree", [1, 1, 1, 1, 1]),
    ],
)
def test_big_pages_leave(evict: str, evictions: list[int]) -> None:
    faults = [one_thread(2048 + 16 * k) for k in (0, 1, 2, 4, 8)]
    steps = run([HostTouch("a"), Prefetch("a", count=4 * BLOCK), *faults], evict=evict, log=10_000)
    counts = [step.counts[1] for step in steps.steps[2:]]
    assert [int(c["left"]) for c in counts] == [16, 16, 32, 64, 128]
    assert [int(c["came"].sum()) for c in counts] == [16, 16, 32, 64, 128]
    assert [int(c["evictions"]) for c in counts] == evictions
    gone = steps.log[(steps.log["kind"] == GONE) & (steps.log["cause"] == EVICTION)]
    assert [np.flatnonzero(p).tolist() for p in pages(gone)[-1:]] == [[*range(128 if evict == "tree" else 240, 256)]]
    assert set(gone["block"]) == {0}


@pytest.mark.parametrize("evict", EVICT)
def test_pages_that_are_nowhere_are_zeroed_once(evict: str) -> None:
    """A kernel writes to six blocks twice, the GPU holds four: what left is in host memory and comes as it is."""
    step = run([blocks(*range(6), *range(6), write=True)], [Array("a", 6 * BLOCK)], parameters=WHOLE, evict=evict).steps[0]
    assert step.counts[1]["left"] > 0 and step.counts[1]["zeroed"] == 6 * 512


def test_a_big_page_is_refreshed_by_a_service_and_a_freed_one_is_room() -> None:
    # Block 0 is prefetched once more, so that block 1 leaves; the CPU takes all of block 2, which is room for 32 big pages.
    program = [HostTouch("a"), Prefetch("a", count=4 * BLOCK), Prefetch("a", count=BLOCK), one_thread(2048)]
    result = run(program, evict="big_page", log=10_000)
    assert result.log[result.log["kind"] == GONE]["block"][-2] == 1  # the last is the CPU, which loses block 4's page
    back = run([*program[:2], HostTouch("a", first=2 * BLOCK, count=BLOCK), blocks(4)], parameters=WHOLE, evict="big_page")
    assert back.counts[1]["evictions"] == 0


def test_random_is_any_chunk() -> None:
    order = [0, 1, 2, 3, 4] * 40
    faults, evictions = misses(order, "random")
    assert faults == evictions + 4
    assert 80 < faults < 150  # FIFO and LRU miss 200 times, the best way 52 times


def program(seed: int, evict: str, prefetcher: str, **parameters: int) -> Any:
    """Three blocks and four shared root chunks' worth of small allocations, kernels of many warps, host accesses between."""
    rng = np.random.default_rng(seed)
    arrays = [Array("a", 5 * BLOCK), Array("b", 3 * BLOCK - 70_000, at=70_000), Array("c", 65536 + 4096, at=8192)]
    steps: list[Any] = [HostTouch("a"), HostTouch("b", count=2 * BLOCK)]
    for k in range(6):
        array = arrays[int(rng.choice([0, 0, 1, 2]))]
        n = array.bytes // 4096
        threads = 64 * int(rng.integers(1, 5))
        index = rng.integers(0, n, threads) if rng.random() < 0.5 else (rng.integers(0, n) + np.arange(threads) * 3) % n
        accesses = [Access(array.name, bool(w), tx=1, bx=64, index=index * 1024) for w in rng.integers(0, 2, 2)]
        steps.append(Kernel(f"k{k % 3}", accesses, (threads // 64, 1), (64, 1), ns=1e5))
        if rng.random() < 0.3:
            steps.append(HostTouch("a", write=bool(rng.integers(2)), first=int(rng.integers(4)) * BLOCK, count=100_000))
    steps += steps[2:]
    machine = replace(TINY, sms=2, memory=int(rng.integers(2, 5)) * BLOCK)
    return run(steps, arrays, machine, parameters=parameters, evict=evict, prefetcher=prefetcher, log=100_000)


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("prefetcher", PREFETCHERS)
@pytest.mark.parametrize("evict", EVICT)
def test_pages_are_where_the_counts_say(evict: str, prefetcher: str) -> None:
    """Replays the log: a page comes from where it is, leaves where it was, and no more is on the GPU than it holds."""
    result = program(len(PREFETCHERS) * EVICT.index(evict) + PREFETCHERS.index(prefetcher), evict, prefetcher)
    here: dict[int, set[tuple[int, int]]] = {0: set(), 1: set()}
    came = left = 0
    for r, mask in zip(result.log, pages(result.log), strict=True):
        which = {(int(r["block"]), int(k)) for k in np.flatnonzero(mask)}
        p = int(r["processor"])
        if r["kind"] == COPY:
            assert which <= here[int(r["source"])] and not which & here[p]
            came += len(which) * (p == 1)
            left += len(which) * (p == 0 and r["cause"] == EVICTION)
        if r["kind"] in (COPY, FILL, KEEP):
            here[p] |= which
        if r["kind"] == GONE:
            assert which <= here[p]
            here[p] -= which
        grain = 16 if evict in PIECES else 512
        at = {(b, k // grain) for b, k in here[1] if b < 5} if p == 1 else set()
        assert len(at) * grain <= result.platform.memory // 4096
    assert result.events == len(result.log)
    counts = result.counts[1]
    assert (came, left) == (int(counts["came"].sum()), int(counts["left"]))
    assert int(counts["wasted"]) <= came


@pytest.mark.formulas
@pytest.mark.parametrize("seed", range(12))
def test_no_policy_misses_less_than_belady(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.choice(8, 60, p=rng.dirichlet(np.full(8, 0.7))).tolist()
    machine = replace(TINY, memory=int(rng.integers(2, 6)) * BLOCK)
    counted = {}
    for evict in EVICT:
        if evict not in PIECES:
            more = {"platform": machine, "prefetcher": "none"}
            counted[evict] = run([HostTouch("a"), blocks(*order)], evict=evict, **more).steps[-1].counts[1]["evictions"]
    assert min(counted.values()) == counted["belady"]
    assert counted["clean_drop"] == counted["driver"]


def test_oracles_are_told_from_policies() -> None:
    assert [name for name in EVICT if foresees(name)] == ["belady"]


@pytest.mark.parametrize("evict", PIECES)
def test_stores_to_what_is_mostly_read_stay_within_memory(evict: str) -> None:
    rng = np.random.default_rng(0)
    most = []

    def watch(M: DriverState, steps: int) -> None:
        most.append(resident_bytes(M, 1) // 4096)

    kernels = [one_thread(*rng.integers(0, 8 * 512, 64).tolist(), write=k % 2 > 0) for k in range(6)]
    program = [HostTouch("a"), Advise("a", "read_mostly"), *kernels]
    run(program, platform=replace(TINY, memory=BLOCK), evict=evict, watch=watch)
    assert 256 < max(most) <= 512
