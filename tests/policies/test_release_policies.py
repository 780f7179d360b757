"""Do predictions of demand foretell what they should?  By hand."""

from __future__ import annotations

from typing import Any

import pytest
from hand_worked import Steps, play

from gpusim.policies import registry
from gpusim.policies.release.finite_context import PRIME
from gpusim.results import log

pytestmark = pytest.mark.hand_worked

CAPACITY = 1000


class Asked:
    """A release policy that is told of requests, one after the other, each with the bytes that are free after it."""

    def __init__(self, spec: str) -> None:
        self.policy = registry.get("release", spec)
        self.tables: Any = self.policy.state(CAPACITY, self.policy.params)

    def __call__(self, free: int, size: int = 1) -> int:
        """Bytes that shall leave."""
        S, X = self.tables
        held = CAPACITY - free
        return int(self.policy.release(S, X, self.policy.params, held, held, CAPACITY, size, 0.0))


def test_moving_average_by_hand() -> None:
    """Growth of 50 and 50, averages 25 and 37.5, wanted twice; then 60, for the 75 that left came back: 48.75."""
    ask = Asked("moving_average(ahead=2, weight=0.5)")
    assert [ask(100), ask(50), ask(0), ask(15)] == [0, 0, 75, 97 - 15]


def test_markov_by_hand() -> None:
    """+300: the same again is expected, for which 200 are lacking; they leave, and another 300.  When 300 come the next time,
    it is known that they go again."""
    ask = Asked("markov(ahead=1)")
    assert [ask(400), ask(100), ask(100 + 200 + 300), ask(300)] == [0, 200, 0, 0]


def test_markov_classes_are_powers_of_two() -> None:
    """64 and 100 are of one class, whose mean is 82; 128 is of the next, of which the same is expected."""
    ask = Asked("markov(ahead=1)")
    assert [ask(400), ask(336), ask(236), ask(108)] == [0, 0, 0, 128 - 108]


def test_recall_by_hand() -> None:
    """Nothing is known in the first iteration.  In the second, after 1 came 100 and 200, for which 50 are lacking; they leave,
    so that there are 200 when 2 has come, enough for the 200 after it; then 150 went."""
    ask = Asked("finite_context(ahead=2, context=1)")
    first = [ask(400, size=1), ask(300, size=2), ask(100, size=3)]
    assert first == [0, 0, 0] and [ask(250, size=1), ask(250 + 50 - 100, size=2)] == [50, 0]


def test_recall_takes_no_context_for_another() -> None:
    """5 and 5 + PRIME have the same place: after the one, the other is not remembered any more, but not mistaken for it."""
    ask = Asked("finite_context(ahead=1, context=1)")
    assert [ask(400, 5), ask(300, 7), ask(200, 5 + PRIME), ask(40, 5)] == [0, 0, 0, 0]
    assert ask(15, 5) == 25 - 15


@pytest.mark.parametrize("spec", ["moving_average", "markov", "finite_context(context=1)"])
def test_never_more_than_there_is(spec: str) -> None:
    ask = Asked(spec)
    for size in (0, 1, 700, 10**12, 1, 700, 0, 10**12):
        for free in (0, 300, CAPACITY, 0):
            assert 0 <= ask(free, size) <= CAPACITY - free


def test_no_two_decide_the_same() -> None:
    """1, 2, 1, 2 add 200, 200 and 150, and 150 are free.  The mark wants 350; the average of 200, 200, 150 is 150, twice that
    is wanted; they are of one class with a mean of 183; after the 2 before, 200 came."""
    said = {}
    for spec in ("none", "watermark(low=0.2, high=0.35)", "moving_average(ahead=2, weight=0.5)", "markov(ahead=1)",
                 "finite_context(ahead=1, context=1)"):  # fmt: skip
        ask = Asked(spec)
        *before, said[spec] = [ask(free, size) for free, size in ((700, 1), (500, 2), (300, 1), (150, 2))]
        assert before == [0, 0, 0]
    assert list(said.values()) == [0, 350 - 150, 300 - 150, 183 - 150, 200 - 150]


@pytest.mark.slow
def test_three_stage_by_hand() -> None:
    """Nothing above the mark of 20 %; a step of 5 % below it, a quarter of that below a quarter of the mark."""
    ask = Asked("three_stage")
    assert [ask(200), ask(199), ask(50), ask(49), ask(0)] == [0, 50, 50, 12, 12]
    assert Asked("watermark(low=0.2, high=0.25)")(49) == 201  # which asks for all that is missing at once


def test_caches_leave_before_intermediates_and_these_before_what_lasts() -> None:
    """Three blocks hold a parameter, an intermediate and an input, used in this order; the oldest is what LRU lets go."""
    steps = Steps()
    first = {"weight": steps.alloc(category="param"), "input": steps.alloc(category="input")}
    steps.kernel(10, reads=(first["weight"],))
    first["made"] = steps.alloc()
    steps.kernel(10, reads=(first["weight"],), writes=(first["made"],))
    steps.kernel(10, reads=(first["input"],))
    for _ in range(3):
        steps.kernel(10, writes=(steps.alloc(),))
    name = {unit: word for word, unit in first.items()}
    left = {}
    for evict in ("lru", "staged"):
        events = play(steps, blocks=3, evict=evict).log
        assert events is not None
        left[evict] = [name[int(e["a"])] for e in events if e["kind"] == log.COPY and int(e["a"]) in name]
    assert left == {"lru": ["weight", "made", "input"], "staged": ["input", "made"]}  # then the next intermediate
