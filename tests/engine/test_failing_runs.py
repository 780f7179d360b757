"""Are times of a run that fails those worked out by hand, and its mean that of the closed form?  Times in s unless said."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine.failures import tables as t
from gpusim.engine.failures.run import CheckpointCost, Course, FailingRun, FailureKind, Job, ToldFailure, repeated
from gpusim.engine.failures.together import SharedSpares
from gpusim.policies.forms import CheckpointPolicy
from gpusim.policies.intervals import CheckpointView, daly, expected_time, young
from gpusim.policies.registry import get

S = 1e9
GPU = FailureKind(name="gpu", between=math.inf, effect="lose_node", detect=5 * S, repair=1000 * S)
PROGRAM = FailureKind(name="job", between=math.inf, each=0.0, effect="restart", detect=5 * S)
SYNC = CheckpointCost(stop=10 * S, load=(0.0, 0.0, 20 * S))


def every(seconds: float) -> CheckpointPolicy:
    policy: CheckpointPolicy = get("checkpoint", f"every(seconds={seconds})")
    return policy


def course(
    job: Job, cost: CheckpointCost, interval: float, *told: tuple[float, str, int],
    kinds: tuple[FailureKind, ...] = (GPU, PROGRAM),
) -> Course:  # fmt: skip
    log = [ToldFailure(round(at * S), kind, node) for at, kind, node in told]
    run = FailingRun(job, cost, kinds, every(interval), told=log)
    assert run.advance() == t.FINISHED
    return run.course()


@pytest.mark.hand_worked
def test_without_failures_a_run_is_its_work_and_its_checkpoints() -> None:
    found = course(Job(work=250 * S), SYNC, 100)
    assert found.total == 280 * S and found.checkpoints == 3  # 100 + 10, 100 + 10, 50 + 10
    assert found.spent == {"computing": 250 * S, "copying": 30 * S, "blocked": 0, "down": 0, "short": 0}


@pytest.mark.hand_worked
def test_a_failure_costs_detection_restart_loading_and_lost_work() -> None:
    # At 150 s 140 are done and 100 saved: noticed at 155, started at 185, loaded at 205; 150 s of work and 20 of copies.
    found = course(Job(work=250 * S, nodes=2, spare=1, restart=30 * S), SYNC, 100, (150, "gpu", 0))
    assert found.lost == 40 * S and found.total == 205 * S + 170 * S
    assert found.loads == {"own": 0, "peers": 0, "storage": 1} and found.interruptions == 1


@pytest.mark.hand_worked
def test_a_failure_before_the_first_checkpoint_starts_from_scratch() -> None:
    found = course(Job(work=50 * S, restart=30 * S), SYNC, 100, (40, "job", 0))
    assert found.scratch == 1 and found.lost == 40 * S and found.total == (40 + 5 + 30 + 50 + 10) * S


@pytest.mark.hand_worked
def test_the_next_checkpoint_waits_until_the_one_before_is_safe() -> None:
    cost = CheckpointCost(stop=1 * S, to_storage=150 * S, host=True)
    # 100 + 1; safe at 251; the second is due at 201, waits until 251, is taken at 252 and safe at 402.
    found = course(Job(work=200 * S), cost, 100)
    assert found.spent["blocked"] == (50 + 150) * S and found.total == 402 * S


@pytest.mark.hand_worked
@pytest.mark.parametrize(("agent", "level", "lost"), [(True, "own", 20), (False, "scratch", 120)])
def test_a_copy_in_host_memory_outlives_the_program_only_with_an_agent(agent: bool, level: str, lost: int) -> None:
    cost = CheckpointCost(stop=1 * S, to_storage=50 * S, host=True, agent=agent, load=(2 * S, 2 * S, 30 * S))
    found = course(Job(work=200 * S), cost, 100, (121, "job", 0))  # the first copy is on its way to storage
    assert found.lost == lost * S
    assert (found.loads["own"] if level == "own" else found.scratch) == 1


@pytest.mark.hand_worked
def test_neighbours_keep_what_a_lost_node_had_until_they_fail_too() -> None:
    cost = CheckpointCost(stop=1 * S, to_peers=4 * S, host=True, copies=1, each=0, load=(1 * S, 3 * S, 30 * S))
    job = Job(work=300 * S, nodes=4, spare=4, restart=10 * S)
    one = course(job, cost, 100, (150, "gpu", 1))
    assert one.loads["peers"] == 1 and one.lost == 49 * S  # 100 of 149 s done
    both = course(job, cost, 100, (150, "gpu", 1), (152, "gpu", 2))  # node 2 kept the part of node 1
    assert both.scratch == 1 and both.lost == 149 * S
    apart = course(job, cost, 100, (150, "gpu", 1), (152, "gpu", 3))
    assert apart.scratch == 0 and apart.loads["peers"] == 2
    holder = course(job, cost, 100, (150, "gpu", 2), (175, "gpu", 1))  # back at work, node 2 has not got the copy again
    assert holder.scratch == 1


@pytest.mark.hand_worked
def test_without_spare_nodes_a_job_waits_for_the_repair_or_goes_on_with_fewer() -> None:
    waits = course(Job(work=100 * S, nodes=4), SYNC, 1000, (50, "gpu", 0))
    assert waits.spent["short"] == 1000 * S and waits.total == (50 + 1000 + 100 + 10) * S
    fewer = course(Job(work=100 * S, nodes=4, least=2, unit=2), SYNC, 1000, (50, "gpu", 0))
    assert fewer.spent["short"] == 0 and fewer.total == (50 + 5 + 200 + 10) * S  # two of four nodes: half as fast
    back = course(Job(work=1500 * S, nodes=4, least=2, unit=2, regroup=7 * S), SYNC, 600, (0, "gpu", 0))
    # 600 s of work at half speed until 1205 and 1215; the node came back at 1000, and joins: 7 s, then 600 + 10 + 300 + 10.
    assert back.total == (1215 + 7 + 920) * S


@pytest.mark.hand_worked
def test_a_slow_rank_slows_all_and_retired_pages_count_up() -> None:
    slow = FailureKind(name="slow", between=math.inf, effect="slow", speed=0.5, lasts=60 * S)
    found = course(Job(work=100 * S), SYNC, 1000, (20, "slow", 0), kinds=(slow,))
    assert found.total == (20 + 60 + 50 + 10) * S and found.interruptions == 0
    page = FailureKind(name="page", between=math.inf, effect="shrink", bytes=64.0, detect=5 * S, repair=0.0)
    told = [(float(at), "page", 0) for at in (10, 20, 30)]
    found = course(Job(work=100 * S, gpus=1, margin=128.0), SYNC, 1000, *told, kinds=(page,))
    assert found.interruptions == 1 and found.lost == 30 * S  # the third is too much


NIC = FailureKind(name="nic", effect="degrade", speed=0.8, detect=5 * S, lasts=500 * S)


@pytest.mark.hand_worked
def test_a_dead_card_stops_the_job_and_slows_it_until_it_is_repaired() -> None:
    found = course(Job(work=1000 * S, nodes=2, restart=30 * S), SYNC, 5000, (100, "nic", 1), kinds=(NIC,))
    # Dead at 100, back from scratch at 135; until 600 at 0.8: 372 s of work; the other 628 until 1228; 10 to save.
    assert found.total == 1238 * S and found.interruptions == 1 and found.lost == 100 * S


@pytest.mark.hand_worked
def test_episodes_that_overlap_end_each_by_itself_and_leave_with_their_node() -> None:
    deep = FailureKind(name="deep", effect="slow", speed=0.5, lasts=20 * S)
    flat = FailureKind(name="flat", effect="slow", speed=0.8, lasts=100 * S)
    told = ((10, "flat", 0), (30, "deep", 1))
    found = course(Job(work=200 * S, nodes=2), SYNC, 1000, *told, kinds=(deep, flat))
    # 10 + 20 x 0.8 + 20 x 0.5 + 60 x 0.8 = 84 until 110, then 116 more, and 10 to save.
    assert found.total == (110 + 116 + 10) * S
    gone = course(Job(work=200 * S, nodes=2, spare=1), SYNC, 1000, (10, "flat", 0), (60, "gpu", 0), kinds=(flat, GPU))
    assert gone.total == (60 + 5 + 200 + 10) * S  # the slow node is the one that fails: its place has a healthy one
    many = [(float(at), "flat", 0) for at in range(40)]
    assert course(Job(work=200 * S), SYNC, 1000, *many, kinds=(flat,)).total == round((139 + 200 - 0.8 * 139 + 10) * S)


@pytest.mark.hand_worked
def test_a_switch_takes_all_nodes_of_its_rack() -> None:
    rack = FailureKind(name="rack", effect="lose_node", group=4, detect=5 * S, repair=100 * S)
    one = course(Job(work=100 * S, nodes=8, least=4, unit=4), SYNC, 1000, (50, "rack", 6), kinds=(rack,))
    # Nodes 4 to 7 leave; the other four begin again at 55 at half speed, and save at 255 for 10.
    assert one.total == 265 * S and one.spent["short"] == 0
    spare = course(Job(work=100 * S, nodes=8, spare=3), SYNC, 1000, (50, "rack", 0), kinds=(rack,))
    assert spare.spent["short"] == 100 * S  # three spare nodes are one too few: all wait for the repair
    cost = CheckpointCost(stop=1 * S, to_peers=4 * S, host=True, copies=1, each=0, load=(1 * S, 3 * S, 30 * S))
    lost = course(Job(work=300 * S, nodes=8, spare=4), cost, 100, (150, "rack", 0), kinds=(rack,))
    assert lost.scratch == 1  # the neighbours that kept the copies are in the same rack


@pytest.mark.hand_worked
def test_what_the_age_of_the_program_brings_comes_after_each_start() -> None:
    full = FailureKind(name="host", after=100 * S, effect="restart", detect=5 * S)
    found = course(Job(work=250 * S, restart=15 * S), SYNC, 50, kinds=(full,))
    # Save at 50 and 110 (after 100 s: killed at 100 with 40 s lost); every run of 100 s saves one interval of 50 s.
    assert found.interruptions == 4 and found.lost == 4 * 40 * S
    assert found.total == 4 * (100 + 5 + 15 + 20) * S + (50 + 10) * S


@pytest.mark.hand_worked
def test_a_job_that_shrinks_has_the_pace_and_the_costs_of_its_nodes() -> None:
    cost = replace(SYNC, fewer={2: replace(SYNC, stop=16 * S)})
    job = Job(work=100 * S, nodes=4, least=2, unit=2, pace={2: 0.625})
    found = course(job, cost, 1000, (50, "gpu", 0))
    assert found.total == (50 + 5 + 160 + 16) * S
    beside = CheckpointCost(stop=1 * S, to_storage=50 * S, host=True, speed=(1.0, 0.9))
    assert course(Job(work=200 * S), beside, 100).total == (100 + 1 + 50 + 55 + 1 + 50) * S  # 45 s of work beside the flush


@pytest.mark.hand_worked
def test_neighbours_get_their_copies_again_where_memory_is_balanced_anew() -> None:
    cost = CheckpointCost(stop=1 * S, to_peers=4 * S, host=True, copies=1, each=0, load=(1 * S, 3 * S, 30 * S), rebalance=True)
    job = Job(work=300 * S, nodes=4, spare=4, restart=10 * S)
    # Node 2 fails at 150 and is replaced; back at 168, its neighbour's copy arrives at 172, before node 1 fails.
    late = course(job, cost, 100, (150, "gpu", 2), (175, "gpu", 1))
    assert late.scratch == 0 and late.loads["peers"] == 2
    early = course(job, cost, 100, (150, "gpu", 2), (171, "gpu", 1))
    assert early.scratch == 1


def shared(spare: int, *jobs: tuple[float, tuple[tuple[float, str, int], ...]], **more: float) -> list[Course]:
    """Jobs of two nodes and so many s of work, each with a log of failures."""
    runs = []
    for work, log in jobs:
        told = [ToldFailure(round(at * S), kind, node) for at, kind, node in log]
        runs.append(FailingRun(Job(work=work * S, nodes=2, **more), SYNC, (GPU, PROGRAM), every(1000), told=told))
    together = SharedSpares(runs, spare)
    assert together.advance()
    return [run.course() for run in runs]


@pytest.mark.hand_worked
def test_jobs_share_spare_nodes() -> None:
    # The first takes the only spare node at 50; the second has one node from 60 on, and waits until one of 1050 comes back.
    first, second = shared(1, (100, ((50, "gpu", 0),)), (100, ((60, "gpu", 1),)))
    assert first.spent["short"] == 0 and first.total == (50 + 5 + 100 + 10) * S
    # At 165 the first job has ended, and its two nodes stand by: the second begins again then.
    assert second.spent["short"] == (165 - 60) * S and second.total == (165 + 100 + 10) * S
    both = shared(2, (100, ((50, "gpu", 0),)), (100, ((60, "gpu", 1),)))
    assert [each.spent["short"] for each in both] == [0, 0]
    # Neither can end: a node of the first comes back at 1010, that of the second at 1020.
    waiting = shared(0, (100, ((10, "gpu", 0),)), (100, ((20, "gpu", 0),)))
    assert [each.spent["short"] for each in waiting] == [1000 * S, 1000 * S]
    alone = course(Job(work=100 * S, nodes=2), SYNC, 1000, (10, "gpu", 0))
    assert waiting[0].total == alone.total
    with pytest.raises(GpusimError, match="none of their own"):
        SharedSpares([FailingRun(Job(work=S, nodes=2, spare=1), SYNC, (GPU,), every(10))], 1)


@pytest.mark.agreement
def test_a_job_that_shares_with_no_other_is_as_it_is_alone() -> None:
    kinds = [FailureKind(name="gpu", between=900 * S, each=8.0, effect="lose_node", detect=5 * S, repair=400 * S)]
    job = Job(work=20_000 * S, nodes=3, restart=30 * S, least=2)
    alone = FailingRun(replace(job, spare=2), SYNC, kinds, every(60), seed=5)
    alone.advance()
    run = FailingRun(job, SYNC, kinds, every(60), seed=5)
    assert SharedSpares([run], 2).advance()
    assert run.course() == alone.course() and alone.course().interruptions > 20


@pytest.mark.hand_worked
def test_increments_write_less_and_are_loaded_on_top_of_the_whole_one() -> None:
    cost = CheckpointCost(stop=10 * S, load=(0.0, 0.0, 20 * S), full=4, share=0.5)
    found = course(Job(work=400 * S), cost, 100, (239, "job", 0))
    # Whole at 110, increments at 215 and 320: failed at 239 with 200 saved; loads 20 and half of that.
    assert found.lost == 24 * S and found.spent["down"] == (5 + 30) * S
    assert found.spent["copying"] == (10 + 5 + 5 + 5) * S


@pytest.mark.formulas
@pytest.mark.parametrize("interval", [0.3, 1.0, 3.0])
def test_the_mean_is_that_of_the_closed_form(interval: float) -> None:
    hour = 3600 * S
    job, cost = Job(work=100 * hour, restart=0.2 * hour), CheckpointCost(stop=0.05 * hour)
    kinds = [FailureKind(name="any", between=5 * hour)]
    found = repeated(job, cost, kinds, every(interval * 3600), runs=1000, close=0.005, most=20_000).mean("total")
    expected = expected_time(job.work, interval * hour, cost.stop, job.restart, 5 * hour)
    assert found.half <= 0.005 * found.value and abs(found.value / expected - 1) < 0.01


@pytest.mark.formulas
def test_the_best_interval_is_where_daly_says() -> None:
    hour = 3600 * S
    job, cost, kinds = Job(work=200 * hour), CheckpointCost(stop=0.05 * hour), [FailureKind(name="any", between=5 * hour)]
    centre = daly(cost.stop, 5 * hour)
    totals = {f: repeated(job, cost, kinds, every(centre * f / S), runs=600).mean("total").value for f in (0.6, 1.0, 1.6)}
    assert totals[1.0] < totals[0.6] and totals[1.0] < totals[1.6]
    assert young(2.0, 100.0) == 20.0 and daly(300.0, 100.0) == 100.0
    assert daly(2.0, 100.0) == pytest.approx(20.0 * (1 + 0.1 / 3 + 0.01 / 9) - 2.0)


@pytest.mark.agreement
def test_a_run_goes_on_from_a_copy_of_its_state() -> None:
    kinds = [FailureKind(name="gpu", between=900 * S, each=8.0, effect="lose_node", detect=5 * S, repair=400 * S)]
    job = Job(work=5000 * S, nodes=3, spare=1, restart=30 * S)
    loads = (2 * S, 4 * S, 9 * S)
    cost = CheckpointCost(stop=4 * S, to_peers=3 * S, to_storage=20 * S, host=True, copies=1, each=3, load=loads)
    whole = FailingRun(job, cost, kinds, every(60), seed=5)
    whole.advance()
    first = FailingRun(job, cost, kinds, every(60), seed=5)
    assert first.advance(round(1500 * S)) == t.REACHED
    second = copy.deepcopy(first)
    second.advance()
    assert second.course() == whole.course()
    first.advance()
    assert first.course() == whole.course() and whole.course().interruptions > 3


@pytest.mark.agreement
def test_records_tell_all_that_is_counted() -> None:
    kinds = [FailureKind(name="gpu", between=4000 * S, each=8.0, effect="lose_node", detect=5 * S, repair=400 * S)]
    job = Job(work=20_000 * S, nodes=3, restart=30 * S)
    run = FailingRun(job, CheckpointCost(stop=4 * S), kinds, every(60), seed=1, log=True)
    run.advance()
    rows, found = run.records(), run.course()
    count = {kind: int(np.sum(rows["kind"] == kind)) for kind in range(8)}
    assert count[t.FAILED] == found.interruptions == found.counts["gpu"] and count[t.TAKEN] == found.checkpoints
    assert count[t.RECOVERED] == sum(found.loads.values()) + found.scratch
    assert rows["value"][rows["kind"] == t.RECOVERED].sum() == pytest.approx(found.lost)
    assert sum(found.spent.values()) == found.total and np.all(np.diff(rows["t"]) >= 0)
    assert found.spent["computing"] == pytest.approx(job.work + found.lost, abs=found.checkpoints + found.interruptions)


def test_a_policy_that_learns_comes_to_the_rate_that_it_sees() -> None:
    policy = get("checkpoint", "adaptive")
    view = CheckpointView(cost=10 * S, flush=0.0, between=100_000 * S, restart=0.0, elapsed=100_000 * S, interruptions=97)
    assert policy.interval(view) == pytest.approx(daly(10 * S, 4000 * S))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(GpusimError, match="waits for nodes for ever"):
        course(Job(work=100 * S, nodes=2), SYNC, 10, (5, "gpu", 0), kinds=(replace(GPU, repair=math.inf),))
    with pytest.raises(GpusimError, match="no failures of kind 'gp'"):
        course(Job(work=100 * S), SYNC, 10, (5, "gp", 0))
    with pytest.raises(GpusimError, match="goes back in time at 4 s"):
        course(Job(work=100 * S), SYNC, 10, (5, "gpu", 0), (4, "gpu", 0))
    with pytest.raises(GpusimError, match="2 neighbours"):
        course(Job(work=100 * S, nodes=2), CheckpointCost(stop=1.0, copies=2), 10)
    with pytest.raises(GpusimError, match="cannot go on with 5"):
        course(Job(work=100 * S, nodes=2, least=5), SYNC, 10)
