"""Is a plan carried out to the nanosecond, as far as it can be, and nothing else?  See `hand_worked` for the machine.

A block of 10,240 bytes takes 1000 + 10240 / 10 = 2024 ns to the device and 1000 + 10240 / 8 = 2280 ns to the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, Steps, machine, play, spans, stalls, three_tensors_in_two_blocks
from plain_python import fingerprint, interpreted
from plan_policies import OWN, Written
from test_engine_agreement import program

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies.planning import ACTION, EVICT, PREFETCH, Schedule, View
from gpusim.referee import check
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.hand_worked


def planned(steps: Steps, *rows: tuple[int, ...], blocks: float = 2, **choices: Any) -> Result:
    """The steps under a plan of these rows, without any other eviction, refereed."""
    Written.rows = rows
    result = play(steps, choices.pop("changes", None), blocks=blocks, plan="written", use=OWN, **{"evict": "none", **choices})
    assert check(result, steps.trace()).violations == ()
    return result


def plan_counts(result: Result) -> list[int | float]:
    return [result.metrics[f"plan_{name}"] for name in ("evictions", "prefetches", "skipped")]


def test_a_plan_takes_the_place_of_an_evict_policy() -> None:
    """a leaves before kernel b (1), b before the second use of a (3), which comes back then: as LRU does it by itself.

    out a 1000 .. 3280, kernel c in its block 3280 .. 3780, out b 3280 .. 5560, in a 5560 .. 7584, kernel a 7584 .. 8284
    """
    steps = three_tensors_in_two_blocks()
    result = planned(steps, (1, EVICT, 0), (3, EVICT, 1), (3, PREFETCH, 0))
    assert spans(result) == spans(play(steps, blocks=2))
    assert spans(result)["kernel"] == [(0, 1000), (1000, 2000), (3280, 3780), (7584, 8284)]
    assert plan_counts(result) == [2, 1, 0]
    assert (result.metrics["prefetches"], result.metrics["prefetch_hits"]) == (1, 1)


def test_without_the_plan_nothing_leaves() -> None:
    assert play(three_tensors_in_two_blocks(), blocks=2, evict="none").outcome == "oom"


def test_what_comes_back_in_time_costs_nothing() -> None:
    """Room for four blocks: a leaves 1000 .. 3280 and returns beside the long kernel c, to its old block, at 3280."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    c = steps.alloc(2)
    steps.kernel(10_000, writes=(c,))
    steps.free(b)
    steps.kernel(10_000, writes=(c,))
    steps.kernel(700, reads=(a,))
    result = planned(steps, (1, EVICT, 0), (3, PREFETCH, 0), blocks=4.0)
    assert plan_counts(result) == [1, 1, 0]
    assert spans(result)["kernel"] == [(0, 1000), (1000, 2000), (2000, 12_000), (12_000, 22_000), (22_000, 22_700)]
    assert spans(result)["in"] == [(3280, 5304)]
    assert stalls(result) == {}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((1, EVICT, 1), "the operator uses it"),
        ((0, EVICT, 2), "it has not begun"),
        ((2, PREFETCH, 2), "it is there"),
        ((3, EVICT, 3), "it is empty"),
        ((1, PREFETCH, 2), "it has not begun"),
    ],
)
def test_what_cannot_be_done_is_skipped_and_counted(row: tuple[int, ...], why: str) -> None:
    steps = three_tensors_in_two_blocks()
    steps.alloc(0)
    steps.kernel(10)
    result = planned(steps, row, evict="lru")
    assert plan_counts(result) == [0, 0, 1]
    assert spans(result) == spans(play(steps, blocks=2))


def test_what_has_no_room_is_not_brought_in_and_pushes_nothing_out() -> None:
    """a comes back at the end only, by demand, and c leaves for it."""
    steps = three_tensors_in_two_blocks()
    steps.kernel(10)
    result = planned(steps, (1, EVICT, 0), (3, PREFETCH, 0), evict="lru")
    assert plan_counts(result) == [1, 0, 1]
    assert result.metrics["prefetches"] == 0


def test_a_full_host_keeps_the_plan_from_evicting() -> None:
    """Host memory for one and a half blocks: the second eviction is skipped; both tensors stay."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    steps.kernel(10)
    result = planned(steps, (2, EVICT, a), (2, EVICT, b), changes={"host.capacity": 1.5 * BLOCK})
    assert result.finished
    assert plan_counts(result) == [1, 0, 1]


def test_each_action_is_paid_before_the_launch() -> None:
    """Submission 100: kernel a paid at 100; kernel b's plan moves a out at 100, paid at 200, kernel b at 300."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(10, writes=(a,))
    steps.kernel(10, writes=(b,))
    result = planned(steps, (1, EVICT, a), changes={"launch.submit": 100.0})
    assert spans(result)["kernel"] == [(100, 110), (300, 310)]
    assert spans(result)["out"] == [(110, 110 + 2280)]


def test_a_plan_is_named_in_the_result_and_counts_as_an_oracle() -> None:
    result = planned(three_tensors_in_two_blocks(), (1, EVICT, 0), evict="lru")
    assert result.spec["plan"] == "written"
    assert result.oracle and result.spec["oracles"] == ["plan"]
    plain = play(three_tensors_in_two_blocks(), blocks=2)
    assert "plan" not in plain.spec and "plan_skipped" not in plain.metrics and plain.program is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((9, EVICT, 0, 0, 3), "names operator 9 in line 3, and there are 4"),
        ((0, 7, 0, 0, 3), "names verb 7 in line 3, and there are 2"),
        ((0, EVICT, 55, 0, 0), "names tensor 55, and there are 3"),
        ((0, EVICT, 0, 2, 4), "names tier 2 in line 4, and there are 1"),
    ],
)
def test_a_plan_that_names_what_is_not_there_is_refused(row: tuple[int, ...], said: str) -> None:
    at, verb, unit, tier, line = row

    @policy.plan
    def wrong(view: View) -> Schedule:
        return Schedule(np.array([(at, verb, unit, tier, line)], ACTION))

    with pytest.raises(PolicyError, match=f"policy 'wrong' {said}"):
        play(three_tensors_in_two_blocks(), blocks=2, plan=wrong)


def test_a_plan_has_to_answer_a_schedule() -> None:
    @policy.plan
    def mistaken(view: View) -> Schedule:
        return [(1, EVICT, 0)]  # type: ignore[return-value]

    with pytest.raises(PolicyError, match="policy 'mistaken' answers a list, not a Schedule"):
        play(three_tensors_in_two_blocks(), blocks=2, plan=mistaken)


def test_a_plan_that_fails_shows_its_line() -> None:
    @policy.plan
    def broken(view: View) -> Schedule:
        raise KeyError(view.tiers[0].name)

    with pytest.raises(PolicyError, match="policy 'broken' raised KeyError: 'host'"):
        play(three_tensors_in_two_blocks(), blocks=2, plan=broken)


# --- programs that a plan rewrites -----------------------------------------------------------------------------------------


@policy.plan
class Again:
    """Another program, of twice the operators; the plan then sees that one."""

    def rewrite(view: View) -> Trace:  # type: ignore[misc]
        assert Written.program is not None
        return Written.program

    def plan(view: View) -> Schedule:  # type: ignore[misc]
        assert view.work.trace.ops == 8
        return Schedule.of([(1, EVICT, 0)])


def test_a_rewritten_program_runs_instead_and_is_kept() -> None:
    """Recorded times, those that the caller gives and the roofline's reach the program that the policy makes."""
    twice = Steps()
    for _ in range(2):
        a, b = twice.alloc(), twice.alloc()
        twice.kernel(1000, writes=(a,))
        twice.kernel(1000, writes=(b,))
        c = twice.alloc()
        twice.kernel(500, writes=(c,))
        twice.kernel(700, reads=(a,))
        twice.free(a, b, c)
    Written.program = twice.trace()
    steps = three_tensors_in_two_blocks()
    result = play(steps, blocks=2, plan=Again)
    assert result.finished and result.program is Written.program
    assert result.metrics["kernels"] == 8 and plan_counts(result) == [1, 0, 0]
    assert result.spec["trace_hash"] == steps.trace().content_hash
    assert result.spec["footprint"] == 3 * BLOCK
    assert check(result, steps.trace()).violations == ()
    assert not check(replace(result, program=steps.trace()), steps.trace()).ok
    assert not check(result, twice.trace()).ok


def test_a_rewriting_policy_sees_the_times_of_the_run() -> None:
    seen: list[Any] = []

    @policy.plan
    class Looks:
        def rewrite(view: View) -> Trace:  # type: ignore[misc]
            seen.append(view.work.trace.duration.tolist())
            return view.work.trace

    steps = three_tensors_in_two_blocks()
    result = simulate(steps.trace(), machine(), place="first_fit", plan=Looks, durations=np.array([1, 2, 3, 4]))
    assert seen == [[1, 2, 3, 4]]
    assert result.program is None and result.metrics["compute_busy_ns"] == 10


# --- agreement -------------------------------------------------------------------------------------------------------------

SETS = (
    ("first_fit", "lru", "next_k"), ("pytorch", "belady", "none"), ("device", "none", "stride"), ("buddy", "arc", "none"),
)  # fmt: skip


def run(seed: int, **more: Any) -> tuple[Result, Trace]:
    trace, durations, capacity = program(seed)
    place, evict, prefetch = SETS[seed % len(SETS)]
    if evict == "none":
        capacity *= 2
    result = simulate(
        trace, catalogue.load("a100-pcie-40gb"), durations=durations, capacity_bytes=capacity, place=place, evict=evict,
        prefetch=prefetch, plan=f"scatter(seed={seed})", use=OWN, log=True, **more,
    )  # fmt: skip
    return result, trace


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(8))
def test_moves_at_random_are_right_under_any_policies(seed: int) -> None:
    result, trace = run(seed)
    assert result.finished
    assert check(result, trace).violations == ()
    evictions, prefetches, skipped = plan_counts(result)
    assert evictions > 20 and skipped > 20 and evictions + prefetches + skipped == 1000


@pytest.mark.agreement
def test_a_plan_in_a_thousand_steps_is_one_run() -> None:
    whole, _ = run(0)

    def look(env: Any, simulation: Any) -> Any:
        while True:
            yield env.timeout(whole.metrics["makespan_ns"] // 1000)

    stepped, _ = run(0, control=[look])
    assert stepped.metrics == whole.metrics


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_plans_agree() -> None:
    said = interpreted("test_engine_plans", "[t.fingerprint(t.run(seed)[0]) for seed in range(4)]")
    assert said == [fingerprint(run(seed)[0]) for seed in range(4)]
