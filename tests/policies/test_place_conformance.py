"""Does every place policy keep the contract, whatever the program?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from place_programs import Watched, program

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, CAPACITY, HELD, ROUNDED

pytestmark = pytest.mark.conformance

POLICIES = [e.name for e in registry.entries("place") if e.builtin]
SEEDS = range(6)
SCALE = {"slab": 64} | dict.fromkeys(("pytorch", "bfc", "gmlake", "cuda_async", "rmm_arena"), 256)  # deal in MiB
# Over virtual memory: it bounds the bytes held, not the addresses.
BY_BYTES = ("pytorch", "bfc", "gmlake", "cuda_async", "slab")
ALIGN = dict.fromkeys(("bfc", "rmm_pool", "rmm_arena", "rmm_fixed_size", "rmm_binning"), 256)  # others: 512
SPEC = {
    "gmlake": "gmlake(frag_limit=4194304)",  # by default it stitches from 512 MiB on
    "cuda_async": "cuda_async(page=2097152)",
    "rmm_pool": "rmm_pool(initial=0)",  # by default these take half of the memory or a gigabyte at once
    "rmm_arena": "rmm_arena(size=1)",
    "rmm_fixed_size": "rmm_fixed_size(block_size=65536, blocks=1)",
    "rmm_binning": "rmm_binning(min_size_exponent=8, max_size_exponent=8)",
}


def get(name: str) -> Any:
    return registry.get("place", SPEC.get(name, name))


def watched(name: str, seed: int, units: int = 120) -> Watched:
    capacity = SCALE.get(name, 1) * [1 << 20, 300_000, 1 << 18][seed % 3]
    return Watched(get(name), capacity, units)


def ops(name: str, seed: int, streams: int = 1) -> list[tuple[int, int, int]]:
    return program(seed, 400, 120, SCALE.get(name, 1), streams)


def test_the_eight_allocators_of_the_literature_are_there() -> None:
    assert set(POLICIES) >= {
        "first_fit", "next_fit", "best_fit", "worst_fit", "buddy", "tlsf", "slab", "pytorch", "cuda_malloc",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_random_programs(name: str) -> None:
    """No overlap, all held, sums right, nothing written outside the table (`Watched`); addresses aligned and below capacity."""
    refused = 0
    for seed in SEEDS:
        heap = watched(name, seed)
        for addr, block in heap.run(ops(name, seed, streams=3)):
            assert addr % ALIGN.get(name, 512) == 0 or addr == -1
            assert addr + block <= heap.S[CAPACITY] or name in BY_BYTES
        refused += heap.refused
    assert refused > 0  # the programs reach the limit


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_once_all_is_freed_and_released_it_is_as_new(name: str) -> None:
    for seed in SEEDS:
        heap = watched(name, seed)
        first = heap.run(ops(name, seed))
        for unit in sorted(heap.live):
            heap.free(unit)
        assert heap.S[ROUNDED] == 0
        heap.release()
        assert heap.S[HELD] == 0
        assert heap.policy.largest(heap.S) == 0
        assert heap.run(ops(name, seed)) == first


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_the_largest_request_fits(name: str) -> None:
    for seed in SEEDS:
        heap = watched(name, seed)
        heap.run(ops(name, seed))
        unit = next(u for u in range(120) if u not in heap.live)
        room = int(heap.policy.largest(heap.S))
        assert 0 <= room <= heap.S[HELD] - heap.S[ROUNDED]
        if room > 0:
            assert heap.alloc(unit, room) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_as_many_live_blocks_as_the_table_was_made_for(name: str) -> None:
    units = 300
    heap = Watched(get(name), 1 << 40, units)
    for round_ in range(3):
        for unit in range(units):
            assert heap.alloc(unit, 512 * (1 + (7 * unit + round_) % 13) * SCALE.get(name, 1)) >= 0
        for unit in [*range(0, units, 2), *range(1, units, 2)]:  # every second one first: no two holes touch
            heap.free(unit)


@pytest.mark.parametrize("name", POLICIES)
def test_requests_that_take_nothing(name: str) -> None:
    heap = watched(name, 0)
    heap.alloc(0, 5000)
    before = heap.S.copy()
    assert heap.alloc(1, 0) == 0 and heap.S[BLOCK] == 0
    heap.free(1)
    heap.free(7)  # never allocated
    for size in (2**62, 2**63 - 1, int(heap.S[CAPACITY]) + 1):
        assert heap.alloc(2, size) == -1
    heap.free(2)
    assert heap.S[ROUNDED] == before[ROUNDED]
    heap.free(0)
    heap.free(0)  # twice
    assert heap.S[ROUNDED] == 0


@pytest.mark.parametrize("name", POLICIES)
def test_a_larger_capacity_is_used_and_a_smaller_one_kept(name: str) -> None:
    scale = SCALE.get(name, 1)
    heap = Watched(get(name), 96_000 * scale, 60)
    first = heap.alloc(0, 60_000 * scale)
    assert first >= 0
    assert heap.alloc(1, 60_000 * scale) == -1
    heap.S[CAPACITY] = 160_000 * scale if name != "buddy" else 131_072
    assert (heap.alloc(1, 60_000 * scale) >= 0) == (name != "rmm_arena")  # which takes all it will ever have at once
    heap.free(0)
    heap.free(1)
    heap.release()
    heap.S[CAPACITY] = 96_000 * scale
    assert heap.alloc(0, 60_000 * scale) == first
    assert heap.alloc(1, 60_000 * scale) == -1


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_place_conformance import POLICIES, ops, watched
for name in POLICIES:
    heap = watched(name, 1)
    print(name, heap.run(ops(name, 1, 2)[:150]), heap.policy.largest(heap.S), heap.release(), heap.S.tolist()[:40])
"""


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_agree() -> None:
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    tests = str(Path(__file__).parents[1] / "support")
    done = subprocess.run([sys.executable, "-c", SCRIPT, tests], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = []
    for name in POLICIES:
        heap = watched(name, 1)
        row = heap.run(ops(name, 1, 2)[:150]), heap.policy.largest(heap.S), heap.release(), heap.S.tolist()[:40]
        lines.append(" ".join([name, *map(str, row)]))
    assert done.stdout.splitlines() == lines
