"""Do copies that nothing waits for yet let others go first, and do those that are no longer wanted move nothing?

See `hand_worked` for the machine: a block takes 2024 ns to the device and 2280 ns to the host, one copy a direction at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, Steps, play, spans
from plain_python import fingerprint, interpreted
from plan_policies import OWN, Written
from test_engine_agreement import program
from test_engine_tiers import copies

from gpusim import policy
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies.planning import EVICT, PREFETCH
from gpusim.referee import check
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.hand_worked

AWAY = 30_000  # ns: when the host goes on after the kernel that hides the evictions


def four_away(*then: tuple[str, int]) -> Steps:
    """Tensors 0 to 3 are written; at operator 4 all may leave, and have by 30,000 + 40, when the host goes on."""
    steps = Steps()
    tensors = [steps.alloc() for _ in range(4)]
    for tensor in tensors:
        steps.kernel(10, writes=(tensor,))
    steps.kernel(AWAY)
    steps.sync()
    for what, tensor in then:
        if what == "free":
            steps.free(tensor)
        else:
            steps.kernel(10, reads=(tensor,) if what == "read" else ())
    return steps


def ahead(steps: Steps, *rows: tuple[int, ...], **choices: Any) -> Result:
    Written.rows = (*((4, EVICT, tensor) for tensor in range(4)), *rows)
    result = play(steps, blocks=8, plan="written", use=OWN, **{"evict": "none", **choices})
    assert check(result, steps.trace()).violations == ()
    return result


def into(result: Result) -> list[tuple[int, int]]:
    return [(start - AWAY - 40, end - AWAY - 40) for start, end in spans(result)["in"]]


def test_what_a_kernel_waits_for_goes_before_what_was_asked_for_earlier() -> None:
    """0 is on its way, 1 waits its turn; kernel 6 wants 2, which goes before 1."""
    steps = four_away(("nothing", 0), ("read", 2), ("read", 0))
    result = ahead(steps, (5, PREFETCH, 0), (5, PREFETCH, 1))
    assert into(result) == [(0, 2024), (2024, 4048), (4048, 6072)]
    assert result.log is not None
    order = result.log[(result.log["kind"] == log.START) & (result.log["b"] < 0)]["b"].tolist()
    assert order[4:] == [-3, -1, -3]
    kernel = spans(result)["kernel"][-2]
    assert kernel == (AWAY + 40 + 4048, AWAY + 40 + 4058)


def test_a_prefetch_that_a_kernel_wants_moves_up() -> None:
    """0 is on its way, 1 and 2 wait; kernel 6 wants 2, which goes before 1."""
    steps = four_away(("nothing", 0), ("read", 2))
    result = ahead(steps, (5, PREFETCH, 0), (5, PREFETCH, 1), (5, PREFETCH, 2))
    assert spans(result)["kernel"][-1] == (AWAY + 40 + 4048, AWAY + 40 + 4058)
    assert [result.metrics[f"prefetch_{name}"] for name in ("promoted", "cancelled", "hits", "wasted")] == [1, 0, 1, 0]
    assert result.metrics["h2d_bytes"] == 3 * BLOCK and result.metrics["swap_ins"] == 3
    assert result.log is not None and np.count_nonzero(result.log["kind"] == log.CANCEL) == 1


def test_a_prefetch_of_what_ends_before_it_starts_moves_nothing() -> None:
    steps = four_away(("nothing", 0), ("free", 1), ("nothing", 0))
    result = ahead(steps, (5, PREFETCH, 0), (5, PREFETCH, 1), (5, PREFETCH, 2))
    assert into(result) == [(0, 2024), (2024, 4048)]
    assert [result.metrics[name] for name in ("h2d_bytes", "swap_ins", "prefetches")] == [2 * BLOCK, 2, 3]
    assert [result.metrics[f"prefetch_{name}"] for name in ("cancelled", "wasted")] == [1, 0]


def test_a_prefetch_of_what_leaves_again_before_it_starts_moves_nothing() -> None:
    """1 leaves again while it waits for 0; it comes back when kernel 7 wants it, after 0."""
    steps = four_away(("nothing", 0), ("nothing", 0), ("read", 1))
    result = ahead(steps, (5, PREFETCH, 0), (5, PREFETCH, 1), (6, EVICT, 1))
    assert into(result) == [(0, 2024), (2024, 4048)]
    assert (result.metrics["prefetch_cancelled"], result.metrics["clean_drops"]) == (1, 1)
    assert spans(result)["kernel"][-1] == (AWAY + 40 + 4048, AWAY + 40 + 4058)


def test_a_prefetch_that_has_started_is_finished_and_wasted() -> None:
    steps = four_away(("nothing", 0), ("nothing", 0))
    result = ahead(steps, (5, PREFETCH, 0), (6, EVICT, 0))
    assert into(result) == [(0, 2024)]
    assert (result.metrics["prefetch_cancelled"], result.metrics["prefetch_wasted"]) == (0, 1)


def test_an_eviction_that_someone_waits_for_goes_before_planned_ones() -> None:
    """Room for four.  At kernel 4 the plan sends 0 and 1 away; then 4 wants room twice: 0's block, then 2 leaves by LRU.

    out 0 10,000 .. 12,280 was planned, and so is 1 after it; 2 leaves for the second request, before 1: 12,280 .. 14,560.
    """
    steps = Steps()
    tensors = [steps.alloc() for _ in range(4)]
    for tensor in tensors:
        steps.kernel(10, writes=(tensor,))
    steps.kernel(9960)
    steps.sync()
    steps.kernel(10)
    steps.kernel(10, writes=(steps.alloc(3),))
    Written.rows = ((5, EVICT, 0), (5, EVICT, 1))
    result = play(steps, blocks=4, plan="written", use=OWN)
    assert check(result, steps.trace()).violations == ()
    assert result.log is not None
    sent = result.log[result.log["kind"] == log.COPY]
    assert [(int(r["a"]), int(r["b"]) >> 16) for r in sent] == [(0, 1), (1, 1), (2, 0)]
    assert [(start, end) for *_, start, end in copies(result)] == [(10_000, 12_280), (14_560, 16_840), (12_280, 14_560)]


# --- release ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_watermark_daemon_makes_room_before_it_is_needed() -> None:
    """Room for four blocks.  The third leaves one free, below 30 %: until two are free, one leaves: 0, the least recently used.

    kernel 0 0 .. 1000, kernel 1 .. 2000; c's request wakes the daemon: out 0 1000 .. 3280; kernel c 2000 .. 3000; d finds a
    block that was free: 3000 .. 4000, and 1 leaves 3280 .. 5560.
    """
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    for _ in range(2):
        steps.kernel(1000, writes=(steps.alloc(),))
    result = play(steps, blocks=4, place="next_fit", release="watermark(low=0.3, high=0.5)")
    assert check(result, steps.trace()).violations == ()
    assert spans(result)["out"] == [(1000, 3280), (3280, 5560)]
    assert spans(result)["kernel"] == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]
    assert (result.metrics["release_evictions"], result.metrics["release_bytes"]) == (2, 2 * BLOCK)
    assert result.spec["release"] == "watermark(low=0.3, high=0.5)"
    plain = play(steps, blocks=4)
    assert "release" not in plain.spec and "release_bytes" not in plain.metrics


def test_what_may_not_leave_stays() -> None:
    """Nothing leaves without an evict policy, and nothing into a full host; the run goes on."""
    steps = Steps()
    steps.kernel(10, writes=tuple(steps.alloc() for _ in range(3)))
    for choices in ({"evict": "none"}, {"changes": {"host.capacity": 10.0}}):
        result = play(steps, blocks=4, release="watermark(low=0.9, high=1)", **choices)
        assert result.finished and result.metrics["swap_outs"] == 0


@pytest.mark.slow
def test_a_release_policy_that_asks_for_what_is_not_there_is_refused() -> None:
    @policy.release
    class Greedy:
        def state(capacity, params):  # type: ignore[no-untyped-def,misc]
            return np.zeros(1, np.int64), np.zeros(1)

        def release(S, X, P, held, allocated, capacity, size, now):  # type: ignore[no-untyped-def,misc]
            return allocated + 1

    steps = Steps()
    steps.kernel(10, writes=(steps.alloc(),))
    with pytest.raises(PolicyError, match=f"policy 'Greedy' wants {BLOCK + 1} bytes to leave, of {BLOCK} that are allocated"):
        play(steps, blocks=4, release=Greedy)


def test_marks_the_wrong_way_round_are_refused() -> None:
    steps = Steps()
    steps.alloc()
    with pytest.raises(PolicyError, match="low mark"):
        play(steps, blocks=4, release="watermark(low=0.5, high=0.1)")


# --- the referee -----------------------------------------------------------------------------------------------------------


def story() -> tuple[Result, Trace]:
    steps = four_away(("nothing", 0), ("free", 1), ("nothing", 0))
    return ahead(steps, (5, PREFETCH, 0), (5, PREFETCH, 1)), steps.trace()


def said_of(result: Result, trace: Trace, rows: Any) -> str:
    return "; ".join(str(v) for v in check(replace(result, log=rows), trace).violations)


def test_the_referee_knows_what_was_cancelled() -> None:
    result, trace = story()
    assert result.log is not None
    at = int(np.flatnonzero(result.log["kind"] == log.CANCEL)[0])
    assert "never ends" in said_of(result, trace, np.delete(result.log, at))
    rows = result.log.copy()
    rows["addr"][at] -= 1  # the copy that has run
    assert "is cancelled" in said_of(result, trace, rows)


# --- agreement -------------------------------------------------------------------------------------------------------------

SETS = (
    ("first_fit", "lru", "next_k", "watermark(low=0.2, high=0.4)"), ("pytorch", "belady", "oracle", "none"),
    ("device", "cost_aware", "stride", "watermark"), ("tlsf", "arc", "none", "watermark(low=0.1, high=0.3)"),
)  # fmt: skip


def run(seed: int, **more: Any) -> tuple[Result, Trace]:
    trace, durations, capacity = program(seed)
    place, evict, prefetch, release = SETS[seed % len(SETS)]
    result = simulate(
        trace, catalogue.load("a100-pcie-40gb"), durations=durations, capacity_bytes=capacity, place=place, evict=evict,
        prefetch=prefetch, release=release, log=True, use=OWN, **{"plan": f"scatter(seed={seed}, actions=300)", **more},
    )  # fmt: skip
    return result, trace


@pytest.mark.conformance
@pytest.mark.parametrize("plan", ["none", "scatter(actions=300)"])
@pytest.mark.parametrize("seed", range(8))
def test_looking_ahead_is_right_under_any_policies(seed: int, plan: str) -> None:
    result, trace = run(seed, plan=plan)
    assert result.finished
    assert check(result, trace).violations == ()


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_runs_agree() -> None:
    said = interpreted("test_engine_ahead", "[t.fingerprint(t.run(seed)[0]) for seed in range(4)]")
    assert said == [fingerprint(run(seed)[0]) for seed in range(4)]


@pytest.mark.parametrize("batch", [1, 50])
def test_a_release_policy_beside_an_evict_policy_in_plain_python(batch: int) -> None:
    @policy.evict(name=f"oldest_{batch}", columns=True)
    def oldest(last_use):  # type: ignore[no-untyped-def]
        return last_use

    trace, durations, capacity = program(3)
    result = simulate(
        trace, catalogue.load("a100-pcie-40gb"), durations=durations, capacity_bytes=capacity, place="first_fit", evict=oldest,
        release="watermark(low=0.2, high=0.4)", log=True,
    )  # fmt: skip
    assert result.finished and result.metrics["release_evictions"] > 10
    assert check(result, trace).violations == ()
