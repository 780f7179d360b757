"""Do the learned policies decide what their weights say, and does a training with its seed give these weights again?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import PolicyError
from gpusim.engine.control import controller
from gpusim.engine.control.arms import ARMS
from gpusim.engine.control.controller import Choice, Round
from gpusim.policies import registry
from gpusim.policies.contract import FACTS
from gpusim.policies.evict.parts import evolved_weights, imitation_weights
from gpusim.policies.evict.parts.log_facts import NAMES
from gpusim.policies.network import DenseNetwork
from gpusim.policies.release.parts import lstm_weights, perceptron_weights

GIVEN = {"size": 4096.0, "last_use": 3e6, "uses": 5.0, "arrived": 1e6, "born": 5e5, "now": 9e6, "stage": 2.0, "dirty": 1.0}
LOGS = [math.log1p(x) for x in (4096.0, 6e6, 8.5e6, 8e6, 5.0, 2.5e6 / 4, 9e6)] + [0.0, 1.0, 1.0]


def by_hand(network: DenseNetwork, seed: int, inputs: list[float]) -> float:
    units = np.tanh(network.first[seed] @ np.array(inputs) + network.shift[seed])
    return float(network.second[seed] @ units + network.last[seed])


def score(spec: str) -> float:
    policy = registry.get("evict", spec)
    facts = np.array([GIVEN.get(name, 0.0) for name in FACTS])
    return float(policy.score(facts, policy.params))


@pytest.mark.hand_worked
@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_weights(seed: int) -> None:
    assert len(LOGS) == len(NAMES)
    assert score(f"imitation(seed={seed})") == pytest.approx(-by_hand(imitation_weights.WEIGHTS, seed, LOGS))
    assert score(f"evolved(seed={seed})") == pytest.approx(float(evolved_weights.WEIGHTS[seed] @ LOGS))


@pytest.mark.hand_worked
def test_the_perceptron_is_asked_from_the_ninth_request_on() -> None:
    """Growths of 1, 2, ... 8 bytes have a mean of 4.5; what the network answers to their multiples, 100 are free for."""
    policy = registry.get("release", "perceptron(seed=3)")
    tables: Any = policy.state(10**6, policy.params)
    allocated, answers = 10**6 - 136, []
    for growth in range(9):
        allocated += growth
        answers.append(int(policy.release(*tables, policy.params, allocated, allocated, 10**6, 1, 0.0)))
    latest = [math.asinh(growth / 4.5) for growth in range(8, 0, -1)]
    expected = max(0.0, by_hand(perceptron_weights.WEIGHTS, 3, latest)) * 4.5
    assert answers == [0] * 8 + [max(0, int(expected) - 100)]


@pytest.mark.hand_worked
def test_the_lstm_sees_all_growths_and_is_heeded_from_the_ninth_request_on() -> None:
    """Growths of 0, 1, ... 8 bytes, each over the mean of those so far; written anew with whole vectors."""
    policy, network = registry.get("release", "lstm(seed=2)"), lstm_weights.WEIGHTS
    tables: Any = policy.state(10**6, policy.params)
    allocated, answers, expected = 10**6 - 136, [], 0.0
    unit, cell, sizes = np.zeros(8), np.zeros(8), 0
    for request, growth in enumerate(range(9)):
        allocated += growth
        answers.append(int(policy.release(*tables, policy.params, allocated, allocated, 10**6, 1, 0.0)))
        sizes += growth
        if request:
            z = network.seen[2] * math.asinh(growth / (sizes / request)) + network.kept[2] @ unit + network.shift[2]
            into, keep, candidate, out = z.reshape(4, 8)
            cell = cell / (1 + np.exp(-keep)) + np.tanh(candidate) / (1 + np.exp(-into))
            unit = np.tanh(cell) / (1 + np.exp(-out))
            expected = max(0.0, float(network.second[2] @ unit + network.last[2])) * sizes / request
    assert answers == [0] * 8 + [max(0, int(expected) - 100)] and expected > 0.0


@pytest.mark.parametrize("spec", ["imitation(seed=5)", "evolved(seed=5)"])
def test_there_are_five_trainings(spec: str) -> None:
    with pytest.raises(PolicyError, match="is above 4"):
        registry.get("evict", spec)
    with pytest.raises(PolicyError, match="is above 4"):
        registry.get("release", "perceptron(seed=5)")
    with pytest.raises(PolicyError, match="is above 4"):
        registry.get("release", "lstm(seed=5)")


def played(spec: str, times: Any, rounds: int) -> list[Choice]:
    """What the controller chooses when each choice takes its time."""
    control = controller.get(spec)
    chosen = [next(control)]
    for number in range(rounds):
        time = times(number, ARMS.index(chosen[-1]))  # type: ignore[arg-type]
        chosen.append(control.send(Round(number, 0, 1, 1, "finished" if time else "oom", time, 0.0, 0)))
    assert all(isinstance(choice, Choice) for choice in chosen)
    return chosen  # type: ignore[return-value]


@pytest.mark.parametrize("learned", ["yes", "no"])
def test_the_bandit_finds_a_choice_that_is_far_better(learned: str) -> None:
    chosen = played(f"bandit(seed=1, learned={learned})", lambda number, arm: 10**9 if arm == 17 else 3 * 10**9, 60)
    assert {ARMS.index(choice) for choice in chosen[-10:]} == {17}


def test_the_bandit_begins_anew_when_memory_changes() -> None:
    """Up to round 40 choice 17 is the best; then another takes its place."""
    chosen = played(
        "bandit(seed=1)", lambda number, arm: 10**9 if arm == (17 if number < 40 else 5) else 3 * 10**9, 140
    )
    assert {ARMS.index(choice) for choice in chosen[-10:]} == {5}


def test_the_bandit_keeps_away_from_choices_that_run_out_of_memory() -> None:
    chosen = [ARMS.index(choice) for choice in played("bandit(learned=no)", lambda number, arm: 0 if arm % 2 else 10**9, 80)]
    assert all(chosen.count(arm) <= 1 for arm in range(1, len(ARMS), 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imitate", "evolve", "foretell", "foretell_lstm"])
def test_a_seed_gives_the_same_weights_again(name: str) -> None:
    if name == "imitate":
        pytest.importorskip("gymnasium")
    from importlib import import_module

    train = import_module(f"benchmarks.learning.{name}").train
    first, again, other = (np.concatenate([np.ravel(w) for w in train(seed, quick=True)]) for seed in (0, 0, 1))
    assert first.tobytes() == again.tobytes() != other.tobytes()
