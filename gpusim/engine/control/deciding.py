"""Decisions from outside, compiled: carry one out, go on to the next, and write down what is observed there.

    step(action) ──▶ decide ──run_until──▶ island
                       ▲                     │ stops where room is needed (VICTIM), or before a proposal (DEPTH)
                       └──── observe ────────┘

The candidates are those that the run's own evict policy would name one after the other, so that the first is its choice.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from numba import types

from gpusim.base.compiled import by_pointer, entry, function_at, kernel, tables_at
from gpusim.base.tables import record, signature
from gpusim.engine.host.island import island_at, policies_at, program_at
from gpusim.engine.memory import evicting
from gpusim.engine.state import (
    ASK,
    LOCKED,
    NEVER,
    PROCESSES,
    VICTIM,
    VICTIMS,
    WHERE,
    Instructions,
    Island,
    PolicyTables,
    f8,
    i8,
)
from gpusim.policies.contract import CAPACITY, FACTS, HOST, ROUNDED

RUN = types.int64(PROCESSES, types.int64)  # of `run_until`
processes_at, as_run = tables_at(PROCESSES), function_at(RUN)

MOMENT_FACTS = {
    "now": "program time of the decision, ns",
    "need": "bytes for which room is needed",
    "free": "bytes of the memory that no tensor has",
    "capacity": "bytes of the memory",
    "waited": "simulated time so far less program time, ns",
    "missing": "bytes below the device that the next `look` operators use (reading it makes the policy an oracle)",
    "progress": "share of the operators that have been submitted",
}
"""What may be observed once at each decision; what may be of each candidate is contract.FACTS."""
NOW, NEED, FREE, ROOM, WAITED, MISSING, PROGRESS = range(len(MOMENT_FACTS))

DECISION = record(
    [("kind", i8),         # VICTIM, DEPTH
     ("open", i8),         # the island waits for an answer
     ("count", i8),        # of the candidates, how many there are
     ("look", i8),         # operators ahead, for `missing`
     ("time", i8),         # ns: when the island stopped last
     ("passed", i8)]       # ns: since the stop before
)  # fmt: skip


@by_pointer
class Decision(NamedTuple):
    """What is asked for at each decision, and what is found there."""

    row: Annotated[Any, DECISION, 1]
    run: Annotated[Any, i8, 1, 2]                 # address of `run_until`
    of_moment: Annotated[Any, i8, "of_moment"]    # which of MOMENT_FACTS come first
    of_candidate: Annotated[Any, i8, "of_candidate"]  # then which of FACTS, of one candidate after the other
    candidates: Annotated[Any, i8, "candidates"]
    facts: Annotated[Any, f8, len(FACTS)]
    observed: Annotated[Any, f8, "observed"]


DECIDED = signature(Decision)
decision_at = tables_at(DECIDED)


@kernel
def shortlist(isl: Island, pol: PolicyTables, d: Decision) -> None:
    """The units that the policy would name, were those before locked."""
    row, most = d.row[0], d.candidates.size
    u, n = isl.lists[VICTIMS, 0], 0
    while u >= 0:
        d.candidates[n] = u
        isl.flags[LOCKED, u] = 1
        n += 1
        u = evicting.named(isl, pol, isl.tenants[0].request) if n < most else -1
    for i in range(n):
        isl.flags[LOCKED, d.candidates[i]] = 0
    row.count = n


@kernel
def moment(isl: Island, prog: Instructions, pol: PolicyTables, d: Decision, which: int) -> float:
    """One of MOMENT_FACTS."""
    t, operator = isl.tenants[0], isl.counts[0].op
    if which == NOW:
        return t.program
    if which == NEED:
        return t.request_bytes if d.row[0].kind == VICTIM else 0
    if which == FREE:
        return pol.place[CAPACITY] - pol.place[ROUNDED]
    if which == ROOM:
        return pol.place[CAPACITY]
    if which == WAITED:
        return max(0.0, isl.clock[0].now - t.program)
    if which == PROGRESS:
        return t.kernels / prog.duration.size
    last = min(operator + 1 + d.row[0].look, prog.duration.size)
    missing = 0
    for i in range(prog.acc_start[min(operator + 1, last)], prog.acc_start[last]):
        u = prog.acc_unit[i]
        if isl.flags[WHERE, u] == HOST:
            missing += isl.units[u].size
    return missing


@kernel
def observe(isl: Island, prog: Instructions, pol: PolicyTables, d: Decision) -> None:
    """Write down what is there; of fewer candidates than asked for the last is written again."""
    row, n = d.row[0], 0
    for i in range(d.of_moment.size):
        if d.of_moment[i] >= 0:
            d.observed[n] = moment(isl, prog, pol, d, d.of_moment[i])
            n += 1
    if row.kind != VICTIM:
        return
    shortlist(isl, pol, d)
    for j in range(d.candidates.size if d.of_candidate[0] >= 0 else 0):
        if j < row.count:
            evicting.state_facts(isl, d.candidates[j], isl.tenants[0].program, d.facts)
        for i in range(d.of_candidate.size):
            d.observed[n] = d.facts[d.of_candidate[i]]
            n += 1


@entry(types.int64(types.int64, types.int64, types.int64))
def decide(processes: int, decision: int, action: int) -> int:
    """Carry out the action, if one is asked for, and go on; returns why the island stopped, ASK at the next decision."""
    many, d = processes_at(processes), decision_at(decision)
    of, row = many.rows[0], d.row[0]
    isl, prog, pol = island_at(of.island), program_at(of.program), policies_at(of.policies)
    if row.open:
        row.open = 0
        if row.kind == VICTIM:
            rules = pol.rules[0]
            isl.lists[VICTIMS, 0] = d.candidates[min(action, row.count - 1)]
            rules.asked, rules.asked_at = 1, 0
        else:
            pol.prefetch[0] = action
    reason = as_run(d.run[0, 0], d.run[0, 1])(many, NEVER)
    now = isl.clock[0].now
    row.passed = now - row.time
    row.time = now
    if reason == ASK:
        row.open = 1
        observe(isl, prog, pol, d)
    return reason
