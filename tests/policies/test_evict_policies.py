"""Does each eviction policy choose what its paper says, and keep the engine's rules whatever happens?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evict_models import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.policies import registry
from gpusim.policies.contract import FACTS
from gpusim.policies.units import TENSORS, units

pytestmark = pytest.mark.hand_worked

BUILTIN = [e for e in registry.entries("evict") if e.builtin and TENSORS in units(e)]
COMPILED = [e.name for e in BUILTIN if e.name not in ("none", "cost_aware")]


class Driver:
    """A memory of `capacity` bytes that calls the verbs as the engine does, and checks every answer."""

    def __init__(self, name: str, n_units: int, capacity: int, sizes: list[int], model: Any = None) -> None:
        self.policy = registry.get("evict", name)
        self.S, self.X = self.policy.state(n_units, capacity, self.policy.params, 7)
        self.capacity, self.sizes, self.model = capacity, sizes, model
        self.locked = np.zeros(n_units, np.uint8)
        self.resident: set[int] = set()
        self.victims: list[int] = []
        self.time = 0

    @property
    def used(self) -> int:
        return sum(self.sizes[u] for u in self.resident)

    def key(self, unit: int) -> float:
        self.time += 1
        facts = np.zeros(len(FACTS))
        facts[list(FACTS).index("size")] = self.sizes[unit]
        facts[list(FACTS).index("next_use")] = self.time * 7919 % 101
        return float(self.policy.score(facts, self.policy.params))

    def access(self, unit: int) -> bool:
        """True on a hit."""
        p, size = self.policy, self.sizes[unit]
        if unit in self.resident:
            p.touch(self.S, self.X, unit, size, self.key(unit))
            if self.model:
                self.model.touch(unit, size)
            return True
        while self.used + size > self.capacity and self.evict(unit):
            pass
        if self.used + size <= self.capacity:
            p.insert(self.S, self.X, unit, size, self.key(unit))
            self.resident.add(unit)
            if self.model:
                self.model.insert(unit, size)
        return False

    def evict(self, incoming: int) -> bool:
        out = int(self.policy.victim(self.S, self.X, incoming, self.sizes[incoming], self.locked))
        if self.model:
            assert out == self.model.victim(incoming, self.sizes[incoming])
        free = [u for u in self.resident if not self.locked[u]]
        if not free:
            assert out == -1
            return False
        assert out in self.resident
        assert not self.locked[out]
        self.victims.append(out)
        self.leave(out, True)
        return True

    def leave(self, unit: int, evicted: bool) -> None:
        self.resident.discard(unit)
        self.policy.remove(self.S, self.X, unit, self.sizes[unit], 1.0 if evicted else 0.0)
        if self.model:
            self.model.remove(unit, evicted)


def victims(name: str, accesses: str, capacity: int) -> str:
    """The victims, in order, of units a, b, c, ... of one byte."""
    driver = Driver(name, 26, capacity, [1] * 26)
    for letter in accesses:
        driver.access(ord(letter) - ord("a"))
    return "".join(chr(u + ord("a")) for u in driver.victims)


def test_lru_evicts_the_oldest_access() -> None:
    assert victims("lru", "abcabd" + "e", 3) == "ca"


def test_fifo_evicts_the_oldest_arrival() -> None:
    assert victims("fifo", "abcabde", 3) == "ab"


def test_clock_gives_a_second_chance() -> None:
    # a and b were accessed: both go round, c leaves; then d, which was not accessed, stands behind a and b.
    assert victims("clock", "abcabd" + "e", 3) == "ca"


def test_sieve_keeps_survivors_in_place_and_moves_on() -> None:
    # The hand passes a and b (accessed), takes c; d arrives ahead of the hand and is taken next, a and b stay.
    assert victims("sieve", "abcabd", 3) == "c"
    assert victims("sieve", "abcabde", 3) == "ca"  # c was the newest, so the hand starts again at a, whose bit is spent
    assert victims("sieve", "abcdabef", 4) == "cd"  # here it was not: the hand stands at d


def test_lfu_counts_and_breaks_ties_by_age() -> None:
    assert victims("lfu", "aabbcde", 3) == "cd"


def test_s3fifo_lets_one_hit_wonders_go_first() -> None:
    # 20 pages: small queue 2, main 18.  a and b fill the small queue, the others join the main queue while it is warming.
    # a was accessed twice and moves to the main queue; b leaves, is remembered, and comes back into the main queue.
    warm = "abcdefghijklmnopqrst"
    assert victims("s3fifo", warm + "aa" + "u", 20) == "b"
    assert victims("s3fifo", warm + "aa" + "uvb", 20)[:2] == "bc"


def test_arc_protects_what_was_seen_twice() -> None:
    # T1 = c d, T2 = a b (seen twice): the target p is 0, so T1 gives way.
    assert victims("arc", "abcdab" + "ef", 4) == "cd"
    # c is in B1: its return raises p to 1; T1 = e f is larger than p and still gives way.
    assert victims("arc", "abcdab" + "efc", 4) == "cde"


@pytest.mark.slow
def test_belady_evicts_what_is_needed_last() -> None:
    from gpusim.policies.trials.misses import replay

    requests = np.array([ord(c) - ord("a") for c in "abcdabeabcde"], np.int32)  # Belady's own example: 7 misses
    assert replay(requests, 1, 3, registry.get("evict", "belady")).misses == 7
    assert replay(requests, 1, 3, registry.get("evict", "fifo")).misses == 9
    assert replay(requests, 1, 4, registry.get("evict", "fifo")).misses == 10  # and his anomaly


@pytest.mark.slow
def test_random_is_the_same_for_the_same_seed_and_uses_all_units() -> None:
    requests = np.arange(60, dtype=np.int32) % 12
    from gpusim.policies.trials.misses import replay

    policy = registry.get("evict", "random")
    assert replay(requests, 1, 6, policy, seed=3) == replay(requests, 1, 6, policy, seed=3)
    driver = Driver("random", 200, 5, [1] * 200)
    for unit in range(200):
        driver.access(unit)
    ages = {unit - victim for unit, victim in zip(range(5, 200), driver.victims, strict=True)}
    assert {1, 2, 3, 4, 5} <= ages


def test_largest_frees_most_at_once() -> None:
    driver = Driver("largest", 4, 10, [2, 5, 3, 4])
    for unit in range(4):
        driver.access(unit)
    assert driver.victims == [1]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("access"), st.integers(0, 11)),
        st.tuples(st.just("access"), st.integers(0, 11)),
        st.tuples(st.just("access"), st.integers(0, 3)),
        st.tuples(st.just("free"), st.integers(0, 11)),
    ),
    max_size=120,
)


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=150)
@given(steps=steps, capacity=st.integers(8, 40), sizes=st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_equals_the_slow_model(name: str, steps: list[Any], capacity: int, sizes: list[int]) -> None:
    driver = Driver(name, 12, capacity, sizes, MODELS[name](capacity))
    for verb, unit in steps:
        if verb == "access":
            driver.access(unit)
        elif unit in driver.resident:
            driver.leave(unit, False)


wild = st.lists(
    st.tuples(st.sampled_from(["access", "access", "access", "free", "lock", "unlock", "shed"]), st.integers(0, 15)),
    max_size=150,
)


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
@settings(max_examples=60)
@given(steps=wild, capacity=st.integers(4, 30), sizes=st.lists(st.integers(0, 4), min_size=16, max_size=16))
def test_never_chooses_what_is_locked_or_gone(name: str, steps: list[Any], capacity: int, sizes: list[int]) -> None:
    """The driver asserts it, in any order of verbs: units of no size, locks, frees of what is away, evictions in a row."""
    driver = Driver(name, 16, capacity, sizes)
    for verb, unit in steps:
        if verb == "access":
            driver.access(unit)
        elif verb == "free":
            driver.leave(unit, False)  # also of a unit that is not resident
        elif verb == "shed":
            driver.evict(unit)
        else:
            driver.locked[unit] = verb == "lock"
    driver.locked[:] = 0
    while driver.resident:
        assert driver.evict(0)
    assert driver.policy.victim(driver.S, driver.X, 0, 1, driver.locked) == -1


@pytest.mark.conformance
@pytest.mark.parametrize("name", COMPILED)
def test_logs_are_squeezed_without_losing_a_unit(name: str) -> None:
    """Thousands of accesses over few units run through every log many times; the driver checks each victim."""
    random = np.random.RandomState(5)
    model = MODELS[name](9) if name in MODELS else None
    driver = Driver(name, 20, 9, [1] * 20, model)
    for unit in random.randint(0, 20, 4000):
        driver.access(int(unit))
    assert len(driver.victims) > 500
