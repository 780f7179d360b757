"""Is the traffic bound below every policy, and reached where it can be?"""

from __future__ import annotations

import numpy as np
import pytest
from hand_worked import BLOCK, Steps

from gpusim.engine.run.bounds import swap_in_bound
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.policies import registry
from gpusim.policies.units import TENSORS, units
from gpusim.programs.generate.synth import random_program
from gpusim.results.metrics import avoidable
from gpusim.results.result import Result
from gpusim.trace.workload import Workload, build

pytestmark = pytest.mark.formulas

EVICT = [e.name for e in registry.entries("evict") if e.builtin and e.name != "none" and TENSORS in units(e)]
PREFETCH = [e.name for e in registry.entries("prefetch") if e.builtin and TENSORS in units(e)]


def workload(steps: Steps) -> Workload:
    trace = steps.trace()
    return build(trace, trace.duration)


def alternating(first_written: bool = False) -> Workload:
    """a, b, a, b, each one block."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    for i in range(4):
        tensor = (a, b)[i % 2]
        steps.kernel(10, *(((), (tensor,)) if first_written and i < 2 else ((tensor,), ())))
    return workload(steps)


def test_two_tensors_and_room_for_one_and_a_half() -> None:
    """Both came with data, half of b does not fit.  Each use of b, and of a after it, brings in half a block for which the
    half of the other leaves: b, a, b.
    """
    assert swap_in_bound(alternating(), BLOCK * 3 // 2) == 3 * BLOCK // 2


def test_bytes_that_were_never_there_are_not_brought_in() -> None:
    """Both are written first: b's writing pushes half of a out; that returns for half of b, which returns: twice."""
    assert swap_in_bound(alternating(first_written=True), BLOCK * 3 // 2) == BLOCK


def test_room_for_one_of_two() -> None:
    """Every use but the first of a brings a whole block: b, a, b."""
    assert swap_in_bound(alternating(), BLOCK) == 3 * BLOCK


@pytest.mark.parametrize(("freed", "blocks", "bound"), [(True, 2, 0), (False, 2, 1), (True, 1, 2), (False, 1, 3)])
def test_a_freed_tensor_makes_room(freed: bool, blocks: int, bound: int) -> None:
    """a, b and c are written, b and c read; a is freed before c is made, or read at the end.

    Two blocks: with a freed nothing has to leave, else a does and returns.  One block: every read brings one in.
    """
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(10, writes=(a,))
    steps.kernel(10, writes=(b,))
    if freed:
        steps.free(a)
    c = steps.alloc()
    steps.kernel(10, writes=(c,))
    steps.kernel(10, reads=(b,))
    steps.kernel(10, reads=(c,))
    if not freed:
        steps.kernel(10, reads=(a,))
    assert swap_in_bound(workload(steps), blocks * BLOCK) == bound * BLOCK


def test_the_tensors_of_an_operator_are_there_together() -> None:
    """Two blocks.  c's writing pushes out one of a and b; that returns, for which c leaves (1); c returns, for which one of
    a and b leaves (2); that returns (3).
    """
    steps = Steps()
    a, b, c = steps.alloc(), steps.alloc(), steps.alloc()
    for tensor in (a, b, c):
        steps.kernel(10, writes=(tensor,))
    for reads in ((a, b), (c,), (a, b)):
        steps.kernel(10, reads=reads)
    assert swap_in_bound(workload(steps), 2 * BLOCK) == 3 * BLOCK


def drawn(seed: int) -> Workload:
    rng = np.random.Generator(np.random.PCG64(seed))
    return build(random_program(seed, 200, largest=16 << 20, mean_life=25.0), rng.integers(1000, 100_000, 200))


@pytest.mark.parametrize("seed", range(5))
def test_with_room_for_everything_nothing_comes_back(seed: int) -> None:
    """Zero from the peak of the live bytes on; and more memory never needs more traffic."""
    work = drawn(seed)
    bounds = [swap_in_bound(work, work.live_peak * share // 10) for share in range(1, 11)]
    assert bounds[-1] == 0 and bounds[0] > 0
    assert bounds == sorted(bounds, reverse=True)


def replay(work: Workload, capacity: int, evict: str, prefetch: str = "none") -> Result:
    """First fit, whose blocks of one size leave no holes."""
    return simulate(work.trace, catalogue.load("a100-pcie-40gb"), place="first_fit", evict=evict, prefetch=prefetch,
                    capacity_bytes=capacity, work=work)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("evict", EVICT)
def test_no_policy_is_below_the_bound(evict: str) -> None:
    swapped = 0
    for seed in range(4):
        work = drawn(seed)
        for share in (0.9, 0.6):
            capacity = int(work.live_peak * share)
            for prefetch in PREFETCH:
                result = replay(work, capacity, evict, prefetch)
                if result.finished:
                    swapped += result.metrics["swap_ins"]
                    assert result.metrics["h2d_bytes"] >= swap_in_bound(work, capacity)
    assert swapped > 100


def one_at_a_time(seed: int) -> Workload:
    """Tensors of one block, used one by one, made and written at the first use."""
    steps, rng = Steps(), np.random.Generator(np.random.PCG64(seed))
    made: dict[int, int] = {}
    for name in (rng.zipf(1.3, 400) % 30).tolist():
        if name in made:
            steps.kernel(10, reads=(made[name],))
        else:
            made[name] = steps.alloc()
            steps.kernel(10, writes=(made[name],))
    return workload(steps)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [5, 15, 25])
def test_belady_reaches_the_bound_on_equal_tensors_and_no_policy_is_below(blocks: int) -> None:
    for seed in range(3):
        work = one_at_a_time(seed)
        misses = {evict: replay(work, blocks * BLOCK, evict).metrics["swap_ins"] for evict in EVICT}
        assert misses["belady"] * BLOCK == swap_in_bound(work, blocks * BLOCK)
        assert min(misses.values()) == misses["belady"] < misses["fifo"]


def test_what_better_placement_would_have_saved() -> None:
    """A run that kept all is measured against the plan, one that evicted against what it had there at once."""
    numbers = {"reserved_peak_bytes": 100, "requested_peak_bytes": 70, "bound_live_bytes": 75, "bound_plan_bytes": 80}
    assert avoidable({**numbers, "swap_outs": 0, "clean_drops": 0}) == pytest.approx(0.20)
    assert avoidable({**numbers, "swap_outs": 3, "clean_drops": 0}) == pytest.approx(0.30)
    assert avoidable({**numbers, "swap_outs": 0, "clean_drops": 1}) == pytest.approx(0.30)
    unplanned = {name: v for name, v in numbers.items() if name != "bound_plan_bytes"}
    assert avoidable({**unplanned, "swap_outs": 0, "clean_drops": 0}) == pytest.approx(0.25)
    assert avoidable({**numbers, "reserved_peak_bytes": 60, "swap_outs": 0, "clean_drops": 0}) == 0
