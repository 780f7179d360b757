"""Do jobs on a cluster that fails lose, save and restart as worked out by hand, and as the closed form says?  Times in s."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_cluster_runs import jobs, nodes

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.breakdowns import ClusterFailure, ToldBreakdown
from gpusim.engine.cluster.failing import FailingCluster, FailingEventRun
from gpusim.engine.cluster.failing_rounds import FailingRoundRun
from gpusim.engine.cluster.measures import measures
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.failures.run import CheckpointCost, FailingRun, FailureKind, Job, ToldFailure
from gpusim.policies.clusters import ArrivingJob, ClusterNode, ClusterSpec, JobRates
from gpusim.policies.intervals import expected_time
from gpusim.policies.registry import get

NODE = ClusterFailure(name="node", detect=5, repair=20)
JOB = ClusterFailure(name="job", leaves=False, detect=5)


def every(seconds: float) -> Any:
    return get("checkpoint", f"every(seconds={seconds!r})")


def failing(*told: tuple[float, int], kind: ClusterFailure = NODE, **more: Any) -> FailingCluster:
    """(when, node) that fails."""
    return FailingCluster(kinds=(kind,), told=[ToldBreakdown(at, 0, node) for at, node in told], **more)


def ran(what: Sequence[ArrivingJob], cluster: ClusterSpec, how: FailingCluster, scheduler: str = "first_come",
        **more: Any) -> ClusterOutcome:  # fmt: skip
    named = get("jobs", scheduler)
    made = named.scheduler()
    kind = FailingRoundRun if made.verb == "shares" else FailingEventRun
    run = kind(what, cluster, JobRates(), made, how, name=named.spec, error=named.error, **more)
    run.advance()
    return run.outcome()


def spent(run: ClusterOutcome) -> list[float]:
    """Saving, noticing, restarting, worked twice: s of GPUs."""
    assert run.failed is not None
    return list(run.failed.spent.values())


@pytest.mark.hand_worked
def test_a_job_goes_on_from_its_last_checkpoint() -> None:
    # 30 s are saved at 32, 18 more are lost at 50, noticed at 55, restart to 58; 70 left with checkpoints after 30, 60, 70.
    how = failing((50, 0), policy=every(30), save=2, spares=nodes(1).nodes)
    spare = ran(jobs((0, 100, 1)), nodes(1), how, restart=3.0)
    assert spare.end.tolist() == [58 + 70 + 3 * 2] and spent(spare) == [8, 5, 3, 18]
    # Without a spare node it waits for the repair, 70, and restarts then.
    alone = ran(jobs((0, 100, 1)), nodes(1), failing((50, 0), policy=every(30), save=2), restart=3.0)
    assert alone.end.tolist() == [73 + 76] and spent(alone) == [8, 5, 3, 18]
    found = measures(alone, JobRates())
    assert found["goodput"] == pytest.approx(100 / 134) and found["away"] == pytest.approx(20 / 149)
    assert found["failures"] == found["interruptions"] == 1 and found["lost_gpu_h"] == pytest.approx(34 / 3600)


@pytest.mark.hand_worked
def test_what_is_not_saved_is_lost_and_a_checkpoint_under_way_is_none() -> None:
    never = ran(jobs((0, 100, 1)), nodes(1), failing((50, 0), kind=JOB))
    assert never.end.tolist() == [155] and spent(never) == [0, 5, 0, 50]  # it starts again where it is
    during = ran(jobs((0, 100, 1)), nodes(1), failing((31, 0), kind=JOB, policy=every(30), save=2))
    assert during.end.tolist() == [31 + 5 + 100 + 4 * 2] and spent(during) == [1 + 8, 5, 0, 30]
    last = ran(jobs((0, 70, 1)), nodes(1), failing((75, 0), kind=JOB, policy=every(30), save=2))  # its last, from 74 to 76
    assert last.end.tolist() == [75 + 5 + 10 + 2] and spent(last) == [4 + 1 + 2, 5, 0, 10]
    again = ran(jobs((0, 100, 1)), nodes(1), failing((50, 0), (52, 0), (60, 0), kind=JOB), restart=20.0)
    assert again.end.tolist() == [185] and spent(again) == [0, 10, 5 + 20, 50]  # one while it hangs, one as it restarts


@pytest.mark.hand_worked
def test_spare_nodes_are_shared() -> None:
    """One stands by for both: the job that fails first has it, the other that which is repaired first."""
    kind = ClusterFailure(name="node", detect=1, repair=100)
    how = failing((10, 0), (20, 1), kind=kind, spares=nodes(1).nodes)
    both = ran(jobs((0, 50, 1), (0, 50, 1)), nodes(1, 1), how)
    assert both.end.tolist() == [11 + 50, 61 + 50]  # the second takes the node that the first has left, at 61
    longer = ran(jobs((0, 200, 1), (0, 200, 1)), nodes(1, 1), how)
    assert longer.end.tolist() == [211, 110 + 200]
    assert longer.failed is not None
    assert [(each.node, each.start, each.end) for each in longer.failed.broken] == [(0, 10, 11), (1, 20, 110)]


@pytest.mark.hand_worked
def test_an_elastic_job_shrinks_and_grows() -> None:
    four = jobs((0, 200, 4), least=2, unit=2)
    kind = ClusterFailure(name="node", repair=100)
    found = ran(four, nodes(2, 2), failing((50, 1), kind=kind, policy=every(10)), restart=5.0)
    # 50 done; half as fast from 55 to 150: 47.5; then with all from 155 on.
    assert found.end.tolist() == [155 + 102.5]
    assert [(each.gpus, each.start, each.end) for each in found.placed] == [
        ((0, 1, 2, 3), 0, 50), ((0, 1), 55, 150), ((0, 1, 2, 3), 155, 257.5),
    ]  # fmt: skip
    rigid = ran(jobs((0, 200, 4)), nodes(2, 2), failing((50, 1), kind=kind, policy=every(10)), restart=5.0)
    assert rigid.end.tolist() == [155 + 150]
    whole = ran(jobs((0, 200, 4), least=4), nodes(2, 2), failing((50, 1), kind=kind, policy=every(10)), restart=5.0)
    assert whole.end.tolist() == [305]


@pytest.mark.hand_worked
def test_the_elastic_scheduler_shrinks_jobs_for_others() -> None:
    """4 GPUs; the second job does with 2 of 4 and the first gives it those; both grow when they can, each move costs 2 s."""
    two = jobs((0, 100, 4), (30, 40, 4), least=2)
    found = ran(two, nodes(4), failing(), "elastic", restart=2.0)
    # The first has done 30; 3 GPUs would leave 1, which is too few, so it keeps 2 and goes on at 32.  The second begins at 30
    # at half its pace and ends at 110; then the first has 39 done of 70, grows, and ends its last 31 from 112 on.
    assert found.end.tolist() == [112 + 31, 110]
    assert [(each.gpus, each.start, each.end) for each in found.placed] == [
        ((0, 1, 2, 3), 0, 30), ((2, 3), 30, 110), ((0, 1), 32, 110), ((0, 1, 2, 3), 112, 143),
    ]  # fmt: skip


@pytest.mark.hand_worked
def test_a_job_that_lost_its_gpus_waits_in_front() -> None:
    kind = ClusterFailure(name="node", detect=0, repair=1000)
    three = jobs((0, 100, 1), (0, 30, 1), (5, 10, 1))
    found = ran(three, nodes(1, 1), failing((10, 0), kind=kind))
    assert found.end.tolist() == [130, 30, 140]  # it had to begin anew, and stands before the one that came later


@pytest.mark.hand_worked
def test_a_job_that_the_scheduler_stops_has_saved() -> None:
    two = [*jobs((0, 100, 1)), *jobs((40, 30, 1), priority=5.0)]
    found = ran(two, nodes(1), failing((90, 0), kind=JOB), "priority")
    assert found.end.tolist() == [70 + 20 + 5 + 60, 70] and spent(found) == [0, 5, 0, 20]  # 40 are safe since it was stopped


@pytest.mark.hand_worked
def test_what_is_noticed_and_repaired_at_once_costs_the_work_alone() -> None:
    kind = ClusterFailure(name="node", detect=0, repair=0)
    found = ran(jobs((0, 100, 8)), nodes(4, 4), failing((25, 0), (25, 1), kind=kind, policy=every(10)))
    assert found.end.tolist() == [105] and spent(found) == [0, 0, 0, 5 * 8]


@pytest.mark.hand_worked
def test_a_job_that_hangs_may_be_stopped_and_fail_again() -> None:
    """It fails at 10 and would be noticed at 60; a higher priority takes its GPU from 20 to 30; it fails again at 40."""
    two = [*jobs((0, 100, 1)), *jobs((20, 10, 1), priority=5.0)]
    kind = ClusterFailure(name="job", leaves=False, detect=50)
    found = ran(two, nodes(1), failing((10, 0), (40, 0), kind=kind), "priority")
    assert found.end.tolist() == [90 + 100, 30] and spent(found) == [0, 10 + 50, 0, 20]


@pytest.mark.hand_worked
def test_rounds_lose_what_ran_on_the_node() -> None:
    kind = ClusterFailure(name="node", repair=360)
    two = jobs((0, 500, 1), (0, 500, 1))
    found = ran(two, nodes(1, 1), failing((100, 1), kind=kind), "isolated")
    # The second loses its round.  In the next one node is there: both have had the same time, so the first keeps its GPU for
    # 140 s more; from 500 on the second has 360 and 140.
    assert found.end.tolist() == [500, 1000]
    assert spent(found) == [0, 260, 0, 100]


@pytest.mark.formulas
@pytest.mark.slow
def test_the_mean_is_that_of_the_closed_form() -> None:
    """400 jobs, each alone on its node.  99 times of 100 the mean is within 0.5 %; Daly's formula within 1 %."""
    interval, cost, restart, between, work = 600.0, 30.0, 120.0, 3600.0, 200 * 600.0
    many = [ArrivingJob(work=work, restart=restart) for _ in range(400)]
    kind = ClusterFailure(name="job", of_jobs=1 / between, leaves=False)
    ends = ran(many, nodes(*[1] * 400), FailingCluster(kinds=(kind,), policy=every(interval), save=cost)).end
    assert 2.576 * ends.std() / math.sqrt(400) < 0.005 * ends.mean()
    assert ends.mean() == pytest.approx(expected_time(work, interval, cost, restart, between), rel=0.005)


@pytest.mark.formulas
@pytest.mark.slow
def test_nodes_are_away_as_often_as_their_rates_say() -> None:
    kind = ClusterFailure(name="node", rates={1: 1 / 1000.0}, repair=250.0)
    job = [ArrivingJob(work=2e6)]
    found = measures(ran(job, nodes(*[1] * 20), FailingCluster(kinds=(kind,), policy=every(1.0), seed=2)), JobRates())
    assert found["away"] == pytest.approx(250 / 1250, rel=0.02)


@pytest.mark.agreement
@pytest.mark.parametrize("seed", range(4))
def test_one_job_is_as_in_a_long_run(seed: int) -> None:
    """The loop of `gpusim failures` and a cluster with one job, told the same failures."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.integers(30, 900, 12)).tolist()
    interval, cost, detect, restart, work = 100, 7, 11, 13, 2000
    told = failing(*((when, 0) for when in at), kind=ClusterFailure(name="node", detect=detect, repair=1e9),
                   policy=every(interval), save=cost, spares=nodes(*[1] * 20).nodes)  # fmt: skip
    found = ran(jobs((0, work, 1)), nodes(1), told, restart=float(restart)).end[0]
    kinds = [FailureKind(name="node", effect="lose_node", detect=detect * 1e9)]
    one = FailingRun(Job(work=work * 1e9, spare=20, restart=restart * 1e9), CheckpointCost(stop=cost * 1e9), kinds,
                     every(interval), told=[ToldFailure(when * 10**9, "node") for when in at])  # fmt: skip
    one.advance()
    assert found == pytest.approx(one.now / 1e9, abs=1e-6)


PLACES = ("first_come", "elastic", "best_fit", "shortest_first", "priority", "packed(turn=50)", "least_attained(turn=50)")


@pytest.mark.conformance
@pytest.mark.parametrize("scheduler", PLACES)
def test_nothing_runs_on_a_node_that_is_away(scheduler: str) -> None:
    rng = np.random.default_rng(1)
    at = np.sort(rng.uniform(0, 500, 60))
    what = [
        ArrivingJob(arrival=t, work=float(w), gpus=int(g), least=int(g) // 2, priority=float(p))
        for t, w, g, p in zip(at, rng.uniform(5, 60, 60), rng.choice([1, 2, 4, 6], 60), rng.integers(0, 3, 60), strict=True)
    ]
    kinds = (ClusterFailure(name="node", rates={4: 1 / 300}, detect=2, repair=40), ClusterFailure(name="job", of_jobs=1 / 200))
    how = FailingCluster(kinds=kinds, policy=every(9), save=0.5, spares=nodes(4).nodes, seed=3)
    found = ran(what, nodes(4, 4, 4), how, scheduler, restart=1.0)
    assert found.failed is not None and len(found.failed.broken) > 3
    assert not np.isnan(found.end).any()
    rows = sorted((gpu, each.start, each.end) for each in found.placed for gpu in each.gpus if each.end > each.start)
    for (gpu, _, end), (other, start, _) in pairwise(rows):
        assert gpu != other or start >= end - 1e-9
    for each in found.failed.broken:  # a job may hang there until its failure is noticed; rows begin after its restart of 1 s
        there = range(4 * each.node, 4 * each.node + 4)
        assert not any(each.start + 1.0 < start and end < each.end + 1e-9 for gpu, start, end in rows if gpu in there)
    work = sum((each.end - each.start) * len(each.gpus) for each in found.placed)
    assert work > sum(job.work * job.gpus for job in what)


@pytest.mark.slow
def test_work_without_an_end_is_refused() -> None:
    kind = ClusterFailure(name="job", of_jobs=1.0, leaves=False)
    with pytest.raises(GpusimError, match=r"job 0 fails 10,000 times, each time before its next checkpoint"):
        ran(jobs((0, 1000, 1)), nodes(1), FailingCluster(kinds=(kind,), policy=every(100)))
    with pytest.raises(GpusimError, match="leaves job 0 without GPUs for good"):
        ran(jobs((0, 10, 1)), nodes(1), failing((5, 0), kind=ClusterFailure(name="node")))


@pytest.mark.formulas
@pytest.mark.slow
@pytest.mark.parametrize("scheduler", [*PLACES, "isolated"])
def test_the_time_of_gpus_is_work_or_lost(scheduler: str) -> None:
    """Drawn clusters and failures: what jobs had is what they did and what was lost, and all is free at the end."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = rng.choice([1, 2, 4], 4).tolist()
        at = np.cumsum(rng.exponential(20.0, 15))
        wants = rng.integers(1, sum(sizes) + 1, 15)
        what = [
            ArrivingJob(arrival=t, work=float(rng.uniform(1, 900)), gpus=int(g), least=int(g) // 2)
            for t, g in zip(at, wants, strict=True)
        ]
        kinds = [
            ClusterFailure(name=str(k), rates=dict.fromkeys((1, 2, 4), rng.choice([1e-3, 1e-4])), of_jobs=k * 1e-3,
                           one_gpu=bool(k), leaves=k != 1, group=2 - k % 2, detect=5.0 * k, repair=40.0 * k)
            for k in range(3)
        ]  # fmt: skip
        how = FailingCluster(kinds=kinds, spares=nodes(sizes[0]).nodes, policy=every(37.0), save=0.5 * seed, seed=seed)
        found = ran(what, nodes(*sizes), how, scheduler)
        assert found.worked == pytest.approx(sum(job.work * job.gpus for job in what) + sum(spent(found)))
        assert found.busy[-1] == 0 and not np.isnan(found.end).any()


@pytest.mark.hand_worked
def test_slow_parts_slow_the_jobs_that_use_them() -> None:
    """For 40 s from 10 on half as fast: 20 s of work less.  A GPU reaches its job, a card those on two nodes, a wire those with
    two GPUs on its node."""
    slow = {"speed": 0.5, "lasts": 40.0, "kills": False, "leaves": False}
    card, wire = (ClusterFailure(name=name, reach=reach, **slow) for name, reach in (("nic", "beyond"), ("link", "within")))
    gpu = ClusterFailure(name="slow", one_gpu=True, **slow)
    three = jobs((0, 100, 4), (0, 100, 2), (0, 100, 1))
    for kind, ends in ((card, [120, 100, 100]), (wire, [120, 120, 100])):
        found = ran(three, nodes(2, 2, 2, 1), failing((10, 0), (10, 2), kind=kind))
        assert found.end.tolist() == ends
    one = ran(jobs((0, 100, 1)), nodes(1), failing((10, 0), kind=gpu))
    assert one.end.tolist() == [120] and spent(one) == [0, 0, 0, 0, 20]
    both = ran(jobs((0, 100, 1)), nodes(1), failing((10, 0), (30, 0), kind=gpu))
    assert both.end.tolist() == [130] and spent(both)[4] == 30  # from 10 to 70


@pytest.mark.hand_worked
def test_a_dead_card_ends_programs_and_leaves_them_slower() -> None:
    """30 done at 30, noticed at 35; 10 of work are lost; half as fast until 130: 47.5; the last 32.5 until 162.5."""
    card = ClusterFailure(name="nic", reach="beyond", speed=0.5, lasts=100.0, leaves=False, detect=5)
    found = ran(jobs((0, 100, 2), (0, 90, 1)), nodes(1, 1, 1), failing((30, 0), (30, 2), kind=card, policy=every(20)))
    assert found.end.tolist() == [162.5, 90]
    assert spent(found) == [0, 10, 0, 20, 2 * 47.5]


@pytest.mark.hand_worked
def test_a_slow_node_that_is_replaced_is_fast_again() -> None:
    """Half as fast from 10; the node leaves at 30 with 20 done, another is in its place at 35."""
    kinds = (ClusterFailure(name="slow", one_gpu=True, speed=0.5, lasts=1e6, kills=False, leaves=False), NODE)
    told = [ToldBreakdown(10, 0, 0), ToldBreakdown(30, 1, 0)]
    found = ran(jobs((0, 100, 1)), nodes(1), FailingCluster(kinds=kinds, told=told, spares=nodes(1).nodes, policy=every(5)))
    assert found.end.tolist() == [35 + 80]


@pytest.mark.hand_worked
def test_retired_pages_leave_a_job_no_room() -> None:
    """8 bytes of 10: the third page takes its room at 30; it has saved 30, and goes on elsewhere at 35."""
    page = ClusterFailure(name="page", one_gpu=True, leaves=False, kills=False, bytes=1.0, detect=5)
    two = ClusterSpec((ClusterNode(kind="v100", gpus=1, memory=10.0),) * 2)
    how = failing((10, 0), (20, 0), (30, 0), kind=page, policy=every(10))
    found = ran(jobs((0, 100, 1), memory=8.0), two, how)
    assert found.end.tolist() == [35 + 70]
    assert [each.gpus for each in found.placed] == [(0,), (1,)]


@pytest.mark.hand_worked
def test_a_scheduler_of_shares_says_how_many_gpus_an_elastic_job_takes() -> None:
    """Two of 100 s on four GPUs of four: two each until 200.  In turns of 10 s on all of them one ends at 190, one at 200."""

    class Halves:
        leftovers = True

        def shares(self, view: Any) -> Any:
            return {(job,): {"v100": 1.0} for job in view.jobs}

        def sizes(self, view: Any) -> Any:
            assert view.pace(0, "v100", 2) == 0.5
            return {job: min(view.job(job).sizes()) for job in view.jobs}

    both, four = jobs((0, 100, 4), (0, 100, 4), least=2), nodes(4)
    run = FailingRoundRun(both, four, JobRates(), Halves(), failing(), length=10.0)
    run.advance()
    assert run.outcome().end.tolist() == [200, 200]
    assert [each.gpus for each in run.outcome().placed] == [(0, 1), (2, 3)]
    assert sorted(ran(both, four, failing(), "isolated", length=10.0).end.tolist()) == [190, 200]
    for wrong, words in (({0: 1}, "answers 1 GPUs for job 0, which can have 4, 3, 2"), ({7: 2}, "of 7, which is no job"),
                         ([2], "answers a list, not numbers of GPUs")):  # fmt: skip
        other = type("Other", (Halves,), {"sizes": lambda self, view, wrong=wrong: wrong})
        with pytest.raises(GpusimError, match=words):
            FailingRoundRun(jobs((0, 100, 4), least=2), four, JobRates(), other(), failing(), length=10.0).advance()


@pytest.mark.formulas
def test_the_mean_pace_beside_slow_gpus_is_the_closed_form() -> None:
    """A GPU that is slow for 500 s every 1000 s is so for a share 1 - exp(-0.5) of the time, as episodes overlap."""
    slow = ClusterFailure(name="slow", rates={1: 1e-3}, one_gpu=True, speed=0.5, lasts=500.0, kills=False, leaves=False)
    many = 40
    found = ran(jobs(*[(0, 1e6, 1)] * many), nodes(*[1] * many), FailingCluster(kinds=(slow,), seed=3))
    ends = found.end / (1e6 / (1.0 - 0.5 * (1.0 - math.exp(-0.5))))
    assert 2.58 * ends.std() / math.sqrt(many) < 0.005
    assert abs(ends.mean() - 1.0) < 0.01


@pytest.mark.hand_worked
@pytest.mark.parametrize("scheduler", ["isolated", "gandiva"])
def test_an_elastic_job_has_rounds_on_the_gpus_that_are_left(scheduler: str) -> None:
    """50 done at 50; two of four GPUs until 150: 50 more; then the last 100.  A rigid job waits from 50 to 150."""
    kind = ClusterFailure(name="node", repair=100)
    found = ran(jobs((0, 200, 4), least=2), nodes(2, 2), failing((50, 1), kind=kind), scheduler, length=10.0)
    assert found.end.tolist() == [250]
    assert [(each.gpus, each.end) for each in found.placed] == [((0, 1, 2, 3), 50), ((0, 1), 150), ((0, 1, 2, 3), 250)]
    rigid = ran(jobs((0, 200, 4)), nodes(2, 2), failing((50, 1), kind=kind), scheduler, length=10.0)
    assert rigid.end.tolist() == [300]
    # Beside a job of two: half of its GPUs until 100, 50 done; alone it does the other 50 by 150.  A rigid one takes turns.
    beside = ran([*jobs((0, 100, 2)), *jobs((0, 100, 4), least=2)], nodes(2, 2), failing(), scheduler, length=10.0)
    assert beside.end.tolist() == [100, 150]
