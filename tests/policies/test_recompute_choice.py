"""Does a program from which chosen tensors are dropped still compute the same, and does it cost what was said?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_remat_plan import named, same_results

from gpusim.policies.plan.parts.swap.idle import idle, saved
from gpusim.policies.plan.parts.swap.layers import products
from gpusim.policies.plan.parts.swap.recompute import Recompute
from gpusim.policies.planning import PlanTier, View
from gpusim.programs.generate.synth import random_program
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace
from gpusim.trace.workload import Workload, build

HOST = PlanTier("host", 10**12, 10.0, 10.0, 1000.0, 1000.0)
TRACES = Path(__file__).parents[2] / "traces"


def timed(trace: Trace) -> Workload:
    """Every operator is known by its time (test_remat_plan), and the trace says the times."""
    work = named(trace)
    return replace(work, trace=replace(trace, duration=work.duration))


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 3), st.floats(0, 1))
def test_any_choice_computes_the_same(seed: int, ops: int, parameters: int, share: float) -> None:
    work = timed(random_program(seed, ops, parameters=parameters, largest=1 << 20, kept=0.1))
    stretches = idle(View(work, 1, (HOST,)))
    again = Recompute(work)
    able = np.isfinite(again.cost(stretches)) & (np.random.default_rng(seed).random(len(stretches.unit)) < share)
    made = again.instead_of(stretches.of(able))
    same_results(work, build(made, made.duration))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-small-train", "resnet50-train"])
def test_cheap_layers_alone_run_again(name: str) -> None:
    """No product runs twice, what runs again is no more than was said, and less memory is needed."""
    trace = load_trace(TRACES / f"{name}.npz")
    work = timed(trace)
    view = View(work, work.live_peak, (HOST,))
    stretches = idle(view)
    maps = stretches.of(saved(view, stretches))
    again = Recompute(work)
    cost = again.cost(maps, products(trace))
    cheap = np.isfinite(cost)
    made = again.instead_of(maps.of(cheap))
    after = build(made, made.duration)
    same_results(work, after)
    assert products(made).sum() == products(trace).sum()
    more = int(after.duration.sum() - work.duration.sum())
    assert 0 < more <= cost[cheap].sum()
    assert after.live_peak < 0.85 * work.live_peak
