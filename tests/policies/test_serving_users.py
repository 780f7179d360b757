"""Schedulers in plain Python: is what they say carried out, and are their mistakes told in a sentence?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table

LIMITS = EngineLimits(blocks=20, block_size=4, max_seqs=4, max_tokens=16, max_len=64)
FEW = EngineLimits(blocks=60, block_size=4, max_seqs=8, max_tokens=64, max_len=128)


@policy.schedule
def shortest_first(view):  # type: ignore[no-untyped-def]
    """Requests with the fewest tokens left go first."""
    return view.requests[np.argsort(view.left, kind="stable")]


@policy.schedule
def in_order(view):  # type: ignore[no-untyped-def]
    """Requests run in the order in which they came."""
    return view.requests


@policy.schedule
class UrgentFirst:
    """The lower number goes first, and displaces the highest."""

    def order(self, view: Any) -> Any:
        return view.requests[np.argsort(view.priority, kind="stable")]

    def victim(self, view: Any, r: int) -> Any:
        urgency = dict(zip(view.requests.tolist(), view.priority.tolist(), strict=True))
        worst = max(view.running.tolist(), key=urgency.__getitem__, default=None)
        return worst if worst is not None and urgency[worst] > urgency.get(r, 0) else None


def started(spec: Any, requests: Any, limits: EngineLimits = LIMITS) -> Running:
    running: Running = get("schedule", spec).start(requests, limits)
    for r in range(requests.arrival.size):
        running.arrive(r)
    return running


def composed(running: Running, now: int = 0) -> int:
    rows = running.compose(now)
    while rows == t.ASK:
        running.answer(now)
        rows = running.compose(now)
    return rows


def whole_run(running: Running) -> list[list[tuple[int, int, int]]]:
    """Requests, tokens and tokens before of all steps, until nothing runs."""
    steps, made = [], running.step
    while rows := composed(running):
        steps.append(list(zip(*(column[:rows].tolist() for column in (made.request, made.tokens, made.before)), strict=True)))
        running.over()
    return steps


def drawn(n: int, seed: int) -> Any:
    draw = np.random.default_rng(seed)
    return request_table(np.zeros(n), draw.integers(4, 60, n), draw.integers(1, 60, n), priority=draw.integers(0, 3, n))


@pytest.mark.agreement
@pytest.mark.parametrize("seed", range(4))
def test_arrival_order_in_python_is_the_compiled_scheduler(seed: int) -> None:
    python, compiled = started(in_order, drawn(20, seed), FEW), started("vllm@0.33", drawn(20, seed), FEW)
    steps = whole_run(python)
    assert steps == whole_run(compiled)
    assert python.step.word[t.PREEMPTIONS] == compiled.step.word[t.PREEMPTIONS] > 0
    assert (python.step.status == t.FINISHED).all()


@pytest.mark.hand_worked
def test_the_order_decides_which_requests_run() -> None:
    running = started(shortest_first, request_table([0, 0, 0], [12, 4, 8], [3, 3, 3]))
    assert whole_run(running)[:2] == [[(1, 4, 0), (2, 8, 0), (0, 4, 0)], [(1, 1, 4), (2, 1, 8), (0, 8, 4)]]


@pytest.mark.hand_worked
def test_tokens_of_each_request_may_be_given() -> None:
    @policy.schedule
    def two_at_a_time(view):  # type: ignore[no-untyped-def]
        return np.stack([view.requests, np.full_like(view.requests, 2)], axis=1)

    running = started(two_at_a_time, request_table([0, 0], [4, 3], [1, 1]))
    assert whole_run(running) == [[(0, 2, 0), (1, 2, 0)], [(0, 2, 2), (1, 1, 2)]]


@pytest.mark.hand_worked
def test_a_victim_gives_way_and_comes_back() -> None:
    limits = EngineLimits(blocks=5, block_size=4, max_seqs=2, max_tokens=16, max_len=16)
    table = request_table([0, 0], [8, 8], [8, 8], priority=[1, 0])
    running = get("schedule", UrgentFirst).start(table, limits)
    running.arrive(0)
    assert composed(running) == 1
    running.over()
    running.arrive(1)
    assert (composed(running), running.step.request[0]) == (1, 1)  # request 1 starts; 0 finds no block, none is less urgent
    assert running.step.preempted[: running.step.word[t.N_PREEMPTED]].tolist() == [0]
    running.over()
    whole_run(running)
    assert running.step.status.tolist() == [t.FINISHED, t.FINISHED]
    assert running.step.preemptions.tolist() == [1, 0]


@pytest.mark.hand_worked
def test_one_that_waits_may_displace_one_that_runs() -> None:
    limits = EngineLimits(blocks=5, block_size=4, max_seqs=2, max_tokens=16, max_len=16)
    running = get("schedule", UrgentFirst).start(request_table([0, 0], [12, 8], [4, 4], priority=[1, 0]), limits)
    running.arrive(0)
    assert composed(running) == 1
    running.over()
    running.arrive(1)
    assert (composed(running), running.step.request[0], running.step.tokens[0]) == (1, 1, 8)  # one block is free, two needed
    assert running.step.preempted[: running.step.word[t.N_PREEMPTED]].tolist() == [0]
    running.over()
    whole_run(running)
    assert running.step.status.tolist() == [t.FINISHED, t.FINISHED]


@pytest.mark.hand_worked
def test_what_is_evicted_is_what_was_said() -> None:
    class LastFirst:
        """Blocks that were freed last are reused first."""

        def order(self, view: Any) -> Any:
            return view.requests

        def evict(self, view: Any) -> Any:
            return view.cached[::-1]

    limits = EngineLimits(blocks=5, block_size=4, max_seqs=1, max_tokens=16, max_len=16)

    def left(spec: Any) -> list[int]:
        running = get("schedule", spec).start(
            request_table([0, 1, 2], [8, 8, 4], [1, 1, 1], known=[8, 8, 4], start=[0, 2, 4, 5], identity=range(1, 6), piece=4),
            limits,
        )
        for r in range(3):
            running.arrive(r)
            composed(running)
            running.over()
        return sorted(running.tables[1].tables.name[1:].tolist())

    # Request 2 needs one block: the one freed first holds the end of request 0 (identity 2), the one freed last the beginning
    # of request 1 (3).
    assert left(in_order) == [1, 3, 4, 5]
    assert left(policy.schedule(LastFirst)) == [1, 2, 4, 5]


def _said(order: Callable[[Any], Any]) -> Any:
    def mistaken(view):  # type: ignore[no-untyped-def]
        return order(view)

    return policy.schedule(mistaken)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (lambda v: [0, 0], "policy 'mistaken' names request 0 twice"),
        (lambda v: [7], "policy 'mistaken' names request 7, which neither runs nor waits"),
        (lambda v: [[0, 12], [1, 8]], "starts more than fits: 20 tokens in a step of 16"),
        (lambda v: [[r, 1] for r in range(5)], "starts more than fits: with request 4 more than 4 would run"),
        (lambda v: "all", "'order' of policy 'mistaken' answers 'all', not whole numbers"),
        (lambda v: [0.5], "not whole numbers"),
        (lambda v: v.requets, "policy 'mistaken' raised AttributeError"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(order: Any, said: str) -> None:
    running = started(_said(order), request_table([0] * 5, [12] * 5, [2] * 5))
    with pytest.raises(PolicyError, match=said):
        composed(running)


def test_starting_what_finds_no_blocks_is_refused() -> None:
    limits = EngineLimits(blocks=5, block_size=4, max_seqs=4, max_tokens=32, max_len=16)
    running = started(_said(lambda v: [[0, 12], [1, 12]]), request_table([0, 0], [12, 12], [2, 2]), limits)
    with pytest.raises(PolicyError, match="starts more than fits: for request 1 there are no blocks, 1 are free"):
        composed(running)


def test_a_victim_is_chosen_among_those_that_run_now() -> None:
    seen: list[tuple[list[int], list[int]]] = []

    class Watching:
        def order(self, view: Any) -> Any:
            return view.requests[::-1]

        def victim(self, view: Any, r: int) -> None:
            seen.append((view.running.tolist(), view.waiting.tolist()))

    limits = EngineLimits(blocks=5, block_size=4, max_seqs=4, max_tokens=32, max_len=16)
    running = started(policy.schedule(Watching), request_table([0, 0, 0], [12, 12, 4], [2, 2, 2]), limits)
    assert composed(running) == 2  # request 2 starts, and 1; request 0 finds no blocks and waits
    assert seen == [([2, 1], [0])]


def test_a_victim_that_does_not_run_is_refused() -> None:
    class Blind:
        def order(self, view: Any) -> Any:
            return view.requests

        def victim(self, view: Any, r: int) -> int:
            return 1

    limits = EngineLimits(blocks=5, block_size=4, max_seqs=4, max_tokens=32, max_len=16)
    running = started(policy.schedule(Blind), request_table([0, 0], [12, 12], [2, 2]), limits)
    with pytest.raises(PolicyError, match="policy 'Blind' preempts request 1, which does not run"):
        composed(running)


def test_a_class_without_an_order_is_refused() -> None:
    class Nothing:
        pass

    with pytest.raises(PolicyError, match=r"schedule policy 'Nothing' has no method 'order\(view\)'"):
        started(policy.schedule(Nothing), request_table([0], [4], [1]))
