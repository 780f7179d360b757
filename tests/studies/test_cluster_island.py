"""Are rates of jobs those of the engine, each combination simulated once, and does the page say what the jobs did?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import gpusim as cli
from prometheus_tools import needs_promtool, promtool

import gpusim
from gpusim.api.cluster import cluster_question
from gpusim.base.errors import GpusimError
from gpusim.policies.clusters import ArrivingJob
from gpusim.programs.arrivals.words import cluster_of
from gpusim.results.activities.rows import JOB, QUEUED
from gpusim.show.monitoring.cluster_metrics import clock_of, samples_of
from gpusim.show.values.jobs_in_time import jobs_in_time
from gpusim.studies.cluster.island import IslandRates, island

A100 = "a100-sxm4-80gb"
DOCS = Path(__file__).parents[2] / "docs"
NETS, UNET = "resnet50-sgd", "unet3d-train"  # two short programs


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path / "cache"))


def rates(word: str = "island", gpus: str = f"2 x 2 {A100}") -> IslandRates:
    found = island(word, cluster_of(gpus))
    assert found is not None
    return found


def job(model: str, **more: Any) -> ArrivingJob:
    return ArrivingJob(name=model, model=model, work=100, **more)


@pytest.mark.slow
@pytest.mark.agreement
def test_alone_and_beside_others_are_those_of_an_experiment() -> None:
    alone = gpusim.simulate(NETS, on=A100, bounds=False)
    steps = rates().of(job(NETS), A100)
    assert steps is not None and 1e9 / steps < alone.metrics["makespan_ns"] < 2.5e9 / steps  # two steps, the first longer
    for way in ("mps", "time_slices"):
        said = {"trace": NETS, "beside": UNET, "profile": A100, "tenancy": way, "bounds": False, "question": "?"}
        metrics = gpusim.run(said)[0].metrics
        found = rates(f"island(sharing={way})").beside(A100, [(job(NETS), 0.5), (job(UNET), 0.5)])
        assert found == pytest.approx((1 / metrics["sharing_slowdown"], 1 / metrics["others_slowdown"]), rel=0.02)


@pytest.mark.slow
def test_each_combination_is_simulated_once_and_kept_for_other_processes() -> None:
    first, again = rates(), rates()
    both = [(job(NETS), 0.5), (job(UNET), 0.5)]
    found = first.beside(A100, both)
    assert first.beside(A100, both[::-1]) == found[::-1] and (first.simulated, first.looked_up) == (1, 0)
    assert again.beside(A100, both) == found and (again.simulated, again.looked_up) == (0, 1)


@pytest.mark.slow
def test_trainings_on_several_gpus_wait_for_each_other_and_slices_are_slower() -> None:
    one = rates()
    alone, two = one.of(job(NETS), A100), one.of(job(NETS, gpus=2), A100)
    assert alone is not None and two is not None and 0.5 * alone < two < alone
    (slice_,) = rates("island(sharing=mig)").beside(A100, [(job(NETS), "3g.40gb")])
    assert 42 / 108 * 0.8 < slice_ < 1.0
    capped = rates("island(sharing=mps, caps=1)").beside(A100, [(job(NETS), 0.25)])
    assert capped[0] < 0.9


@pytest.mark.slow
def test_programs_run_on_a_cluster_beside_each_other(tmp_path: Path) -> None:
    words = f"poisson(jobs=40, rate=30, hours=0.2, gpus=1, programs={NETS}|{UNET})"
    found = gpusim.cluster(f"1 x 2 {A100}", words, ["first_come", "packed"], rates="island")
    first, packed = (each.values for each in found.runs)
    assert first["ended"] == packed["ended"] == 40
    assert packed["work_done"] == pytest.approx(first["work_done"] * first["makespan_s"] / packed["makespan_s"])
    gandiva = gpusim.cluster(f"1 x 2 {A100}", words, "gandiva", rates="island").runs[0]
    assert gandiva.values["ended"] == 40


@pytest.mark.slow
def test_the_shipped_question_has_the_answer_of_the_documents() -> None:
    _, found = cluster_question("shared_gpus")
    rows = {row["scheduler"]: row for row in found.values()["schedulers"]}
    told = {
        line.split("|")[1].strip(" `"): float(line.split("|")[3].removesuffix(" h "))
        for line in (DOCS / "cluster.md").read_text("utf-8").split("## Which sharing")[1].split("## Held")[0].splitlines()
        if line.startswith("| `") and "time slices" not in line
    }
    assert len(told) == 6
    assert {name: round(rows[name]["jct_mean_s"] / 3600, 1) for name in told} == told


@pytest.mark.parametrize(
    ("word", "gpus", "says"),
    [
        ("island(sharing=mpss)", A100, "'mpss' is no way to share a GPU.*mps"),
        ("island(shares=mps)", A100, "island has no 'shares'.*sharing"),
        ("island(caps=1, sharing=mig)", A100, "caps=1 with sharing=mps"),
        ("island", "v100", "'v100' is no GPU that can be simulated"),
        ("island2", A100, "there is no table of rates 'island2'"),
    ],
)
def test_rates_that_cannot_be_are_told(word: str, gpus: str, says: str) -> None:
    with pytest.raises(GpusimError, match=says):
        gpusim.cluster(f"2 {gpus}", "poisson(jobs=2)", rates=word)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "scheduler", "way", "says"),
    [
        ("0,60,resnet5,1,1", "best_fit", "mps", "'resnet5' is no program"),
        ("0,60,gpt3-175b-train,1,1", "best_fit", "mps", "makes no steps of 'gpt3-175b-train' on .*: its memory is too small"),
        (f"0,60,{NETS},9,1", "best_fit", "mps", "wants 9 GPUs, and a host has 2"),
        (f"0,60,{NETS},1,0.5", "best_fit", "mig", "has 0.5 of a GPU, and island\\(sharing=mig\\) gives slices"),
    ],
)
def test_a_job_that_cannot_be_simulated_is_told(tmp_path: Path, row: str, scheduler: str, way: str, says: str) -> None:
    (tmp_path / "jobs.csv").write_text(f"arrival_s,seconds,model,gpus,share\n{row}\n", "utf-8")
    with pytest.raises(GpusimError, match=says):
        gpusim.cluster(f"2 {A100}", str(tmp_path / "jobs.csv"), scheduler, rates=f"island(sharing={way})")


def test_rows_of_the_timeline_and_samples_say_what_jobs_did(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("arrival_s,seconds,gpus,deadline_s\n10,100,2,\n20,50,1,60\n30,40,2,50\n", "utf-8")
    found = gpusim.cluster("1 x 2 v100", str(tmp_path / "jobs.csv"), "first_come")
    run = found.runs[0].outcome  # 10 to 110, 110 to 160, 160 to 200
    rows, left = jobs_in_time(run)
    seconds = {
        kind: [(rows.lanes[r["lane"]].name, int(r["start"]) // 10**9, int(r["end"]) // 10**9)
               for r in rows.rows if r["kind"] == kind]
        for kind in (JOB, QUEUED)
    }  # fmt: skip
    assert set(seconds[JOB]) == {
        ("GPU 0 v100", 0, 100), ("GPU 1 v100", 0, 100), ("GPU 0 v100", 100, 150), ("GPU 0 v100", 150, 190),
        ("GPU 1 v100", 150, 190),
    }  # fmt: skip
    assert sorted(span[1:] for span in seconds[QUEUED]) == [(10, 100), (20, 150)] and not left
    place = samples_of(run, "jobs.csv", "2 v100", clock_of([run], 1.0))

    def at(second: int) -> dict[str, float]:
        row = np.searchsorted(place.seconds, second)
        return {name.removeprefix("cluster_"): float(curve[()][row]) for name, curve in place.curves.items()}

    assert at(50) == {
        "jobs_waiting": 2, "jobs_running": 1, "jobs_arrived": 3, "jobs_ended": 0, "deadlines_missed": 0, "memory_failures": 0,
        "gpus": 2, "gpus_in_use": 2, "gpus_wanted": 3, "gpus_idle": 0, "gpus_apart": 0,
    }  # fmt: skip
    assert at(120) | {"jobs_ended": 1, "deadlines_missed": 2, "gpus_wanted": 2, "gpus_idle": 0} == at(120)
    assert at(190) | {"jobs_ended": 3, "jobs_running": 0, "gpus_in_use": 0, "gpus_wanted": 0} == at(190)


@pytest.mark.slow
def test_the_command_writes_the_page_and_the_metrics(tmp_path: Path) -> None:
    words = ["cluster", "--gpus", "2 x 4 v100", "--arrivals", "poisson(jobs=60, rate=60)", "--scheduler", "first_come",
             "--scheduler", "best_fit", "-o", str(tmp_path / "out"), "--metrics", str(tmp_path / "m.om"), "--json"]  # fmt: skip
    done = cli(*words)
    assert len(json.loads(done.stdout)["schedulers"]) == 2
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert 'id="blob-timeline-best_fit"' in page and 'id="blob-metrics-first_come"' in page
    assert "Schedulers" in page
    text = (tmp_path / "m.om").read_text("utf-8")
    assert text.endswith("# EOF\n") and text.count("# TYPE gpusim_cluster_") == 11


@pytest.mark.slow
@needs_promtool
def test_prometheus_takes_the_metrics(tmp_path: Path) -> None:
    found = tmp_path / "m.om"
    cli("cluster", "--gpus", "2 x 4 v100", "--arrivals", "poisson(jobs=60, rate=60)", "--metrics", found)
    assert promtool("tsdb", "create-blocks-from", "openmetrics", found, tmp_path / "blocks")


@pytest.mark.slow
def test_programs_with_caps_have_multiprocessors_of_their_own() -> None:
    """Half of them each: what a neighbour costs is memory, and no more than an eighth."""
    capped = rates("island(sharing=mps, caps=1)")
    (alone,) = capped.beside(A100, [(job(UNET), 0.5)])
    beside, _ = capped.beside(A100, [(job(UNET), 0.5), (job(UNET), 0.5)])
    assert 0.875 * alone < beside <= alone
