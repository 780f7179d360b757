"""Is a user's allocator stopped at the first block that cannot be, and otherwise left alone?"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bump_allocator import BUMP
from hand_worked import BLOCK, Steps, machine, play

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.policies import registry
from gpusim.policies.place.parts.guard import guarded
from gpusim.programs.generate.synth import random_program
from gpusim.trace import workload


@pytest.fixture
def bump(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(BUMP)
    return file


def three() -> Steps:
    """Tensors 0, 1 and 2 of one block each, of 10,240 bytes."""
    steps = Steps()
    for _ in range(3):
        steps.kernel(1000, writes=(steps.alloc(),))
    return steps


@pytest.mark.slow
def test_an_allocator_that_keeps_its_blocks_apart_runs(bump: Path) -> None:
    assert play(three(), blocks=3, place="bump", use=[bump]).metrics["allocated_peak_bytes"] == 3 * BLOCK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("bump(third=-1)", "placed unit 2 at 20,479 .. 30,719, which overlaps unit 1 at 10,240 .. 20,480"),
        ("bump(third=-20480)", "placed unit 2 at 0 .. 10,240, which overlaps unit 0 at 0 .. 10,240"),
        ("bump(third=-15000)", "placed unit 2 at 5,480 .. 15,720, which overlaps unit 0 at 0 .. 10,240"),
        ("bump(third=1)", "placed unit 2 at 20,481 .. 30,721, beyond the 30,720 bytes that it may hold"),
        ("bump(less=1)", "placed unit 2 at 20,480 .. 30,719, but the unit has 10,240 bytes"),
    ],
)
def test_a_block_that_cannot_be_is_refused_at_once(bump: Path, spec: str, says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        play(three(), blocks=3, place=spec, use=[bump])
    assert caught.value.message == f"policy '{spec.split('(')[0]}' {says}"
    assert caught.value.where == f"{bump}:7"


@pytest.mark.slow
def test_a_freed_block_may_be_given_again(bump: Path) -> None:
    """The first tensor is gone before the third takes its place."""
    steps = Steps()
    first = steps.alloc()
    steps.alloc()
    steps.free(first)
    steps.kernel(1000, writes=(steps.alloc(),))
    assert play(steps, blocks=3, place="bump(third=-20480)", use=[bump]).finished
    with pytest.raises(PolicyError, match=r"unit 2 at 1 .. 10,241, which overlaps unit 1 at 10,240 .. 20,480"):
        play(steps, blocks=3, place="bump(third=-20479)", use=[bump])


@pytest.mark.parametrize("name", ["first_fit", "cuda_malloc"])
def test_the_guard_changes_nothing(name: str) -> None:
    """A built-in allocator as a user's gives the same metrics, under eviction, with and without memory given back."""
    module = importlib.import_module(f"gpusim.policies.place.{name}")
    verbs = {verb: getattr(module, verb).py_func for verb in ("alloc", "free", "release", "largest")}
    theirs: Any = policy.place(type(f"my_{name}", (), {**verbs, "PARAMS": module.PARAMS, "state": module.state}))
    for seed in range(3):
        trace = random_program(seed, 400, largest=16 << 20)
        work = workload.build(trace, np.full(trace.ops, 10_000))
        given = {"capacity_bytes": int(0.7 * work.live_peak), "work": work}
        ours = simulate(trace, machine(), place=name, **given)
        assert ours.metrics["swap_outs"] > 0
        assert simulate(trace, machine(), place=theirs, **given).metrics == ours.metrics


def test_a_verb_that_the_guard_does_not_know_is_not_offered() -> None:
    first_fit = registry.get("place", "first_fit")
    verbs = {verb: getattr(first_fit, verb) for verb in ("alloc", "free", "release", "largest")}
    assert set(guarded(first_fit.state, {**verbs, "shuffle": first_fit.largest})) == {"state", *verbs}


@pytest.mark.agreement
def test_interpreted_verbs_are_guarded_as_well(bump: Path) -> None:
    script = """
import sys
from bump_allocator import BUMP
from hand_worked import Steps, play
steps = Steps()
for _ in range(3):
    steps.kernel(1000, writes=(steps.alloc(),))
play(steps, blocks=3, place="bump(third=-1)", use=sys.argv[1:])
"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(["tests/support", "."])}
    command = [sys.executable, "-c", script, str(bump)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
    assert "unit 2 at 20,479 .. 30,719, which overlaps unit 1 at 10,240 .. 20,480" in done.stderr
