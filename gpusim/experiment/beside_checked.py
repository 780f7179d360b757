"""The referee's word on a run beside other programs on one GPU: the logs of all of them are kept as those of ranks are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusim.base.yaml.values import PolicySpec, policy
from gpusim.engine.run.tenants import later
from gpusim.experiment.ran import load_machine_of, own_times_of
from gpusim.experiment.ranks_checked import as_one
from gpusim.experiment.tenants import switch_of
from gpusim.machine import mig
from gpusim.machine.tenancy import EXCLUSIVE, MIG, way
from gpusim.referee import policy_turns, tenants
from gpusim.referee.given_turns import TurnRules, needed
from gpusim.referee.report import Findings, Report
from gpusim.results.result import Result
from gpusim.trace.trace import Trace


def check_beside(result: Result, base: Path) -> Report:
    """Recompute the results of all programs, and that of the first from its own; unchecked where logs were not kept.

    Raises GpusimError where the machine that ran is gone.
    """
    if not result.logged:
        return Report(ok=None)
    gpu, shared = load_machine_of(result, base), way(policy(result.spec.get("tenancy", EXCLUSIVE)))
    beside = sum("began_at" not in one.spec for one in result.ranks) - 1
    traces = [program for one in result.ranks if (program := one.program) is not None]
    machines = [mig.instance(gpu, each.mig) if each.mig else gpu for each in shared.terms(beside)]
    tenancy, own = shared.tenancy(beside, switch_of(gpu)), own_times_of(result, gpu)
    again = result.ranks[beside + 1 :]
    if again and tenancy is not None:  # with a new server of MPS, on the seats of before
        seats = replace(tenancy, tenants=tuple(tenancy.tenants[one.spec["seat"]] for one in again))
        since = [later(one, -int(one.spec["began_at"])) for one in again]
        before = tenants.check(result.ranks[: beside + 1], traces[: beside + 1], machines, tenancy, own)
        after = tenants.check(since, traces[beside + 1 :], [gpu] * len(again), seats, own)
        return as_one(_first(result), [*before, *after], "program")
    if shared.memory is not None and tenancy is not None:
        turns = _turns(result, shared.memory, traces)
        each = policy_turns.check(result.ranks, traces, machines, tenancy, turns, own)
    else:
        each = tenants.check(result.ranks, traces, machines, tenancy, own, one_link=shared.name == MIG)
    return as_one(_first(result), each, "program")


def _turns(result: Result, memory: PolicySpec, traces: Sequence[Trace]) -> TurnRules:
    """What the referee has to know of the policy that gave the turns."""
    known = result.ranks[0].spec["turns"]
    needs = tuple(needed(trace, most) for trace, most in zip(traces, known["claims"], strict=True))
    return TurnRules(memory.name, {name: float(str(value)) for name, value in memory.params}, known["capacity"], needs)


def _first(result: Result) -> Report:
    """Whether the numbers of the run are those of its own program."""
    found, own = Findings(), next((one for one in result.ranks if one.spec.get("seat") == 0), result.ranks[0]).metrics
    for name in [name for name in own if name in result.metrics]:
        found.count("metrics", 1)
        if not math.isclose(result.metrics[name], own[name], rel_tol=1e-9):
            found.say(-1, f"metric {name} is {result.metrics[name]}", f"{own[name]}, by its program")
    return found.report()
