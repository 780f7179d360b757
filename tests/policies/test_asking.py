"""Does an eviction policy in plain Python decide as the same policy compiled, and is it told when it cannot?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.programs.generate.synth import random_program, training
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.agreement


@policy.evict(columns=True)
def oldest_column(last_use):  # type: ignore[no-untyped-def]
    return last_use


@policy.evict
class OldestObject:
    """LRU that says so when it is told about a unit that it does not know."""

    def __init__(self) -> None:
        self.units: dict[int, int] = {}

    def insert(self, unit: int, size: int) -> None:
        assert unit not in self.units
        self.units[unit] = size

    def touch(self, unit: int, size: int) -> None:
        self.units[unit] = self.units.pop(unit)

    def remove(self, unit: int, size: int) -> None:
        del self.units[unit]

    def victim(self, need: int, locked: Any) -> list[int]:
        chosen = []
        for unit, size in self.units.items():
            if need > 0 and not locked[unit]:
                chosen.append(unit)
                need -= size
        return chosen


@policy.evict
class Stubborn:
    def victim(self, need: int, locked: Any) -> None:
        return None


@policy.evict(columns=True)
def lost(last_use):  # type: ignore[no-untyped-def]
    return np.full(len(last_use), np.nan)


def replay(trace: Trace, evict: Any, share: float, log: bool = False) -> Result:
    capacity = int(share * sum(sorted(trace.size)[-12:]))
    return simulate(trace, catalogue.load("a100-pcie-40gb"), place="first_fit", evict=evict, capacity_bytes=capacity, log=log)


@pytest.mark.conformance
@pytest.mark.parametrize("evict", [oldest_column, OldestObject])
@pytest.mark.parametrize("layers", [6, 12])
def test_python_policies_finish_and_move_what_lru_moves(evict: Any, layers: int) -> None:
    """Batches may choose a little earlier than LRU would: the traffic is that of LRU within a tenth."""
    trace = training(steps=3, layers=layers, tokens=2048)
    ours, compiled = replay(trace, evict, 0.8), replay(trace, "lru", 0.8)
    assert ours.finished and compiled.metrics["swap_outs"] > 10
    assert ours.metrics["d2h_bytes"] == pytest.approx(compiled.metrics["d2h_bytes"], rel=0.1)


@pytest.mark.parametrize("evict", [oldest_column, OldestObject])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_outlives_its_request_breaks_nothing(evict: Any, seed: int) -> None:
    from gpusim import referee

    trace = random_program(seed, 300, largest=16 << 20)
    result = replay(trace, evict, 0.9, log=True)
    report = referee.check(result, trace)
    assert report.ok, report.violations[:3]


def test_a_policy_that_names_nobody_is_told_so() -> None:
    with pytest.raises(PolicyError, match=r"Stubborn.* named no victim for .* although \d+ units may leave"):
        replay(training(steps=1, layers=6, tokens=2048), Stubborn, 0.5)


def test_a_policy_that_returns_nan_is_told_what_it_read() -> None:
    with pytest.raises(PolicyError, match=r"'lost' returned nan for last_use="):
        replay(training(steps=1, layers=6, tokens=2048), lost, 0.5)
