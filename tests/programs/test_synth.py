"""Are synthetic programs valid for any argument, the same for the same seed, and shaped as they say?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.programs.generate.synth import random_program, training, variable_length
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import ALLOC, FREE, OP


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**63 - 1),
    ops=st.integers(0, 200),
    mean_life=st.floats(0.5, 300),
    uses=st.floats(0, 6),
    largest=st.integers(1, 2**40),
    parameters=st.integers(0, 9),
    kept=st.floats(0, 1),
    streams=st.integers(1, 4),
)
def test_random_programs_are_valid(
    seed: int, ops: int, mean_life: float, uses: float, largest: int, parameters: int, kept: float, streams: int
) -> None:
    # make_trace checks every rule of the trace: reaching the assertions is most of the test
    trace = random_program(
        seed, ops, mean_life=mean_life, uses=uses, largest=largest, parameters=parameters, kept=kept, streams=streams
    )
    assert (trace.ops, trace.tensors) == (ops, ops + parameters)
    assert trace.size.max(initial=0) <= largest and trace.stream.max(initial=0) < streams
    assert (np.diff(trace.write_start) >= 1).all()  # each operator makes a tensor


def test_the_same_seed_gives_the_same_trace_and_another_does_not() -> None:
    assert random_program(5, 300) == random_program(5, 300) != random_program(6, 300)
    assert variable_length(1, 4) == variable_length(1, 4) != variable_length(2, 4)


def test_a_seed_keeps_its_meaning() -> None:
    assert random_program(1, 50).size[:6].tolist() == [8068, 12419, 1170069, 54475276, 1, 12]


@settings(max_examples=20)
@given(steps=st.lists(st.integers(1, 5000), min_size=1, max_size=4), layers=st.integers(1, 6))
def test_training_steps_of_any_length_are_valid(steps: list[int], layers: int) -> None:
    trace = training(steps, layers=layers, width=64)
    assert trace.ops == 3 * layers * len(steps) and len(trace.phases) == 3 * len(steps)


@pytest.mark.hand_worked
def test_a_training_step_by_hand() -> None:
    # Two layers of width 4, 8 tokens: parameters, moments and gradients 4*4*4*2 = 128 bytes each, activations 8*4*2 = 64.
    trace = training(1, layers=2, width=4, tokens=8)
    assert trace.size.tolist() == [128] * 8 + [64] * 4
    live = live_bytes(trace, trace.size)
    # fwd: +a0 +a1 | bwd of layer 1: +g1, a1 leaves | bwd of layer 0: +g0, a0 g1 g0 leave | opt: nothing
    assert [int(b) - 1024 for b in live[8:]] == [0, 64, 64, 128, 128, 128, 192, 192, 128, 192, 192, 128, 64, 0, 0, 0, 0]
    assert trace.flops.tolist() == [8 * 16 * 8] * 2 + [16 * 16 * 8] * 2 + [0] * 2
    assert trace.kind[-2:].tolist() == [OP, OP] and (trace.kind == ALLOC).sum() == 12 and (trace.kind == FREE).sum() == 4


def test_variable_lengths_vary_within_their_bounds() -> None:
    trace = variable_length(3, 12, shortest=100, longest=200, layers=1, width=1)
    tokens = trace.size[4::2] // 2
    assert len(set(tokens.tolist())) > 3 and tokens.min() >= 100 and tokens.max() <= 200
