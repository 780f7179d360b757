"""Does the referee follow the turns that a policy gives, and find what is planted in them?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, machine
from tenant_programs import FREE, kernels, random_programs, slices, three_tensors
from test_coupled_check import said

from gpusim.engine.run.claims import Claim, claim_of
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.tenants import Program, simulate_tenants
from gpusim.experiment.beside_checked import again
from gpusim.machine.kernels.alone import alone
from gpusim.machine.kernels.durations import durations
from gpusim.machine.sharing import WORDS
from gpusim.machine.tenancy import Switch
from gpusim.policies import registry
from gpusim.referee import policy_turns
from gpusim.referee.bounds import most_alive
from gpusim.referee.given_turns import TurnRules
from gpusim.referee.turn_rules import DEFAULTS, ProgramMemory
from gpusim.results.log import BEGAN, GIVEN, LEAVES, LIMITED, TURN
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


TWO, THREE = Claim(2 * BLOCK, BLOCK, 2 * BLOCK), Claim(3 * BLOCK, BLOCK, 3 * BLOCK)


def quanta() -> Played:
    each = [kernels(2000, 300), kernels(1500), kernels(900, at=500)]
    return Played("nvshare(quantum=1e-6)", (6000, 6000, 3000), [steps.trace() for steps in each], 10_000, COST)


def limited() -> Played:
    """A program goes on with a part of its memory away: four blocks for two and three."""
    traces = [kernels(500, 500, at=3500).trace(), three_tensors().trace()]
    return Played("antman(slice_ms=0.001)", (TWO, THREE), traces, 4 * BLOCK, COST)


def test_a_program_with_a_part_of_its_memory_away_is_right() -> None:
    assert said(limited().checked()) == ["", ""]


def planted(ran: Played, what: int, column: str, by: int, nth: int = 0) -> list[Any]:
    """The n-th TURN record of this kind with another number, of all logs."""
    logs = [result.log.copy() for result in ran.results]
    rows = [(p, i) for p, log in enumerate(logs) for i in np.flatnonzero((log["kind"] == TURN) & (log["a"] == what))]
    p, i = sorted(rows, key=lambda at: (logs[at[0]]["b"][at[1]], at))[nth]
    logs[p][column][i] += by
    return ran.checked([replace(one, log=log) for one, log in zip(ran.results, logs, strict=True)])


@pytest.mark.parametrize(
    ("made", "what", "column", "by", "words"),
    [
        (quanta, LEAVES, "t", 1, "a record of decision"),           # what leaves at another time than the decision
        (quanta, GIVEN, "t", 1, "is given"),                        # a turn at another time
        (quanta, GIVEN, "bytes", 1, "ns of the turn"),              # a longer turn than the quantum
        (quanta, LEAVES, "bytes", -1, "bytes that leave"),          # too little leaves
        (quanta, LEAVES, "bytes", 9000, "bytes of program"),        # more than is there
        (quanta, BEGAN, "t", 40, "memory that moves"),              # the turn begins before its memory is there
        (limited, LIMITED, "bytes", 512, "limits of the turn"),
        (limited, LIMITED, "bytes", 9 * BLOCK, "is limited to"),
        (limited, GIVEN, "addr", 3, "last operator"),
    ],
)  # fmt: skip
def test_what_is_planted_in_the_turns_is_found(made: Any, what: int, column: str, by: int, words: str) -> None:
    reports = planted(made(), what, column, by, nth=1)
    assert any(words in violation.what for report in reports for violation in report.violations), said(reports)


def test_a_turn_of_the_wrong_program_is_found() -> None:
    ran = quanta()
    logs = [result.log for result in ran.results]
    first = next(i for i in range(len(logs[0])) if logs[0]["kind"][i] == TURN and logs[0]["a"][i] == GIVEN)
    row = logs[0][first].copy()
    at = int(np.searchsorted(logs[2]["t"], row["t"], side="right"))
    wrong = [np.delete(logs[0], first), logs[1], np.insert(logs[2], at, row)]
    reports = ran.checked([replace(one, log=log) for one, log in zip(ran.results, wrong, strict=True)])
    assert any("tenant of the turn" in violation.what for report in reports for violation in report.violations)


def test_a_turn_that_is_missing_is_found() -> None:
    ran = quanta()
    logs = [one.log[~((one.log["kind"] == TURN) & (one.log["b"] == 2))] for one in ran.results]
    reports = ran.checked([replace(one, log=log) for one, log in zip(ran.results, logs, strict=True)])
    assert any("is given no turn" in violation.what for report in reports for violation in report.violations)


@pytest.mark.parametrize("by", [-40, 40])
def test_a_kernel_outside_of_its_turn_is_found(by: int) -> None:
    ran = quanta()
    log = ran.results[1].log.copy()
    last = log["t"] == log["t"].max()
    log["t"][last] += by
    assert any(report.ok is False for report in ran.checked([ran.results[0], replace(ran.results[1], log=log), ran.results[2]]))


def test_other_rules_than_those_that_ran_are_found() -> None:
    ran = quanta()
    for changes in ({"policy": "suspend_resume"}, {"said": {"quantum": 2e-6}}, {"capacity": 9000}):
        assert any(report.ok is False for report in ran.checked(rules=replace(ran.rules, **changes)))


def test_of_a_policy_that_is_not_there_the_turns_are_kept_and_memory_suffices() -> None:
    """Its rule is unknown: what it gives is checked against memory and time, not against a rule."""
    ran = quanta()
    assert said(ran.checked(rules=replace(ran.rules, policy="mine"))) == ["", "", ""]
    assert any(report.ok is False for report in ran.checked(rules=replace(ran.rules, policy="mine", capacity=9000)))


def test_the_rules_are_of_the_policies_that_ship() -> None:
    """The same names, and the same parameters where nothing is said."""
    assert {name: dict(said) for name, said in DEFAULTS.items()} == {
        entry.name: dict(entry.parameters) for entry in registry.SHIPPED.entries("tenants")
    }


@pytest.mark.parametrize(("word", "claims"), CASES)
def test_a_policy_that_is_asked_again_answers_as_it_did(word: str, claims: Any) -> None:
    """The built-in ones as if they were of a user: the referee has worked out all that they see."""
    each = [kernels(500, 900, at=700), kernels(2000, 300, 300), kernels(1500)]
    ran = Played(word, claims, [steps.trace() for steps in each], 10_000, COST)
    rules = replace(ran.rules, policy="mine", rule=again(registry.get("tenants", word)))
    reports = ran.checked(rules=rules)
    assert said(reports) == ["", "", ""] and sum(report.facts.get("turns of a policy", 0) for report in reports) > 2
    for turn in (GIVEN, BEGAN) if word.startswith("nvshare") else ():
        logs = [one.log[~((one.log["kind"] == TURN) & (one.log["a"] == turn) & (one.log["b"] == 1))] for one in ran.results]
        found = ran.checked([replace(one, log=log) for one, log in zip(ran.results, logs, strict=True)], rules)
        assert any(report.ok is False for report in found)


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize("word", ["nvshare(quantum=7e-5)", "msched(quantum=7e-5)", "suspend_resume(quantum=7e-5)",
                                  "priority(slice_ms=0.03)", "salus", "antman(slice_ms=0.03)", "tgs(slice_ms=0.03, loss=0.2)",
                                  "first_come(slice_ms=0.03)"])  # fmt: skip
def test_random_programs_in_turns_are_right(word: str) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        traces = random_programs(rng)
        claims = [
            claim_of(build(trace, np.ones(trace.ops, np.int64)), int(1.2 * most_alive(trace, trace.size)) + (2 << 20))
            for trace in traces
        ]
        most = [claim.most for claim in claims]
        capacity = int(max(max(most), rng.uniform(0.4, 1.0) * sum(most)))
        switch = Switch(float(rng.integers(0, 3000)), int(rng.integers(0, 100_000)), 1555.0)
        assert said(Played(word, claims, traces, capacity, switch).checked()) == [""] * len(traces), seed


def test_blocks_above_a_limit_are_found() -> None:
    """The second program has three blocks of two that it may have: the policy's limits are one less than those that ran."""
    ran = limited()
    logs = [one.log.copy() for one in ran.results]
    for log in logs:
        log["bytes"][(log["kind"] == TURN) & (log["a"] == LIMITED) & (log["bytes"] == 3 * BLOCK)] = 2 * BLOCK
    results = [replace(one, log=log) for one, log in zip(ran.results, logs, strict=True)]
    reports = ran.checked(results, replace(ran.rules, policy="mine"))
    assert any("blocks take" in violation.what for report in reports for violation in report.violations), said(reports)
