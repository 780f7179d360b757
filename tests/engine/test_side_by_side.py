"""Do programs that run at once, each on a device of its own, know nothing of each other?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_worked import begin, three_tensors_in_two_blocks
from plain_python import fingerprint, interpreted

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine import state
from gpusim.engine.run.side_by_side import SideBySide
from gpusim.engine.run.simulate import prepared, simulate, simulate_together
from gpusim.machine import catalogue
from gpusim.programs.generate.synth import random_program
from gpusim.trace import workload

MACHINES = ("a100-pcie-40gb", "a100-sxm4-80gb", "rtx-2080-ti")
CHOICES = (
    {"place": "first_fit", "evict": "lru", "prefetch": "next_k"}, {"place": "pytorch", "evict": "belady", "prefetch": "oracle"},
    {"place": "device", "evict": "cost_aware", "prefetch": "stride"}, {"place": "best_fit", "evict": "random"},
    {"place": "tlsf", "evict": "arc", "defrag": "slide"}, {"place": "buddy", "evict": "cost_aware(sample=3)"},
)  # fmt: skip


def programs(count: int) -> list[dict[str, Any]]:
    """Random programs of one to three streams under different policies, with memory for 40 to 150 % of what they hold."""
    out = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        trace = random_program(seed, int(rng.integers(20, 200)), streams=1 + seed % 3, mean_life=30.0, largest=16 << 20)
        work = workload.build(trace, rng.integers(0, 300_000, trace.ops))
        capacity = int(work.live_peak * rng.choice([0.4, 0.6, 0.8, 1.5])) + (20 << 20)
        out.append({
            "trace": trace, "profile": catalogue.load(MACHINES[seed % len(MACHINES)]), "work": work, "log": True, "seed": seed,
            "capacity_bytes": capacity, **CHOICES[seed % len(CHOICES)],
        })  # fmt: skip
    return out


@pytest.mark.slow
def test_a_hundred_programs_at_once_are_each_as_it_is_alone() -> None:
    runs = programs(100)
    outcomes = set()
    for together, run in zip(simulate_together(runs), runs, strict=True):
        alone = simulate(**run)
        assert together.outcome == alone.outcome and together.failure == alone.failure
        assert together.metrics == alone.metrics
        assert together.log is not None and alone.log is not None and np.array_equal(together.log, alone.log)
        assert all(np.array_equal(together.timeline[name], alone.timeline[name]) for name in alone.timeline)
        outcomes.add(alone.outcome)
    assert outcomes == {"finished", "oom"}


def fingerprints(count: int) -> list[Any]:
    """What several programs at once left behind, as plain values."""
    return [fingerprint(result) for result in simulate_together(programs(count))]


@pytest.mark.slow
@pytest.mark.agreement
def test_compiled_and_interpreted_runs_agree() -> None:
    assert interpreted("test_side_by_side", "t.fingerprints(6)") == fingerprints(6)


@pytest.mark.parametrize("lookahead", [0, 1, 100_000])
def test_programs_that_take_turns_are_each_as_it_is_alone(lookahead: int) -> None:
    each = [prepared(**run) for run in programs(12)]
    SideBySide([run.simulation for run in each], lookahead).advance(state.NEVER)
    for run, alone in zip(each, (simulate(**run) for run in programs(12)), strict=True):
        assert fingerprint(run.result()) == fingerprint(alone)


def test_no_program_is_ahead_of_time() -> None:
    both = [begin(run["trace"], run["profile"], None, run["work"].duration) for run in programs(2)]
    beside = SideBySide(both)
    for until in range(0, 2_000_000, 50_000):
        assert beside.advance(until) == state.REACHED
        assert [simulation.now for simulation in both] == [until, until]
    assert beside.advance(state.NEVER) == state.FINISHED
    assert {simulation.reason for simulation in both} == {state.FINISHED}
    assert beside.now == max(simulation.now for simulation in both) > min(simulation.now for simulation in both)


def test_runs_of_one_workload_share_what_they_only_read() -> None:
    run = programs(1)[0]
    one, other = (prepared(**run).simulation.program for _ in range(2))
    shared = {name for name, a, b in zip(one._fields, one, other, strict=True) if np.shares_memory(a, b)}
    assert shared >= {"instructions", "duration", "carried", "bytes", "clock", "acc_start", "acc_unit", "acc_write", "acc_next"}


def test_a_program_that_runs_out_of_memory_ends_alone() -> None:
    steps, profile = three_tensors_in_two_blocks(), catalogue.load(MACHINES[0])
    run = {"trace": steps.trace(), "profile": profile, "place": "first_fit"}
    small, large = simulate_together([{**run, "capacity_bytes": 1 << 10}, run])
    assert (small.outcome, large.outcome) == ("oom", "finished")
    assert large.metrics == simulate(**run).metrics


def test_the_policy_that_fails_is_named_among_several() -> None:
    @policy.evict
    class Broken:
        """Fails at its first victim."""

        def victim(self, need: int, locked: Any) -> list[int]:
            raise ValueError("no idea")

    good, bad, other = programs(3)
    with pytest.raises(PolicyError, match=r"Broken.*no idea"):
        simulate_together([good, {**bad, "evict": Broken, "capacity_bytes": bad["work"].live_peak // 2 + (20 << 20)}, other])
