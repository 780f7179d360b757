"""The plan that lets a whole program leave before every n-th step, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.base.errors import PolicyError
from gpusim.policies import registry
from gpusim.policies.planning import EVICT, PlanTier, View
from gpusim.trace.build import TraceBuilder
from gpusim.trace.workload import build

pytestmark = pytest.mark.hand_worked


def view(tiers: int = 1) -> View:
    """Four steps of two operators: one makes y from the weights w, the other reads y and x; z is made and gone in each."""
    b = TraceBuilder("four")
    w, x, empty = b.alloc(512, "param"), b.alloc(512, "input"), b.alloc(0, "param")
    for step in range(4):
        b.begin_phase(f"step{step}.fwd")
        y = b.alloc(1024, "fwd")
        b.op("make", [w, empty], [y])
        z = b.alloc(1024, "fwd")
        b.op("read", [y, x], [z])
        b.free(y)
        b.free(z)
    trace = b.finish()
    below = tuple(PlanTier("host", 2**30, 1.0, 1.0, 0.0, 0.0) for _ in range(tiers))
    return View(build(trace, np.full(trace.ops, 100)), 2**20, below)


def said(spec: str, v: View) -> str:
    policy = registry.get("plan", spec)
    rows = policy.schedule(v).actions
    return " ".join(f"{'-' if r['verb'] == EVICT else '+'}{'wx'[r['unit']]}@{r['at']}" for r in rows)


def test_what_leaves_when() -> None:
    assert said("periodic", view()) == "-w@2 -x@2 -w@4 -x@4 -w@6 -x@6"
    assert said("periodic(steps=2)", view()) == "-w@4 -x@4"
    assert said("periodic(steps=3, ahead=1)", view()) == "-w@6 -x@6 +w@6 +x@6"
    assert said("periodic(steps=4)", view()) == "" == said("periodic", view(tiers=0))


def test_every_zeroth_step_is_refused() -> None:
    with pytest.raises(PolicyError, match="'steps'"):
        said("periodic(steps=0)", view())
