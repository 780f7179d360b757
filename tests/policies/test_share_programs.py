"""Are shares of time those worked out by hand, where a scheduler solves a program over them?"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.policies.clusters import ArrivingJob, JobRates, Shares, ShareView
from gpusim.policies.jobs.min_total_duration_perf import halved
from gpusim.policies.registry import get

pytestmark = pytest.mark.hand_worked
V100, K80 = {"v100": 1}, {"k80": 1, "v100": 1}


def shares(scheduler: str, jobs: list[ArrivingJob], rates: list[Mapping[str, float]], gpus: dict[str, int], now: float = 0.0,
           tables: JobRates | None = None) -> Shares:  # fmt: skip
    pytest.importorskip("ecos", reason="the extra lp is not installed")
    view = ShareView(now, list(range(len(jobs))), gpus, jobs, [0.0] * len(jobs), rates, tables or JobRates())
    found: Shares = get("jobs", scheduler).scheduler().shares(view)
    return found


def jobs(*work: float, **more: Any) -> list[ArrivingJob]:
    return [ArrivingJob(work=each, **more) for each in work]


def test_speeds_over_those_of_equal_parts_are_levelled_by_weight() -> None:
    heavy = [ArrivingJob(work=100, weight=2.0), ArrivingJob(work=100)]
    found = shares("max_min_fairness_perf", heavy, [{"v100": 4.0, "k80": 1.0}, {"v100": 2.0, "k80": 1.0}], K80)
    # x of the V100 and the rest of the K80: (3 x + 1) / 2.5 / 2 = (2 - x) / 1.5
    assert found[(0,)] == pytest.approx({"k80": 1 / 9.5, "v100": 8.5 / 9.5}, abs=1e-6)
    assert found[(1,)] == pytest.approx({"k80": 8.5 / 9.5, "v100": 1 / 9.5}, abs=1e-6)


def test_times_are_levelled_by_gpus() -> None:
    found = shares("max_min_fairness", [ArrivingJob(work=9, gpus=2), ArrivingJob(work=9)], [{"v100": 1.0}] * 2, {"v100": 2})
    # 2 x = y and 2 x + y = 2 would leave y = 1 and x = 1/2: each has as many GPU seconds
    assert found[(0,)]["v100"] == pytest.approx(0.5, abs=1e-6) and found[(1,)]["v100"] == pytest.approx(1.0, abs=1e-6)


def test_two_together_are_better_than_turns_where_the_table_says_so() -> None:
    rates = JobRates({("v100", "a", 1): 1.0}, {("v100", "a", "a", 1): (0.75, 0.75)})
    found = shares("max_min_fairness_packed", jobs(9, 9, model="a"), [{"v100": 1.0}] * 2, V100, tables=rates)
    assert found[(0, 1)]["v100"] == pytest.approx(1.0, abs=1e-5) and found[(0,)]["v100"] == pytest.approx(0.0, abs=1e-5)


def test_lateness_so_far_counts() -> None:
    two = [ArrivingJob(work=100, arrival=0), ArrivingJob(work=300, arrival=100)]
    found = shares("finish_time_fairness_perf", two, [{"v100": 1.0}] * 2, V100, now=100.0)
    # (100 + 100 / x) / 200 = 300 / (1 - x) / 600: x is the golden ratio
    assert found[(0,)]["v100"] == pytest.approx((math.sqrt(5) - 1) / 2, abs=1e-6)


@pytest.mark.parametrize("scheduler", ["min_total_duration", "min_total_duration_perf"])
def test_all_end_within_the_time_that_halving_finds(scheduler: str) -> None:
    found = shares(scheduler, jobs(1000, 1000, 1000), [{"v100": 1.0}] * 3, {"v100": 2})
    within = halved(1500.0)
    assert 1500.0 <= within <= 1.05 * 1500.0
    assert all(within * found[(job,)]["v100"] >= 1000.0 * (1 - 1e-6) for job in range(3))
    assert sum(found[(job,)]["v100"] for job in range(3)) <= 2.0 + 1e-6


def test_halving_keeps_its_steps_beyond_its_first_range() -> None:
    assert halved(100.0) <= 110.0 and 5e6 <= halved(5e6) <= 1.05 * 5e6


def test_the_faster_job_has_all_where_steps_count_alike() -> None:
    found = shares("max_sum_throughput_perf", jobs(9, 9), [{"v100": 3.0}, {"v100": 1.0}], V100)
    assert found[(0,)]["v100"] == pytest.approx(1.0, abs=1e-6) and found[(1,)]["v100"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.formulas
@pytest.mark.parametrize(
    "scheduler",
    ["max_min_fairness", "max_min_fairness_perf", "finish_time_fairness", "finish_time_fairness_perf", "min_total_duration",
     "min_total_duration_perf", "max_sum_throughput_perf"],
)  # fmt: skip
def test_shares_keep_their_bounds(scheduler: str) -> None:
    draw = np.random.default_rng(7)
    gpus = {"k80": 6, "p100": 4, "v100": 3}
    sizes = draw.choice([1, 2, 4], 17, p=[0.6, 0.3, 0.1]).tolist()
    sizes = draw.choice([1, 2, 4], 17, p=[0.6, 0.3, 0.1]).tolist()
    many = [ArrivingJob(work=float(draw.integers(500, 90000)), gpus=size) for size in sizes]
    speeds = dict(zip(gpus, (1, 2, 4), strict=True))
    rates = [{kind: float(draw.uniform(0.1, 2.0) * speed) for kind, speed in speeds.items()} for _ in many]
    found = shares(scheduler, many, rates, gpus)
    for kind, count in gpus.items():
        assert sum(parts[kind] * many[row[0]].gpus for row, parts in found.items()) <= count + 1e-5
    assert all(sum(parts.values()) <= 1.0 + 1e-6 and min(parts.values()) >= 0.0 for parts in found.values())


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_ecos", None)
    view = ShareView(0.0, [0], V100, jobs(9), [0.0], [{"v100": 1.0}], JobRates())
    with pytest.raises(GpusimError, match=r"solves a program over shares, which needs ECOS \(pip install 'gpusim\[lp\]'\)"):
        get("jobs", "max_min_fairness").scheduler().shares(view)
