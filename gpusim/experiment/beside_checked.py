"""The referee's word on a run beside other programs on one GPU: the logs of all of them are kept as those of ranks are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusim.base.errors import PolicyError
from gpusim.base.yaml.values import PolicySpec, policy
from gpusim.engine.run.tenants import later
from gpusim.experiment.ran import load_machine_of, own_times_of
from gpusim.experiment.ranks_checked import as_one
from gpusim.machine import mig
from gpusim.machine.tenancy import EXCLUSIVE, MIG, switch_of, way
from gpusim.policies.forms import TenantsPolicy
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.policies.tenant_memory import TenantSeen, TenantsView
from gpusim.referee import policy_turns, tenants
from gpusim.referee.given_turns import TurnRules, needed
from gpusim.referee.report import Findings, Report
from gpusim.referee.turn_rules import DEFAULTS, Rule, Turn, TurnAsked
from gpusim.results.result import Result
from gpusim.trace.trace import Trace


def check_beside(result: Result, base: Path, own: Registry = SHIPPED) -> Report:
    """Recompute the results of all programs, and that of the first from its own; unchecked where logs were not kept.

    own  a user's policies, of which the one that gave the turns is asked again

    Raises GpusimError where the machine that ran is gone.
    """
    if not result.logged:
        return Report(ok=None)
    gpu, shared = load_machine_of(result, base), way(policy(result.spec.get("tenancy", EXCLUSIVE)))
    beside = sum("began_at" not in one.spec for one in result.ranks) - 1
    traces = [program for one in result.ranks if (program := one.program) is not None]
    machines = [mig.instance(gpu, each.mig) if each.mig else gpu for each in shared.terms(beside)]
    tenancy, times = shared.tenancy(beside, switch_of(gpu)), own_times_of(result, gpu)
    again = result.ranks[beside + 1 :]
    if again and tenancy is not None:  # with a new server of MPS, on the seats of before
        seats = replace(tenancy, tenants=tuple(tenancy.tenants[one.spec["seat"]] for one in again))
        since = [later(one, -int(one.spec["began_at"])) for one in again]
        before = tenants.check(result.ranks[: beside + 1], traces[: beside + 1], machines, tenancy, times)
        after = tenants.check(since, traces[beside + 1 :], [gpu] * len(again), seats, times)
        return as_one(_first(result), [*before, *after], "program")
    if shared.memory is not None and tenancy is not None:
        turns, left = _turns(result, shared.memory, traces, own)
        each = policy_turns.check(result.ranks, traces, machines, tenancy, turns, times)
        return replace(as_one(_first(result), each, "program"), left=left)
    each = tenants.check(result.ranks, traces, machines, tenancy, times, one_link=shared.name == MIG)
    return as_one(_first(result), each, "program")


def _turns(
    result: Result, memory: PolicySpec, traces: Sequence[Trace], own: Registry
) -> tuple[TurnRules, tuple[str, ...]]:  # fmt: skip
    """What the referee has to know of the policy that gave the turns, and what it cannot check without it."""
    known = result.ranks[0].spec["turns"]
    needs = tuple(needed(trace, most) for trace, most in zip(traces, known["claims"], strict=True))
    rules = TurnRules(memory.name, dict(memory.params), known["capacity"], needs)
    if memory.name in DEFAULTS:
        return replace(rules, said={name: float(str(value)) for name, value in memory.params}), ()
    try:
        return replace(rules, rule=again(own.get("tenants", memory))), ()
    except PolicyError:
        said = f"whose turn it is, by tenants policy '{memory.name}', which is not there (--use FILE names it)"
        return rules, (said,)


def again(policy: TenantsPolicy) -> Rule:
    """A user's policy, asked with what the referee has worked out of the logs; of logs that are wrong it may have no answer."""

    def rule(asked: TurnAsked) -> Turn | None:
        seen = tuple(
            TenantSeen(
                p, one.claim, one.here, one.away, p in asked.ready, 0 if p == asked.running else asked.now - one.last,
                one.limit, one.least, one.lasting, one.had, one.lost,
            )
            for p, one in asked.programs.items()
        )  # fmt: skip
        try:
            made = policy.turn(TenantsView(asked.now, asked.capacity, asked.running, asked.over, seen))
        except PolicyError:
            return None
        return None if made is None else Turn(made.tenant, made.ns, made.leave, made.limits, made.iterations)

    return rule


def _first(result: Result) -> Report:
    """Whether the numbers of the run are those of its own program."""
    found, own = Findings(), next((one for one in result.ranks if one.spec.get("seat") == 0), result.ranks[0]).metrics
    for name in [name for name in own if name in result.metrics]:
        found.count("metrics", 1)
        if not math.isclose(result.metrics[name], own[name], rel_tol=1e-9):
            found.say(-1, f"metric {name} is {result.metrics[name]}", f"{own[name]}, by its program")
    return found.report()
