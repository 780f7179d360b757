"""Are times of jobs on a cluster those worked out by hand?  Times in s."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine.cluster.events import EventRun
from gpusim.engine.cluster.measures import measures
from gpusim.engine.cluster.outcome import ClusterOutcome
from gpusim.engine.cluster.rounds import RoundRun
from gpusim.policies import decorators as policy
from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import ArrivingJob, ClusterNode, ClusterSpec, Decision, JobRates, Shares, ShareView
from gpusim.policies.registry import get, of


def nodes(*sizes: int, kind: str = "v100", **more: float) -> ClusterSpec:
    return ClusterSpec(tuple(ClusterNode(kind=kind, gpus=size, **more) for size in sizes))


def jobs(*rows: tuple[float, float, int], **more: Any) -> list[ArrivingJob]:
    """(arrival, seconds, GPUs)."""
    return [ArrivingJob(name=f"job {i}", arrival=a, work=w, gpus=g, **more) for i, (a, w, g) in enumerate(rows)]


def ran(what: Sequence[ArrivingJob], cluster: ClusterSpec, scheduler: Any, rates: JobRates | None = None,
        **more: Any) -> ClusterOutcome:  # fmt: skip
    named = get("jobs", scheduler) if isinstance(scheduler, str) else of(scheduler).get("jobs", scheduler)
    made = named.scheduler()
    kind = RoundRun if made.verb == "shares" else EventRun
    run = kind(what, cluster, rates or JobRates(), made, name=named.spec, error=named.error, **more)
    run.advance()
    return run.outcome()


@pytest.mark.hand_worked
def test_first_come_waits_for_the_first_in_line_and_best_fit_does_not() -> None:
    three = jobs((0, 100, 3), (10, 50, 2), (20, 30, 1))  # on 4 GPUs: 1 is left, the second needs 2
    strict = ran(three, nodes(4), "first_come")
    assert strict.end.tolist() == [100, 150, 130] and strict.waited.tolist() == [0, 90, 80]
    fills = ran(three, nodes(4), "best_fit")
    assert fills.end.tolist() == [100, 150, 50]


@pytest.mark.hand_worked
def test_the_shortest_goes_first_and_no_job_is_stopped() -> None:
    four = jobs((0, 100, 1), (1, 90, 1), (2, 10, 1), (3, 20, 1))
    found = ran(four, nodes(1), "shortest_first")
    assert found.end.tolist() == [100, 220, 110, 130] and found.stops == 0
    wide = jobs((0, 100, 1), (1, 10, 2), (2, 50, 1))  # 1 of 2 GPUs is free; the shortest wants both
    assert ran(wide, nodes(2), "shortest_first").end.tolist() == [100, 110, 52]
    assert ran(wide, nodes(2), "shortest_first(fill=0)").end.tolist() == [100, 110, 160]


@pytest.mark.hand_worked
def test_a_higher_priority_takes_gpus_and_what_was_done_stays_done() -> None:
    two = [*jobs((0, 100, 2)), *jobs((40, 30, 1), priority=5.0)]
    found = ran(two, nodes(2), "priority")
    assert found.end.tolist() == [130, 70] and found.stops == 1  # 40 s done, 60 left from 70 on
    slow = ran(two, nodes(2), "priority", restart=7.0)
    assert slow.end.tolist() == [137, 70]


@pytest.mark.hand_worked
def test_priority_stops_no_more_than_it_must() -> None:
    low = jobs((0, 100, 1), (0, 100, 2), (0, 100, 1))
    high = jobs((10, 10, 2), priority=1.0)
    found = ran([*low, *high], nodes(4), "priority")
    assert found.stops == 1 and found.end.tolist() == [100, 110, 100, 20]


@pytest.mark.hand_worked
def test_parts_of_a_gpu_go_to_the_fullest_that_has_room_and_memory() -> None:
    parts = [
        ArrivingJob(arrival=t, work=100, share=s, memory=m)
        for t, s, m in [(0, 0.5, 10.0), (1, 0.6, 10.0), (2, 0.4, 5.0), (3, 0.4, 50.0)]
    ]
    found = ran(parts, nodes(2, memory=60.0), "best_fit")
    where = {each.jobs[0]: each.gpus for each in found.placed}
    assert where == {0: (0,), 1: (1,), 2: (1,), 3: (0,)}  # 0.4 fits beside 0.6 exactly; then 50 of memory only beside 10
    assert measures(found, JobRates())["utilisation"] == pytest.approx(190 / 2 / 103)


@pytest.mark.hand_worked
def test_gpus_that_lie_apart_are_told_from_gpus_that_are_too_few() -> None:
    rows = jobs((0, 100, 3), (0, 100, 3), (10, 10, 2))  # 1 + 1 free on two nodes of 4
    found = measures(ran(rows, nodes(4, 4), "first_come"), JobRates())
    assert found["apart"] == found["idle"] == pytest.approx(90 * 2 / (110 * 8))
    few = measures(ran(jobs((0, 100, 3), (0, 100, 3), (10, 10, 4)), nodes(4, 4), "first_come"), JobRates())
    assert few["idle"] == 0.0


@pytest.mark.hand_worked
def test_a_job_larger_than_a_node_takes_several() -> None:
    found = ran(jobs((0, 10, 6)), nodes(4, 4), "first_come")
    assert found.placed[0].gpus == (0, 1, 2, 3, 4, 5)


@pytest.mark.hand_worked
def test_faster_gpus_are_taken_first() -> None:
    cluster = ClusterSpec((ClusterNode(kind="k80", gpus=1), ClusterNode(kind="v100", gpus=1)))
    rates = JobRates({("k80", "m", 1): 1.0, ("v100", "m", 1): 4.0})
    both = [ArrivingJob(arrival=0, work=40, model="m"), ArrivingJob(arrival=0, work=40, model="m")]
    assert ran(both, cluster, "first_come", rates).end.tolist() == [10, 40]


@pytest.mark.hand_worked
def test_rounds_take_turns_on_one_gpu() -> None:
    two = jobs((0, 500, 1), (0, 500, 1))
    found = ran(two, nodes(1), "isolated")  # 360 of the first, 360 of the second, 140 and 140
    assert found.end.tolist() == [860, 1000] and found.stops == 2
    assert found.counts["rounds"] == 4 and found.counts["gavel_utilisation"] == 1.0


@pytest.mark.hand_worked
def test_pairs_share_gpus_at_the_rates_of_the_table() -> None:
    rates = JobRates({("v100", "a", 1): 1.0}, {("v100", "a", "a", 1): (0.75, 0.75)})
    two = [ArrivingJob(arrival=0, work=540, model="a"), ArrivingJob(arrival=0, work=270, model="a")]
    found = ran(two, nodes(1), "gandiva", rates)  # 270 steps each in 360 s, then the first goes on alone
    assert found.end.tolist() == [630, 360]


@pytest.mark.formulas
def test_measures_of_two_jobs() -> None:
    found = measures(ran(jobs((0, 100, 1), (0, 100, 1)), nodes(1), "first_come"), JobRates())
    assert found["jct_mean_s"] == 150 and found["wait_p50_s"] == 50 and found["makespan_s"] == 200
    assert found["utilisation"] == 1.0 and found["slowdown"] == 1.5
    # The first: two are there for its 100 s, 100 / (100 x 2); the second: 1.5 on average, 200 / (100 x 1.5).
    assert found["unfairness_mean"] == pytest.approx((0.5 + 4 / 3) / 2) and found["unfairness_max"] == pytest.approx(4 / 3)
    late = [ArrivingJob(arrival=0, work=100, deadline=150), ArrivingJob(arrival=0, work=100, deadline=150)]
    assert measures(ran(late, nodes(1), "first_come"), JobRates())["missed"] == 0.5


@policy.jobs
def last_come(view: ClusterView) -> Decision:
    """The last first."""
    job = next(reversed(view.waiting), None)
    gpus = () if job is None else view.place(job)
    return (job, gpus) if job is not None and gpus else None


def test_a_policy_of_ones_own_decides() -> None:
    found = ran(jobs((0, 10, 1), (1, 10, 1), (2, 10, 1)), nodes(1), last_come)
    assert found.end.tolist() == [10, 30, 20]


@policy.jobs
class Halves:
    """A half of the time for each."""

    def shares(self, view: ShareView) -> Shares:
        """Whoever it is."""
        return {(job,): {"v100": 0.5} for job in view.jobs}


def test_shares_of_ones_own_are_kept_in_rounds() -> None:
    assert ran(jobs((0, 720, 1), (0, 720, 1)), nodes(1), Halves).end.tolist() == [1080, 1440]


def own(answer: Any) -> Any:
    def place(view: ClusterView) -> Any:
        return answer(view)

    return policy.jobs(name="mine")(place)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda view: (0, (0,)) if 0 in view.waiting else (1, (0,)), "puts job 1 on GPU 0, which is busy"),
        (lambda view: (7, (0,)), "starts job 7, which does not wait"),
        (lambda view: (1, ()), "stops job 1, which does not run"),
        (lambda view: (0, (0, 1)), "puts job 0 on 2 GPUs, and it wants 1"),
        (lambda view: (0, (9,)), "puts job 0 on GPU 9, and the cluster has 2"),
        (lambda view: "job 0", "not \\(job, GPUs\\)"),
        (lambda view: None, "leaves job 0, job 1 without GPUs for good"),
        (lambda view: (0, (0,)) if 0 in view.waiting else (0, ()), "without end at 0 s"),
        (lambda view: view.nothing, "raised AttributeError"),
    ],
)
def test_a_scheduler_that_breaks_its_contract_is_named(answer: Any, says: str) -> None:
    with pytest.raises(GpusimError, match=says):
        ran(jobs((0, 10, 1), (0, 10, 1)), nodes(2), own(answer))


def test_a_scheduler_without_a_verb_and_shares_of_nobody_are_refused() -> None:
    class Empty:
        """Nothing."""

    with pytest.raises(GpusimError, match="neither the verb place nor shares"):
        ran(jobs((0, 10, 1)), nodes(1), policy.jobs(Empty))

    class Unknown:
        """Somebody else's."""

        def shares(self, view: ShareView) -> Shares:
            return {(5,): {"v100": 1.0}}

    with pytest.raises(GpusimError, match=r"shares of \(5,\)"):
        ran(jobs((0, 10, 1)), nodes(1), policy.jobs(Unknown))


@pytest.mark.parametrize(
    ("what", "cluster", "says"),
    [
        (jobs((0, 10, 9)), nodes(4, 4), "job 0 wants 9 GPUs of one type; the cluster has 8 v100"),
        (jobs((5, 10, 1), (4, 10, 1)), nodes(4), "job 1 arrives at 4 s, before the one above it"),
        (jobs((0, 10, 1), model="m"), nodes(4), "the table has no rate of 'm' on 1 v100"),
        (jobs((0, 10, 1), memory=1e12), nodes(4, memory=8e10), "finds no place on the empty cluster"),
        (jobs((0, 10, 1), memory=1e12), nodes(4), "nothing says how much the cluster's GPUs have"),
        (jobs((0, 10, 1), types=("a100",)), nodes(4), "none that it may run on"),
        (jobs((0, 10, 2), share=0.5), nodes(4), "wants 0.5 of 2 GPUs"),
    ],
)
def test_what_cannot_run_is_refused_before_it_runs(what: list[ArrivingJob], cluster: ClusterSpec, says: str) -> None:
    with pytest.raises(GpusimError, match=says):
        ran(what, cluster, "first_come")


def test_rates_together_that_are_missing_are_refused() -> None:
    rates = JobRates({("v100", "a", 1): 1.0})
    two = [ArrivingJob(arrival=0, work=540, model="a"), ArrivingJob(arrival=0, work=270, model="a")]
    with pytest.raises(GpusimError, match="no rates of 'a' and 'a' together on 1 v100"):
        ran(two, nodes(1), "gandiva", rates)


@pytest.mark.agreement
@pytest.mark.parametrize("scheduler", ["first_come", "shortest_first", "priority", "best_fit"])
def test_nobody_has_a_gpu_twice_and_all_work_is_done(scheduler: str) -> None:
    draws = np.random.default_rng(7)
    rows = [
        ArrivingJob(
            name=str(i), arrival=float(i // 3), work=float(draws.integers(1, 60)), gpus=int(draws.choice([1, 1, 2, 4, 12])),
            priority=float(draws.integers(3)),
        )
        for i in range(200)
    ]  # fmt: skip
    found = ran(rows, nodes(8, 4, 4), scheduler)
    done = np.zeros(len(rows))
    spans: dict[int, list[tuple[float, float]]] = {}
    for each in found.placed:
        done[each.jobs[0]] += each.end - each.start
        for gpu in each.gpus:
            spans.setdefault(gpu, []).append((each.start, each.end))
    assert done.tolist() == pytest.approx([job.work for job in rows])
    for gpu in spans.values():
        ordered = sorted(gpu)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))
