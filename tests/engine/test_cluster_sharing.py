"""Are times of jobs that share GPUs those worked out by hand?  Times in s."""

from __future__ import annotations

from typing import Any

import pytest
from test_cluster_runs import jobs, nodes, ran

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.engine.cluster.measures import measures
from gpusim.policies import decorators as policy
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import ArrivingJob, Decision, JobRates, Part, Shares, ShareView

pytestmark = pytest.mark.hand_worked
GIB = 2.0**30
ALONE = {("v100", "a", 1): 1.0, ("v100", "b", 1): 2.0}
TOGETHER = {("v100", "a", "b", 1): (0.75, 1.0), ("v100", "b", "a", 1): (1.0, 0.75), ("v100", "a", "a", 1): (0.4, 0.4)}
A100 = "a100-sxm4-80gb"


class Slices(JobRates):
    """A slice of n sevenths has n sevenths of the speed."""

    def beside(self, kind: str, there: Any) -> tuple[float, ...]:
        return tuple(int(part[0]) / 7 if isinstance(part, str) else 1.0 for _, part in there)


def test_two_that_are_faster_together_share_and_the_one_left_goes_on_alone() -> None:
    two = [ArrivingJob(work=540, model="a"), ArrivingJob(work=270, model="b")]
    found = ran(two, nodes(1), "packed", JobRates(ALONE, TOGETHER))
    # 0.75 + 1/2 of the speeds alone: b ends at 270, a has done 202.5 by then
    assert found.end.tolist() == [607.5, 270.0]
    assert measures(found, JobRates(ALONE, TOGETHER))["work_done"] == pytest.approx((540 + 135) / 607.5)
    slower = [ArrivingJob(work=100, model="a"), ArrivingJob(work=100, model="a")]
    assert ran(slower, nodes(1), "packed", JobRates(ALONE, TOGETHER)).end.tolist() == [100, 200]  # 0.4 + 0.4 < 1


def test_parts_that_a_trace_says_go_by_the_rates_of_pairs_too() -> None:
    two = [ArrivingJob(work=540, model="a", share=0.5), ArrivingJob(work=270, model="b", share=0.5)]
    assert ran(two, nodes(1), "best_fit", JobRates(ALONE, TOGETHER)).end.tolist() == [607.5, 270.0]
    assert ran(two, nodes(1), "best_fit", JobRates(ALONE)).end.tolist() == [540.0, 135.0]  # nothing says what sharing costs
    three = [*two, ArrivingJob(name="c", work=1, model="a", share=0.1)]
    three[0] = ArrivingJob(work=540, model="a", share=0.4)
    with pytest.raises(GpusimError, match="the table has rates of two models on one v100"):
        ran(three, nodes(1), "best_fit", JobRates(ALONE, TOGETHER))


@pytest.mark.parametrize(
    ("scheduler", "ends", "stops"), [("packed(turn=30)", [190, 200], 6), ("least_attained(turn=30)", [200, 190], 3)]
)
def test_jobs_take_turns(scheduler: str, ends: list[float], stops: int) -> None:
    # packed: 30 s each in turn.  least_attained: 30 of the first, then 60 each until one has had more than the other.
    found = ran(jobs((0, 100, 1), (0, 100, 1)), nodes(1), scheduler)
    assert found.end.tolist() == ends and found.stops == stops


def test_the_weight_of_a_job_counts_for_what_it_has_had() -> None:
    two = [ArrivingJob(work=100, weight=2.0), ArrivingJob(work=100)]
    found = ran(two, nodes(1), "least_attained(turn=20)")
    # 20 | 0 to 20; then 20 / 2 < 20: 60 | 20; 60 | 40; 100 | 40
    assert found.end.tolist() == [140, 200]


def test_jobs_have_the_smallest_slice_that_is_enough_where_least_is_left() -> None:
    want = [ArrivingJob(arrival=i, work=30, model="m", share=share, memory=memory * GIB)
            for i, (share, memory) in enumerate([(0.4, 5), (0.1, 5), (0.1, 15), (0.5, 5), (0.3, 5)])]  # fmt: skip
    rates = Slices({(A100, "m", 1): 1.0})
    found = ran(want, nodes(1, 1, kind=A100, memory=80 * GIB), "mig_best_fit", rates)
    where = {each.jobs[0]: (each.gpus[0], each.part) for each in found.placed}
    assert where[0] == (0, "3g.40gb") and where[1] == (0, "1g.10gb") and where[2] == (0, "1g.20gb")
    assert where[3] == (1, "4g.40gb") and where[4] == (1, "3g.40gb")
    assert found.end[0] == pytest.approx(70) and found.end[1] == pytest.approx(1 + 210)
    two = [*want[:1], ArrivingJob(arrival=1, work=10, model="m")]
    whole = ran(two, nodes(1, kind=A100, memory=80 * GIB), "mig_best_fit", rates)
    assert whole.end.tolist() == pytest.approx([70, 80])  # a whole GPU has to be free of slices


def test_a_job_that_takes_more_memory_than_it_said_fails_once_and_asks_for_it() -> None:
    rows = [ArrivingJob(work=100, share=0.5, memory=30 * GIB, peak=50 * GIB) for _ in range(2)]
    found = ran(rows, nodes(1, memory=80 * GIB), "best_fit")
    assert found.end.tolist() == [100, 200] and found.memory_failures == (0.0,) and found.begun == 3
    assert measures(found, JobRates())["out_of_memory"] == pytest.approx(1 / 3)
    honest = [rows[0], ArrivingJob(work=100, share=0.5, memory=50 * GIB)]  # what it says is true, and there is less
    later = ran(honest, nodes(1, memory=80 * GIB), "best_fit")
    assert later.end.tolist() == [100, 200] and later.memory_failures == (0.0,)
    sliced = [ArrivingJob(work=7, model="m", share=0.1, memory=5 * GIB, peak=15 * GIB)]
    cut = ran(sliced, nodes(1, kind=A100, memory=80 * GIB), "mig_best_fit", Slices({(A100, "m", 1): 1.0}))
    assert [each.part for each in cut.placed] == ["1g.10gb", "1g.20gb"] and cut.memory_failures == (0.0,)
    with pytest.raises(GpusimError, match="finds no place on the empty cluster"):
        ran([ArrivingJob(work=1, memory=30 * GIB, peak=90 * GIB)], nodes(1, memory=80 * GIB), "best_fit")


class Later:
    """Starts the first job after ten seconds, and gives it half of the GPU after twenty."""

    def place(self, view: ClusterView) -> Decision:
        view.ask_at(10.0)
        view.ask_at(20.0)
        job = next(iter(view.waiting), None)
        if job is not None and view.now >= 10:
            return job, (0,)
        if view.now >= 20 and view.part.get(0) == 1.0:
            return 0, (0,), 0.5
        return None


def test_a_policy_is_asked_when_it_wants_and_changes_a_part() -> None:
    class HalfAsFast(JobRates):
        def beside(self, kind: str, there: Any) -> tuple[float, ...]:
            return tuple(float(part) for _, part in there)

    found = ran([ArrivingJob(work=30, model="m")], nodes(1), policy.jobs(Later), HalfAsFast({("v100", "m", 1): 1.0}))
    assert found.first.tolist() == [10] and found.end.tolist() == [60]  # 10 s whole, then 20 steps in 40 s
    assert [each.part for each in found.placed] == [1.0, 0.5]


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (0.5, "puts x on 0.5 of GPU 0, and nothing says how fast it is there"),
        (1.5, "puts x on GPU 0 with a share of 1.5"),
        ("3g.40gb", "no MIG slices of 'v100' are known"),
        (None, r"answers \(0, \(0,\), None\), not"),
    ],
)
def test_a_part_that_cannot_be_is_told(part: Part | None, says: str) -> None:
    def wrong(view: ClusterView) -> Any:
        return (0, (0,), part) if view.waiting else None

    with pytest.raises(GpusimError, match=says):
        ran([ArrivingJob(name="x", work=9)], nodes(1), policy.jobs(wrong))


def test_a_slice_beside_a_whole_job_or_too_many_slices_are_told() -> None:
    def cut(view: ClusterView) -> Any:
        job = next(iter(view.waiting), None)
        return None if job is None else (job, (0,), "4g.40gb")

    rows = [ArrivingJob(name=f"x{i}", work=9, model="m") for i in range(2)]
    with pytest.raises(PolicyError, match=r"puts x1 on GPU 0, where no 4g\.40gb has room beside 4g\.40gb"):
        ran(rows, nodes(1, kind=A100), policy.jobs(cut), Slices({(A100, "m", 1): 1.0}))
    with pytest.raises(GpusimError, match="a table of rates says nothing of MIG slices"):
        ran(rows[:1], nodes(1, kind=A100), policy.jobs(cut), JobRates({(A100, "m", 1): 1.0}))


@pytest.mark.parametrize(("kind", "memory"), [("v100-sxm2-16gb", 0.0), (A100, 81.0 * GIB)])
def test_a_part_that_no_mig_slice_has_is_told(kind: str, memory: float) -> None:
    rows = [ArrivingJob(name="x", work=9, share=0.5, memory=memory)]
    with pytest.raises(PolicyError, match=f"x wants 0.5 of a GPU.*, and no MIG slice of {kind} has that"):
        ran(rows, nodes(1, kind=kind, memory=96 * GIB), "mig_best_fit", JobRates({}))


def test_a_pair_that_can_do_no_step_in_a_round_is_told() -> None:
    class Pair:
        packs = True

        def shares(self, view: ShareView) -> Shares:
            return {(0, 1): {"v100": 1.0}}

    rates = JobRates({("v100", "m", 4): 1.0}, {("v100", "m", "m", 4): (0.5, 0.5)})
    rows = [ArrivingJob(name=f"x{i}", work=2, gpus=4, model="m") for i in range(2)]
    with pytest.raises(PolicyError, match="leaves x0, x1 without GPUs for good"):
        ran(rows, nodes(4), policy.jobs(Pair), rates)
