"""The modelled cost in the serving loop: the clock has the steps' times, and their parts are summed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.engine.serving.modelled import ModelledCost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.machine import catalogue
from gpusim.machine.serving.build import ServedStepTimes, step_times
from gpusim.machine.serving.shape import ServedModel
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

pytestmark = pytest.mark.hand_worked


@pytest.fixture(scope="module")
def times() -> ServedStepTimes:
    """Two layers on one H100, by the kernel-time model alone."""
    model = ServedModel("small", 2, 1024, 8, 2, 128, 2048, 4096)
    return step_times(model, catalogue.load("h100-sxm-80gb"), "vllm@0.11", folder=Path("no-tables"), most_requests=4)


def served(times: ServedStepTimes, prompt: list[int], output: list[int]) -> tuple[ServiceRun, ModelledCost]:
    requests = request_table(np.zeros(len(prompt), np.int64), prompt, output)
    cost = ModelledCost(times)
    scheduler = get("schedule", "vllm@0.11(enable_prefix_caching=0)").start(requests, EngineLimits(200, 16, 4, 512, 512))
    run = ServiceRun(requests, [Engine("one", scheduler, cost)])
    run.advance()
    return run, cost


def test_prefill_and_decode_of_two(times: ServedStepTimes) -> None:
    """Prompts of 100 and 50 tokens, outputs of 3 and 2: both prompts, both one token, the longer one more."""
    run, cost = served(times, [100, 50], [3, 2])
    steps = [times.of([0, 0], [100, 50]), times.of([100, 50], [1, 1]), times.of([101], [1])]
    assert run.now == sum(step.ns for step in steps)
    spent = cost.spent()
    assert spent.ns == run.now
    assert spent.parts == {part: sum(step.parts[part] for step in steps) for part in spent.parts}
    assert spent.low == pytest.approx(sum(step.low for step in steps))
    assert spent.high == pytest.approx(sum(step.high for step in steps))


def test_a_prompt_in_chunks(times: ServedStepTimes) -> None:
    """450 tokens after one that took 100 of the first step's 512: 412 of them, then 38 beside the other's token."""
    run, cost = served(times, [100, 450], [2, 1])
    steps = [times.of([0, 0], [100, 412]), times.of([100, 412], [1, 38])]
    assert run.now == cost.spent().ns == sum(step.ns for step in steps)
