"""Do predictions of demand foretell what they should, by hand, and what are they worth?"""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.policies import registry
from gpusim.policies.release.recall import PRIME

CAPACITY = 1000


class Asked:
    """A release policy that is told of requests, one after the other, with so many bytes free."""

    def __init__(self, spec: str, capacity: int = CAPACITY) -> None:
        self.policy, self.capacity = registry.get("release", spec), capacity
        self.tables: Any = self.policy.state(capacity, self.policy.params)

    def __call__(self, size: int, free: int = 0) -> int:
        """Bytes that shall leave."""
        S, X = self.tables
        held = self.capacity - free
        return int(self.policy.release(S, X, self.policy.params, held, held, self.capacity, size, 0.0))


def test_moving_average_by_hand() -> None:
    """Of 100, 200, 200 with weight 0.5: 100, 150, 175; twice that is wanted."""
    ask = Asked("moving_average(ahead=2, weight=0.5)")
    assert [ask(100), ask(200), ask(200, free=340)] == [200, 300, 10]
    assert ask(200, free=375) == 0  # 187.5 twice
    assert ask(10**6, free=900) == 100  # no more than there is


def test_markov_by_hand() -> None:
    """Classes of 100 and of 10: 100 10 10 100.  After the 100 there was a 10 once, after a 10 a 10 and a 100."""
    ask = Asked("markov(ahead=1)")
    assert ask(100) == 100  # nothing has followed: the same again
    assert ask(10) == 10
    assert ask(10) == 10
    assert ask(100) == 10
    assert ask(10) == (10 + 100) // 2
    two = Asked("markov(ahead=2)")
    for size in (100, 10, 10, 100):
        said = two(size)
    assert said == 10 + (10 + 100) // 2


def test_markov_classes_are_powers_of_two() -> None:
    """64 and 100 are of one class, whose mean is 82; 128 is of the next."""
    ask = Asked("markov(ahead=1)")
    assert [ask(64), ask(100), ask(128)] == [64, 82, 128]


def test_recall_by_hand() -> None:
    """Nothing is known in the first iteration; in the second, after the context of two, what came then."""
    ask = Asked("recall(ahead=2, context=2)")
    first = [ask(size) for size in (100, 200, 300, 400)]
    again = [ask(size) for size in (100, 200, 300, 400)]
    assert first == [0, 0, 0, 0]
    assert again == [0, 300 + 400, 400 + 100, 100 + 200]
    assert ask(500) == 0  # 400 500 is new


def test_recall_takes_no_context_for_another() -> None:
    """5 and 5 + PRIME have the same place: after the one, the other is not remembered any more, but not mistaken for it."""
    ask = Asked("recall(ahead=1, context=1)", 10**7)
    assert [ask(5), ask(7), ask(5 + PRIME), ask(5)] == [0, 0, 0, 0]
    assert ask(5) == 5


@pytest.mark.parametrize("spec", ["moving_average", "markov", "recall(context=1)"])
def test_never_more_than_there_is(spec: str) -> None:
    ask = Asked(spec)
    for size in (0, 1, 700, 10**12, 1, 700, 0, 10**12):
        for free in (0, 300, CAPACITY):
            assert 0 <= ask(size, free) <= CAPACITY - free


def test_no_two_decide_the_same() -> None:
    """300, 100, 300, 100, 300 with 200 free: the mark wants 300 free; the average is 300, 280, 282, 263.8, 267.42; the chain
    expects the same again, then what followed; only a context that was met before is recalled."""
    specs = ("none", "watermark(low=0.3, high=0.3)", "moving_average(ahead=1)", "markov(ahead=1)", "recall(ahead=1, context=1)")
    said = {}
    for spec in specs:
        ask = Asked(spec)
        said[spec] = [ask(size, free=200) for size in (300, 100, 300, 100, 300)]
    assert list(said.values()) == [
        [0, 0, 0, 0, 0],
        [100, 100, 100, 100, 100],
        [100, 80, 82, 63, 67],
        [100, 0, 0, 100, 0],
        [0, 0, 0, 100, 0],
    ]
