"""Does the referee follow the turns that a policy gives, and find what is planted in them?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coupled_programs import program_of
from hand_worked import BLOCK, Steps, machine
from tenant_programs import FREE, kernels, slices
from test_coupled_check import said

from gpusim.engine import state
from gpusim.engine.run.claims import Claim, claim_of
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.tenants import Program, simulate_tenants
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import durations
from gpusim.machine.sharing import WORDS
from gpusim.machine.tenancy import Switch
from gpusim.policies import registry
from gpusim.referee import given_turns, policy_turns
from gpusim.referee.given_turns import TurnRules
from gpusim.referee.turn_rules import DEFAULTS, ProgramMemory
from gpusim.results.log import BEGAN, GIVEN, LEAVES, LIMITED, TURN
from gpusim.trace.trace import COLLECTIVE, COPY_PEER, KERNEL
from gpusim.trace.workload import build

COST = Switch(100.0, 108, bandwidth=108.0)


class Played:
    """Programs that have run under a policy."""

    def __init__(self, word: Any, claims: Any, traces: Any, capacity: int, switch: Switch, **choices: Any) -> None:
        policy = registry.get("tenants", word)
        self.tenancy = slices(len(traces), switch)
        memory = MemoryTurns(policy, capacity, claims)
        works = [build(trace, durations(alone(trace, WORDS), machine()).ns) for trace in traces]
        programs = [Program(work, machine(), capacity) for work in works]
        self.results = list(simulate_tenants(programs, self.tenancy, memory, log=True, place="device", **choices).results)
        self.traces = traces
        self.rules = TurnRules(policy.name, _said(word), capacity, tuple(
            ProgramMemory(c.most, c.least, c.lasting, c.starts, limit=c.most)
            for c in (c if isinstance(c, Claim) else Claim(c, c, c) for c in claims)
        ))  # fmt: skip

    def checked(self, results: Any = None, rules: Any = None) -> list[Any]:
        return policy_turns.check(
            self.results if results is None else results, self.traces, [machine()] * len(self.traces), self.tenancy,
            self.rules if rules is None else rules,
        )  # fmt: skip


def _said(word: str) -> dict[str, float]:
    inside = word.partition("(")[2].rstrip(")")
    return {name.strip(): float(value) for name, _, value in (one.partition("=") for one in inside.split(",") if one)}


CASES = [
    ("first_come(slice_ms=0.001)", (6000, 3000, 5000)), ("nvshare(quantum=1e-6)", (6000, 6000, 6000)),
    ("suspend_resume(quantum=1e-6)", (6000, 6000, 5000)), ("msched(quantum=1e-6)", (5000, 5000, 5000)),
    ("priority(slice_ms=0.001)", (6000, 6000, 2000)), ("salus", (6000, 3000, 3000)), ("antman(slice_ms=0.001)", (0, 0, 0)),
    ("tgs(slice_ms=0.001, loss=0.1)", (0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("word", "claims"), CASES)
@pytest.mark.parametrize("switch", [FREE, COST])
def test_what_is_right_passes(word: str, claims: Any, switch: Switch) -> None:
    each = [kernels(500, 900, at=700), kernels(2000, 300, 300), kernels(1500)]
    ran = Played(word, claims, [steps.trace() for steps in each], 10_000, switch)
    assert said(ran.checked()) == ["", "", ""]
