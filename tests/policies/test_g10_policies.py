"""Do G10's planner and DeepUM's prefetcher decide by hand-worked rules, and otherwise than their neighbours?"""

from __future__ import annotations

import numpy as np
import pytest
from hand_worked import BLOCK, GIB, Steps, machine, play
from test_plan_policies import HOST, Program, plan

from gpusim.engine.run.simulate import simulate
from gpusim.policies import registry
from gpusim.policies.contract import ABSENT, ARRIVING, DEVICE
from gpusim.policies.contract import HOST as AWAY
from gpusim.policies.plan.parts.migration import FLASH, Costs, Lane
from gpusim.policies.planning import PlanTier
from gpusim.referee import check
from gpusim.studies.g10.arena import Arena

pytestmark = pytest.mark.hand_worked

NVME = PlanTier("nvme", 10**9, 5.0, 5.0, 3000.0, 3000.0)  # two blocks: 7,096 ns


def crowd() -> Program:
    """a (1 block) and b (2) are idle while t (3) is there; operators of 10 us.  Blocks alive: 2 4 4 7 7 7 7 7 7 7 4 4 4."""
    p = Program()
    p.new("param", s=1)
    p.op("make", "s", a=1)          # 0
    p.op("make", "s", b=2)          # 1
    p.op("wait", "s")               # 2
    p.op("make", "s", t=3)          # 3
    for _ in range(5):
        p.op("use", "t")            # 4 .. 8
    p.op("use", "t", ends="t")      # 9
    p.op("wait", "s")               # 10
    p.op("read", "b")               # 11
    p.op("read", "a")               # 12
    return p


def test_the_stretch_with_the_most_benefit_leaves() -> None:
    """Memory for six: one block must go.  a is idle longer, but b is in the way with twice the bytes.

    b has left during operator 2 and starts back with operator 10: before that it would be one block too much.
    """
    assert crowd().said(plan("g10", crowd().view(6))) == "-b@2 +b@10"


def test_as_many_leave_as_it_takes() -> None:
    """Memory for four: b is not enough.  a, idle longer than s, leaves at once and comes back when both fit."""
    assert crowd().said(plan("g10(target=1)", crowd().view(4))) == "-a@1 -b@2 +b@10 +a@10"
    assert len(plan("g10", crowd().view(7)).actions) == 0


def test_long_stretches_go_to_the_last_tier() -> None:
    """b's 90 us are longer than 2.5 copies to the disk, of 7,096 ns each; with delta=12, of 14 copies, they are not."""
    two = crowd().view(6, (HOST, NVME))
    assert plan("g10", two).actions["to"].tolist() == [2, 0]
    assert plan("g10(delta=12)", two).actions["to"].tolist() == [1, 0]
    assert plan("g10", crowd().view(6)).actions["to"].tolist() == [1, 0]


def test_it_differs_from_its_neighbours() -> None:
    """vDNN and SuperNeurons move by layers, Capuchin by uses, SwapAdvisor by search: none leaves a and moves b like this."""
    said = crowd().said(plan("g10", crowd().view(6)))
    for other in ("capuchin", "tflms", "none", "swapadvisor(generations=2)"):
        assert crowd().said(plan(other, crowd().view(6))) != said, other


@pytest.mark.conformance
def test_a_plan_runs_and_passes_the_referee() -> None:
    trace = crowd().builder.finish()
    result = simulate(
        trace, machine(), capacity_bytes=6 * BLOCK, place="first_fit", evict="lru", plan="g10(target=1)", log=True
    )
    assert result.metrics["plan_evictions"] == 1 and result.metrics["plan_prefetches"] == 1
    assert check(result, trace).ok


def test_what_a_lane_carries() -> None:
    """Kernels of 10, 20 and 10 us; 4 bytes/ns in all, 1 of them for flash."""
    lane = Lane(np.array([0.0, 10.0, 30.0, 40.0]), Costs(4.0, 1.0, 0.0, 0.0, 0))
    assert (lane.until(FLASH, 15, 0), lane.since(FLASH, 15, 3), lane.until(FLASH, 99, 0)) == (1, 1, 2)
    lane.book(FLASH, 15, 0)
    assert lane.used.tolist() == [[10.0, 5.0, 0.0], [10.0, 5.0, 0.0]]
    lane.book(1, 70, 1)  # of the 75 bytes that are left of kernel 1: flash has 10 of its 15 left only in part
    assert lane.used.tolist() == [[10.0, 20.0, 0.0], [10.0, 75.0, 0.0]]


def proposals(spec: str, kernel: int, where: list[int]) -> list[int]:
    """What is asked for after `kernel`, of kernels that use one unit each: 0, 1, 2, ..."""
    policy = registry.get("prefetch", spec)
    n = len(where)
    S = policy.state(n, n, policy.params)
    out = np.zeros(n, np.int64)
    count = policy.propose(S, kernel, np.arange(n + 1), np.arange(n), np.array(where, np.uint8), out)
    return out[:count].tolist()


def test_deepum_asks_for_one_kernel_and_keeps_those_before() -> None:
    """Of the next kernels' units: away, here, on its way, away.  next_k asks for all that are away."""
    where = [DEVICE, AWAY, DEVICE, ARRIVING, AWAY, ABSENT]
    assert proposals("deepum(degree=4)", 0, where) == [2, 3, 4]
    assert proposals("next_k(k=4)", 0, where) == [1, 2, 3, 4]
    assert proposals("deepum(degree=3)", 0, where) == [2, 3]
    assert proposals("deepum(degree=5)", 0, where) == [2, 3]  # its kernel's tensor does not exist yet
    assert proposals("deepum(degree=8)", 3, where) == []


def test_deepum_in_the_engine() -> None:
    """Memory for two.  c pushes a out; kernel 2 reads it: asked for by kernel 0 at a degree of two, too late at three."""
    steps = Steps()
    a, b, c = steps.alloc(), steps.alloc(), steps.alloc()
    steps.free(b)
    steps.sync()
    for used in (c, c, a):
        steps.kernel(3000, reads=(used,))
    counts = [play(steps, blocks=2, prefetch=f"deepum(degree={n})").metrics["prefetches"] for n in (2, 3)]
    assert counts == [1, 0]


def test_an_arena_gives_from_both_ends() -> None:
    arena = Arena(10)
    assert (arena.from_left(3), arena.from_right(2), arena.from_left(4), arena.largest) == (0, 8, 3, 1)
    arena.give_back(0, 3)
    assert (arena.from_right(1), arena.from_left(4), arena.from_right(3)) == (7, -1, 0)
    arena.give_back(7, 1)
    arena.give_back(3, 4)
    assert arena.holes == [(3, 8)] and GIB == 2**30


def test_nothing_to_plan_without_a_tier_below() -> None:
    assert len(plan("g10", crowd().view(5, ())).actions) == 0
    with pytest.raises(Exception, match="'target' of policy 'g10' is negative"):
        plan("g10(target=-1)", crowd().view(5))


def test_flashneuron_sends_the_first_activations_away() -> None:
    """a, b, c of 2, 1, 3 blocks wait for backward beside a weight of one; an operator works on 4 at most."""
    p = Program()
    p.new("param", w=1)
    p.builder.begin_phase("step0.fwd")
    p.op("f", "w", a=2)             # 0
    p.op("f", "a", b=1)             # 1
    p.op("f", "b", c=3)             # 2
    p.op("f", "c", d=1)             # 3
    p.op("f", "d", e=1)             # 4
    p.op("loss", "e", g=1)          # 5
    p.builder.begin_phase("step0.bwd")
    p.op("b", "g d", ends="d")      # 6
    p.op("b", "g c", ends="c")      # 7
    p.op("b", "g b", ends="b")      # 8
    p.op("b", "g a", ends="a g e")  # 9
    # Memory for 10 less 1 and 4 leaves 5: with a gone 4 wait.  For 9 it leaves 4, and less must wait than that: b goes as well.
    # Backward has 6 beside the largest operator: with a 6 are there at operator 8, and 8 at the one before.  For 9 it has 5:
    # both come on demand.
    assert said(p, 10) == "-a@2 +a@8" and said(p, 9) == "-a@2 -b@3"
    assert said(p, 10) != p.said(plan("vdnn", p.view(10))) != ""
    assert said(p, 12) == ""


def said(p: Program, blocks: int) -> str:
    return p.said(plan("flashneuron", p.view(blocks)))
