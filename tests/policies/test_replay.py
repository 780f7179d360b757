"""Does a page replay count what libCacheSim counts, for every policy, sequence and size?"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from golden_replay import FILE, OBJECTS, REQUESTS, load_benchmark, unequal_sizes
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.base.errors import PolicyError, TraceError
from gpusim.policies import registry
from gpusim.policies.trials.misses import MissCounts, replay
from gpusim.trace.reuse import next_uses

benchmark = load_benchmark()
SEQUENCES = benchmark.sequences(REQUESTS, OBJECTS)
GOLDEN = json.loads(FILE.read_text("utf-8"))
FORMS = ("ordered", "score")
REPLAYED = [e.name for e in registry.entries("evict") if e.builtin and registry.get("evict", e.name).form in FORMS]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("policy", benchmark.RIVALS)
def test_misses_equal_the_frozen_counts_of_libcachesim(policy: str, sequence: str) -> None:
    cases = {key: misses for key, misses in GOLDEN[sequence].items() if key.split("/")[0] == policy}
    assert len(cases) >= 2
    for key, misses in cases.items():
        sizes = unequal_sizes() if key.endswith("sizes") else 1
        counts = replay(SEQUENCES[sequence], sizes, int(key.split("/")[1]), registry.get("evict", policy))
        assert counts.misses == misses, key


@pytest.mark.oracle
def test_misses_equal_libcachesim_where_it_is_installed() -> None:
    pytest.importorskip("libcachesim")
    with tempfile.TemporaryDirectory() as folder:
        requests = benchmark.zipf(5000, 700, seed=11)
        rival = benchmark.Rival(Path(folder), requests)
        for policy in benchmark.RIVALS:
            assert benchmark.ours(policy, requests, 70)[0] == rival.run(policy, 70)[0], policy


requests_of_few_pages = st.lists(st.integers(0, 14), min_size=1, max_size=200).map(lambda ids: np.array(ids, np.int32))


@pytest.mark.formulas
@pytest.mark.slow
@settings(max_examples=60)
@given(requests=requests_of_few_pages, capacity=st.integers(1, 12))
def test_belady_is_never_beaten(requests: np.ndarray, capacity: int) -> None:
    best = replay(requests, 1, capacity, registry.get("evict", "belady")).misses
    assert best >= len(set(requests.tolist()))
    for name in REPLAYED:
        assert replay(requests, 1, capacity, registry.get("evict", name)).misses >= best, name


@pytest.mark.agreement
@pytest.mark.slow
@settings(max_examples=60)
@given(requests=requests_of_few_pages, capacity=st.integers(1, 12))
def test_belady_equals_the_rule_written_out(requests: np.ndarray, capacity: int) -> None:
    ids, resident, misses = requests.tolist(), set(), 0
    for i, page in enumerate(ids):
        if page in resident:
            continue
        misses += 1
        if len(resident) == capacity:
            later = {p: ids.index(p, i) if p in ids[i:] else len(ids) for p in resident}
            resident.discard(max(later, key=later.__getitem__))
        resident.add(page)
    assert replay(requests, 1, capacity, registry.get("evict", "belady")).misses == misses


SHORT = [name for name in REPLAYED if registry.get("evict", name).replay is not None]


def both_ways(name: str, requests: np.ndarray, capacity: int) -> tuple[MissCounts, MissCounts]:
    """Counts of the policy's own `replay`, and of its other verbs."""
    policy = registry.get("evict", name)
    return replay(requests, 1, capacity, policy), replay(requests, 1, capacity, dataclasses.replace(policy, replay=None))


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("name", SHORT)
def test_the_short_way_counts_what_the_verbs_count(name: str, sequence: str) -> None:
    for capacity in (1, 2, 37, 400, OBJECTS, 2**40):
        short, verbs = both_ways(name, SEQUENCES[sequence], capacity)
        assert short == verbs, capacity
    assert both_ways(name, SEQUENCES[sequence][:0], 5)[0] == MissCounts(0, 0, 0, 0, 0)


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
@settings(max_examples=150)
@given(requests=requests_of_few_pages, capacity=st.integers(1, 12))
def test_the_short_way_counts_what_the_verbs_count_whatever_comes(name: str, requests: np.ndarray, capacity: int) -> None:
    short, verbs = both_ways(name, requests, capacity)
    assert short == verbs


@pytest.mark.hand_worked
@pytest.mark.parametrize(
    ("letters", "capacity", "misses"),
    [
        # d: FIFO evicts a; the others spare a and b and evict c.  Then FIFO has c, and a comes back; the others evict a for c.
        ("abcabdca", 3, {"fifo": 5, "clock": 6, "sieve": 6}),
        # e and f: FIFO evicts a and b, the others c and d.  g: CLOCK, once around, evicts a; SIEVE's hand stands at e.
        ("abcdabefgb", 4, {"fifo": 8, "clock": 7, "sieve": 7}),
        ("abcdabefga", 4, {"fifo": 8, "clock": 8, "sieve": 7}),
    ],
)
def test_the_short_way_by_hand(letters: str, capacity: int, misses: dict[str, int]) -> None:
    requests = np.array([ord(letter) - ord("a") for letter in letters], np.int32)
    assert {name: both_ways(name, requests, capacity)[0].misses for name in SHORT} == misses


@pytest.mark.slow
def test_a_user_s_policy_may_have_a_short_way(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from gpusim import policy\n"
        "from gpusim.policies.evict import fifo\n"
        "@policy.evict\n"
        "class never_hits:\n"
        "    state, insert, touch, remove, victim = fifo.state, *(getattr(f, 'py_func', f) for f in (\n"
        "        fifo.insert, fifo.touch, fifo.remove, fifo.victim))\n"
        "    def replay(requests, n_units, capacity, params, seed):\n"
        "        return requests.shape[0]\n",
        "utf-8",
    )
    policy, requests = registry.of(str(tmp_path / "mine.py")).get("evict", "never_hits"), np.array([0, 1, 0, 1])
    assert replay(requests, 4, 8, policy) == MissCounts(4, misses=4, hits=0, evictions=2, bytes=16)
    assert replay(requests, [4, 4], 8, policy) == MissCounts(4, misses=2, hits=2, evictions=0, bytes=8)  # through the verbs


def test_counts_add_up_and_bytes_are_those_of_the_misses() -> None:
    requests = np.array([0, 1, 2, 0, 3], np.int32)
    lru = registry.get("evict", "lru")
    # 0 1 fill 10 bytes' worth of pages of 4, 6; 2 (5) pushes both out; 0 comes back beside 2; 3 (1) fits.
    sizes = np.array([4, 6, 5, 1])
    assert replay(requests, sizes, 10, lru) == MissCounts(5, misses=5, hits=0, evictions=2, bytes=4 + 6 + 5 + 4 + 1)
    assert replay(requests, 4096, 3 * 4096, lru) == MissCounts(5, misses=4, hits=1, evictions=1, bytes=4 * 4096)


@pytest.mark.slow
def test_the_page_size_does_not_matter_when_all_pages_have_one() -> None:
    for policy in REPLAYED:
        small = replay(SEQUENCES["phases"], 1, 200, registry.get("evict", policy))
        sizes = np.full(OBJECTS, 4096)
        large = replay(SEQUENCES["phases"], sizes, 200 * 4096, registry.get("evict", policy))
        assert (small.misses, small.evictions) == (large.misses, large.evictions), policy


def test_next_uses_look_forward() -> None:
    assert next_uses(np.array([2, 0, 2, 2, 1], np.int32), 3).tolist() == [2, -1, 3, -1, -1]


@pytest.mark.parametrize(
    ("requests", "sizes", "capacity", "says"),
    [
        ([0, -1], 1, 2, "page id -1 is out of range"),
        ([0, 7], [1, 1], 2, "page id 7 is out of range"),
        ([0, 1], [1, 0], 2, "a page of 0 bytes"),
        ([0, 1], 4096, 4095, "does not fit into 4095 bytes"),
    ],
)
def test_requests_out_of_range_are_refused(requests: list, sizes: object, capacity: int, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        replay(np.array(requests), sizes, capacity, registry.get("evict", "lru"))  # type: ignore[arg-type]


@pytest.mark.slow
def test_policies_that_need_time_or_never_evict_say_so() -> None:
    with pytest.raises(PolicyError, match="needs the timed engine"):
        replay(np.array([0, 1]), 1, 1, registry.get("evict", "cost_aware"))
    with pytest.raises(PolicyError, match="found no victim for request 1"):
        replay(np.array([0, 1]), 1, 1, registry.get("evict", "none"))


SCRIPT = """
import sys; sys.path.insert(0, "tests/support")
from golden_replay import load_benchmark
from gpusim.policies.trials.misses import replay
from gpusim.policies import registry
requests = load_benchmark().sequences(600, 80)["phases"]
for name in sys.argv[1].split(","):
    for sizes, room in ((1, 9), ([1 + i % 3 for i in range(80)], 20)):
        print(name, replay(requests, sizes, room, registry.get("evict", name), seed=1))
"""


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_equals_interpreted() -> None:
    command = [sys.executable, "-c", SCRIPT, ",".join(REPLAYED)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    answers = [
        subprocess.run(command, cwd=root, env={**environment, **more}, capture_output=True, text=True, check=True).stdout
        for more in ({}, {"NUMBA_DISABLE_JIT": "1"})
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) == 2 * len(REPLAYED)
