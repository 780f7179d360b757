"""Are jobs on a cluster those of their words, and equal to Gavel's simulator?

Gavel's traces, its table and what its simulator answered for them (github.com/stanford-futuredata/gavel, MIT): GAVEL_RUNS names
the folder with *.trace, simulation_throughputs.json, per_job_jct.csv and summary.csv.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.programs.arrivals.words import cluster_of, jobs_of
from gpusim.show.monitoring.cluster_metrics import clock_of, samples_of
from gpusim.show.values.jobs_in_time import jobs_in_time

GAVEL = Path(os.environ.get("GAVEL_RUNS", "GAVEL_RUNS"))
SOLVED = ("max_min_fairness", "max_min_fairness_perf", "finish_time_fairness_perf", "min_total_duration_perf")
EXACT = ("fifo", "fifo_perf", "gandiva", "isolated", *SOLVED)


def gavel() -> Path:
    if not (GAVEL / "summary.csv").is_file():
        pytest.skip("GAVEL_RUNS does not name the folder of Gavel's runs")
    return GAVEL


def cluster_words(numbers: str) -> str:
    """"2-4-6" of Gavel: V100, P100, K80."""
    return ", ".join(f"{n} {kind}" for n, kind in zip(numbers.split("-"), ("v100", "p100", "k80"), strict=True))


@pytest.mark.oracle
def test_times_are_those_of_gavels_simulator_for_every_job() -> None:
    folder, wanted = gavel(), defaultdict(dict)
    for row in csv.DictReader((folder / "per_job_jct.csv").open()):
        wanted[row["trace"], row["policy"], row["cluster"]][int(row["job"])] = float(row["jct_s"])
    totals = {(row["trace"], row["policy"]): row for row in csv.DictReader((folder / "summary.csv").open())}
    seen = 0
    for (trace, scheduler, numbers), times in wanted.items():
        assert scheduler in EXACT
        if scheduler in SOLVED:
            pytest.importorskip("ecos", reason="the extra lp is not installed")
        found = gpusim.cluster(
            cluster_words(numbers), str(folder / f"{trace}.trace"), scheduler, rates=str(folder / "simulation_throughputs.json")
        )
        run, total = found.runs[0].outcome, totals[trace, scheduler]
        assert max(abs(run.taken[job] - seconds) for job, seconds in times.items()) < 1e-3
        assert run.counts["end_s"] == pytest.approx(float(total["total_duration_s"]), abs=1e-3)
        assert run.counts["gavel_utilisation"] == pytest.approx(float(total["utilization"]), abs=5e-4)
        if total["lease_opportunities"]:
            assert run.counts["chances"] == int(total["lease_opportunities"])
            assert run.counts["kept"] == int(total["lease_extended"])
        seen += len(times)
    assert seen == 568


def test_a_trace_of_gavel_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_text(
        "A\tcmd\tdir\t-n\t1\t100\t2\t1\t-1.000000\t0\nB\tcmd\tdir\t-n\t1\t50\t1\t5\t60.0\t7.5\n", encoding="utf-8"
    )
    first, second = jobs_of("a.trace", tmp_path)
    assert (first.model, first.work, first.gpus, first.deadline) == ("A", 100, 2, math.inf)
    assert (second.weight, second.arrival, second.deadline) == (5.0, 7.5, 60.0)
    (tmp_path / "b.trace").write_text("A\tcmd\t-n\t1\t100\t3.5\t8\n", encoding="utf-8")
    (philly,) = jobs_of("b.trace", tmp_path)
    assert (philly.gpus, philly.sized, philly.arrival) == (8, 1, 3.5)
    table = {"v100": {"('A', 1)": {"null": 2.0, "('A', 1)": [1.5, 1.5]}, "('A', 2)": {"null": 4.0}}}
    (tmp_path / "rates.json").write_text(json.dumps(table), encoding="utf-8")
    found = gpusim.cluster("8 v100", str(tmp_path / "b.trace"), rates=str(tmp_path / "rates.json"))
    assert found.runs[0].outcome.taken.tolist() == [50.0]  # 100 steps at the rate of one V100


def test_a_table_of_ones_own_is_read(tmp_path: Path) -> None:
    text = "arrival_s,seconds,gpus,share,memory_gib,deadline_s,types\n0,60,1,0.5,10,90,v100|a100\n5,30,,,,,\n"
    (tmp_path / "jobs.csv").write_text(text, encoding="utf-8")
    first, second = jobs_of("jobs.csv", tmp_path)
    assert (first.share, first.memory, first.deadline, first.types) == (0.5, 10 * 2**30, 90.0, ("v100", "a100"))
    assert (second.gpus, second.work, second.deadline) == (1, 30.0, math.inf)


def test_pods_and_nodes_of_alibaba_are_read(tmp_path: Path) -> None:
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    rows = ["p1,6000,1024,1,460,T4|P100,LS,Running,20,130,30", "p0,6000,1024,2,1000,,LS,Failed,10,40,20",
            "cpu,6000,1024,0,0,,LS,Running,5,50,5", "never,6000,1024,1,1000,,BE,Pending,5,,"]  # fmt: skip
    (tmp_path / "pods.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,4096,2,P100\nn1,8000,4096,0,\nn2,8000,4096,1,T4\n", encoding="utf-8"
    )
    first, second = jobs_of("pods.csv", tmp_path)
    assert (first.name, first.gpus, first.work, first.arrival) == ("p0", 2, 20.0, 10.0)
    assert (second.share, second.cpus, second.host, second.types) == (0.46, 6.0, 2.0**30, ("T4", "P100"))
    found = gpusim.cluster(str(tmp_path / "nodes.csv"), str(tmp_path / "pods.csv"), "best_fit")
    assert cluster_of("nodes.csv", tmp_path).gpus == 3
    assert found.runs[0].outcome.end.tolist() == [30.0, 120.0]
    with pytest.raises(GpusimError, match="which rounds do not count"):
        gpusim.cluster(str(tmp_path / "nodes.csv"), str(tmp_path / "pods.csv"), "isolated")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("arrival_s,seconds\n5,10\n4,10\n", r"jobs.csv:3: job 1 arrives at 4 s, before the one above it \(5 s\)"),
        ("arrival_s,seconds\n5,ten\n", "jobs.csv:2: seconds 'ten' is no number"),
        ("arrival_s,secs\n5,10\n", "jobs.csv:1: jobs have no column 'secs'"),
        ("arrival_s,gpus\n5,1\n", "has the columns arrival_s and seconds"),
        ("arrival_s,seconds\n5,0\n", "jobs.csv:2: job 0 cannot have seconds 0"),
        ("arrival_s,seconds\n", "the trace has no jobs"),
        ("arrival_s,seconds,gpus\n0,5,9\n", "jobs.csv:2: job 0 wants 9 GPUs of one type; the cluster has 8 v100"),
        ("arrival_s,steps,model\n0,5,A\n", "nothing says how fast"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "requests are no jobs"),
        ("arrival_s,seconds,gpus\n5,10\n", "jobs.csv:2: this row has not as many values as there are columns"),
    ],
)
def test_a_bad_table_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "jobs.csv").write_text(text, encoding="utf-8")
    with pytest.raises(GpusimError, match=says):
        gpusim.cluster("8 v100", str(tmp_path / "jobs.csv"))


def test_a_table_may_begin_with_a_byte_order_mark_and_is_text(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_bytes(b"\xef\xbb\xbfarrival_s,seconds\r\n5,10\r\n")
    assert gpusim.cluster("8 v100", str(file)).values()
    file.write_bytes(b"\x91\xff\x00")
    with pytest.raises(GpusimError, match=r"jobs\.csv: is not text in UTF-8"):
        gpusim.cluster("8 v100", str(file))


@pytest.mark.parametrize(
    ("gpus", "arrivals", "words", "says"),
    [
        ("8v100", "poisson", {}, "'8v100' is no part of a cluster"),
        ("0 v100", "poisson", {}, "has no GPUs"),
        ("8 v100", "poison", {}, "'poison' says no jobs"),
        ("8 v100", "poisson(rate=0)", {}, "cannot have rate=0"),
        ("8 v100", "poisson(speed=1)", {}, "poisson has no 'speed'"),
        ("8 v100", "like(jobs=5)", {}, "like needs a trace"),
        ("8 v100", "poisson", {"schedulers": "fifi"}, "there is no jobs policy 'fifi'"),
        ("8 v100", "poisson", {"goal": "wait p90 1 h"}, "no number of nodes is open"),
        ("? x 8 v100", "poisson", {}, "which goal they have to keep"),
        ("? x 8 v100", "poisson", {"goal": "fast"}, "'fast' is no goal"),
        ("? x 8 v100", "poisson", {"goal": "missed 0.1"}, "no job has a deadline"),
        ("? x 8 v100", "poisson(jobs=5)", {"goal": "jct mean 1 s"}, "first_come does not keep the goal"),
        ("8 v100", "poisson", {"round": "5"}, "round: "),
        ("8 v100", "poisson(jobs=5)", {"schedulers": "isolated", "restart": "5 s"}, "stop and start jobs at no cost"),
        ("8 v100", "poisson", {"rates": "none.json"}, "no table of rates"),
        ("8 v100", "poisson", {"speed": "1"}, "a cluster has no 'speed'"),
    ],
)
def test_bad_words_are_answered_in_a_sentence(gpus: str, arrivals: str, words: dict[str, str], says: str) -> None:
    with pytest.raises(GpusimError, match=says):
        gpusim.cluster(gpus, arrivals, **words)


@pytest.mark.formulas
def test_drawn_arrivals_have_the_rate_and_the_pattern_asked_for(tmp_path: Path) -> None:
    def hours(word: str) -> np.ndarray:
        return np.array([job.arrival for job in jobs_of(word, tmp_path)]) / 3600.0

    plain = np.diff(hours("poisson(jobs=20000, rate=10)"))
    assert plain.mean() == pytest.approx(0.1, rel=0.03) and plain.std() == pytest.approx(0.1, rel=0.03)
    daily = hours("diurnal(jobs=20000, rate=10, swing=0.8, peak=14)") % 24
    assert np.sum((daily > 11) & (daily < 17)) > 4 * np.sum((daily < 5) | (daily > 23))
    counts = np.bincount(hours("bursts(jobs=20000, rate=10, peak=200, every=24, lasts=1)").astype(int))
    assert counts.var() / counts.mean() > 5  # 1 for Poisson
    rows = "".join(f"{t},60\n" for t in (0, 1, 2, 3, 4000, 4001, 4002, 9000))
    (tmp_path / "trace.csv").write_text("arrival_s,seconds\n" + rows, encoding="utf-8")
    like = hours("like(file=trace.csv, jobs=8000, window=600, block=3)")
    share = np.bincount((like * 6).astype(int))
    assert share.var() / share.mean() > 2 and len(like) == 8000 and (np.diff(like) >= 0).all()
    sizes = np.array([job.gpus for job in jobs_of("poisson(jobs=20000)")])
    assert np.mean(sizes == 1) == pytest.approx(0.7, abs=0.02)


@pytest.mark.slow
def test_the_fewest_nodes_are_found_and_one_less_breaks_the_goal() -> None:
    jobs = "poisson(jobs=150, rate=10, seed=3)"
    found = gpusim.cluster("? x 8 v100", jobs, ["first_come", "shortest_first"], goal="wait mean 10 min")
    for one, nodes in zip(found.runs, found.nodes, strict=True):
        assert one.values["wait_mean_s"] <= 600
        less = gpusim.cluster(f"{nodes - 1} x 8 v100", jobs, one.outcome.scheduler).runs[0]
        assert less.values["wait_mean_s"] > 600
    assert {each.scheduler for each in found.tried} == {"first_come", "shortest_first"}


@pytest.mark.slow
def test_the_shipped_question_has_its_answer(tmp_path: Path) -> None:
    from gpusim.api.cluster import cluster_question
    from gpusim.show.cluster import save_answer

    asked, found = cluster_question("how_many_gpus")
    assert asked.goal == "jct mean 20 h"
    assert {one.outcome.scheduler: one.outcome.cluster.gpus for one in found.runs} == {
        "first_come": 312, "best_fit": 264, "shortest_first": 240, "isolated": 216,
    }  # fmt: skip
    assert {path.name for path in save_answer(found, tmp_path)} >= {"cluster.json", "jobs.csv", "cluster.png"}
    assert len((tmp_path / "jobs.csv").read_text().splitlines()) == 4001


def test_arrivals_are_drawn_as_in_a_trace_of_gavel(tmp_path: Path) -> None:
    lines = [f"A\tcmd\t-n\t1\t100\t{at}\t1" for at in (0, 10, 20, 7200, 7210)]
    (tmp_path / "p.trace").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = jobs_of("like(file=p.trace, jobs=50, window=600)", tmp_path)
    assert len(found) == 50 and all(a.arrival <= b.arrival for a, b in pairwise(found))
    with pytest.raises(GpusimError, match="there is no trace"):
        jobs_of("like(file=q.trace, jobs=50)", tmp_path)


FAILS = {"failures": "gpu 200 h, job 100 h", "every": "1 h", "save": "60 s", "restart": "5 min", "spare": "1"}


def test_schedulers_of_both_kinds_meet_the_same_failures(tmp_path: Path) -> None:
    words = FAILS | {"every": "round", "save": "0 s", "restart": "0 s"}
    found = gpusim.cluster("4 x 8 h100", "poisson(jobs=40, rate=1, least=0.5)", ["first_come", "isolated"], **words)
    places, shares = (each.outcome.failed for each in found.runs)
    assert places is not None and shares is not None
    until = min(each.broken[-1].start for each in (places, shares))
    both = [sorted((b.start, b.node) for b in each.broken if b.start < until) for each in (places, shares)]
    assert both[0] == both[1] and len(both[0]) > 5
    shown = {row["scheduler"]: row for row in found.values()["schedulers"]}
    assert 0.9 < shown["first_come"]["goodput"] < 1.0 and 0.9 < shown["isolated"]["goodput"] < 1.0


def test_the_page_and_the_metrics_have_the_failures(tmp_path: Path) -> None:
    found = gpusim.cluster("4 x 8 h100", "poisson(jobs=40, rate=1)", "first_come", **FAILS)
    run = found.runs[0].outcome
    assert run.failed is not None
    samples = samples_of(run, "", "", clock_of([run]))
    assert samples.total("cluster_node_failures")[-1] == len(run.failed.broken)
    assert samples.total("cluster_job_interruptions")[-1] == len(run.failed.interruptions)
    assert samples.total("cluster_gpu_lost_seconds")[-1] == pytest.approx(sum(run.failed.spent.values()))
    assert samples.total("cluster_gpu_held_seconds")[-1] == pytest.approx(run.worked)
    activities, _ = jobs_in_time(run)
    away = activities.of_kind("failure")
    hung = sum(8 * (each.end - each.start) for each in run.failed.broken)
    assert 0.98 * hung * 1e9 < (away["end"] - away["start"]).sum() <= hung * 1e9 + 1e3  # but for jobs that hang at first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"failures": "gpu 5 h"}, "nothing says how often jobs save"),
        ({"every": "1 h"}, "--every is for nodes that fail, and nothing fails"),
        ({"failures": "gpu 5 h", "every": "daly"}, "daly has no best interval where a checkpoint stops a job for 0 s"),
        ({"failures": "nic(rate=0.5, lasts=1 h) 5 h", "every": "never"}, "does not know what a nic at 0.5 of its rate leaves"),
        ({"failures": "nic 5 h", "every": "never"}, "a cluster does not know what a dead nic leaves of its jobs' pace"),
        ({"failures": "page 5 h", "every": "never"}, "page takes memory from GPUs, and the nodes do not say how much"),
        ({"failures": "slow(speed=0.5, lasts=1 h) 5 h", "every": "round", "schedulers": "isolated"}, "no job is slowed by"),
        ({"failures": "gpu 5 h", "every": "never", "spare": "1 x 4 h100"}, "a spare node of 4 h100 is in the place of none"),
        ({"failures": "gpu 5 h", "every": "1 h", "schedulers": "isolated"}, "isolated works in rounds, at whose ends"),
    ],
)
def test_words_of_failures_that_say_nothing_are_refused(words: dict[str, str], said: str) -> None:
    with pytest.raises(GpusimError, match=re.escape(said)):
        gpusim.cluster("4 x 8 h100", "poisson(jobs=5)", words.pop("schedulers", "first_come"), **words)


def test_a_log_of_failures_is_refused_with_its_line(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    for row, said in (("9,gpu,n17", "'n17' is no node"), ("9,gpu,4", "node 4 fails, and the cluster has 4 nodes, 0 to 3"),
                      ("9,gpuu,1", "'gpuu' is nothing that fails")):  # fmt: skip
        log.write_text(f"seconds,kind,node\n5,gpu,1\n{row}\n")
        with pytest.raises(GpusimError, match=re.escape(f"log.csv:3: {said}")):
            gpusim.cluster("4 x 8 h100", "poisson(jobs=5)", failures=str(log), every="never")
