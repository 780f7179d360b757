"""Does a run on a machine of several GPUs have a result of each rank, and one of all?"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpusim.cli.app import app
from gpusim.results.folder import load_folder

YAML = """
question: How is it divided?
trace: gpt2-small-train
profile: {profile}
parallel: {parallel}
bounds: {bounds}
"""
BLAMED = [
    ({"parallel": "data=16"}, "16 ranks do not fit machine 'hgx-h100', which has 8 GPUs"),
    ({"parallel": "none"}, "hgx-h100 has 8 GPUs: say how the program is divided over them"),
    ({"profile": "l4"}, "data=8 is a program of 8 ranks, and l4 is one GPU"),
    ({"parallel": "tenser=8"}, "'tenser' is no degree of parallelism"),
    ({"parallel": "context=8"}, "context parallelism is not simulated"),
    ({"parallel": "data=8 expert=3"}, "expert=3 divides experts over data-parallel ranks, and there are 8"),
    ({"parallel": "{pipeline: 4, microbatches: 6, schedule: interleaved, chunks: 2}"}, "6 is no multiple of that"),
    ({"parallel": "{tensor: 4, sequence: maybe}"}, "sequence is 'maybe'"),
    ({"parallel": "data=2 data=4"}, "the degree data stands there twice"),
    ({"parallel": "data=two"}, "the degree data is 'two', not a whole number"),
    ({"parallel": "zero=3"}, "zero=3 shards over the data-parallel ranks, and there is one"),
    ({"parallel": "{data: 0}"}, "the degree data is 0"),
    ({"profile": "2 x hgx-h100 over foo"}, "machine 'hgx-h100' has no network 'foo'"),
]


def gpusim(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def experiment(folder: Path, **changes: str) -> Path:
    said = {"profile": "hgx-h100", "parallel": "data=8", "bounds": "false", **changes}
    path = folder / "e.yaml"
    path.write_text(YAML.format(**said))
    return path


@pytest.mark.slow
def test_a_run_keeps_what_each_rank_did(tmp_path: Path) -> None:
    path = experiment(tmp_path, parallel="[data=8, {pipeline: 2, microbatches: 4}]")
    done = gpusim("run", path, "-o", tmp_path / "out", "--no-figures")
    assert done.exit_code == 0, done.output
    assert "Ranks of data=8" in done.output and "0 to 7" in done.output
    by_layout = {r.spec["parallel"]: r for r in load_folder(tmp_path / "out")}
    data, pipeline = by_layout["data=8"], by_layout["pipeline=2 microbatches=4"]
    assert len(data.ranks) == 8 and len(pipeline.ranks) == 2
    assert len({r.metrics["makespan_ns"] for r in data.ranks}) == 1, "equal ranks are equally fast"
    assert [r.spec["gpu"] for r in pipeline.ranks] == ["gpu0", "gpu1"]
    for run, batches in ((data, 8 * 2), (pipeline, 4 * 2)):  # the recording has two steps
        assert run.metrics["makespan_ns"] == max(r.metrics["makespan_ns"] for r in run.ranks)
        assert run.metrics["batch_ns"] == round(run.metrics["makespan_ns"] / batches)
        assert run.metrics["reserved_peak_bytes"] == max(r.metrics["reserved_peak_bytes"] for r in run.ranks)
        assert run.metrics["collective_bytes"] == sum(r.metrics["collective_bytes"] for r in run.ranks) > 0
    assert pipeline.ranks[1].timeline["time_ns"].size


@pytest.mark.slow
def test_less_memory_costs_each_rank_time_and_too_little_ends_all(tmp_path: Path) -> None:
    path = experiment(tmp_path, bounds="true")
    assert gpusim("run", path, "--set", "memory=60 %, 1 %", "-o", tmp_path / "out", "--no-figures").exit_code == 0
    tight, none = load_folder(tmp_path / "out")
    assert tight.metrics["slowdown"] > 1 and all(rank.metrics["h2d_bytes"] > 0 for rank in tight.ranks)
    assert none.outcome == "oom" and none.failure is not None and none.failure["rank"] == 0
    assert {rank.outcome for rank in none.ranks} <= {"oom", "failed"}


@pytest.mark.slow
def test_what_leaves_a_rank_leaves_after_the_program_is_divided(tmp_path: Path) -> None:
    """Each of 8 ranks keeps an eighth of Adam's state on the host, whose memory is that of both sockets."""
    path = experiment(tmp_path, parallel="data=8 zero=3")
    done = gpusim("run", path, "--set", "transform=none, offload(what=all)", "-o", tmp_path / "out", "--no-figures", "--log")
    assert done.exit_code == 0, done.output
    whole, offloaded = sorted(load_folder(tmp_path / "out"), key=lambda r: str(r.spec["transform"]))
    assert whole.spec["transform"] == "none" and offloaded.finished
    assert offloaded.metrics["requested_peak_bytes"] < whole.metrics["requested_peak_bytes"]
    assert whole.spec["host_capacity"] == 2 * 2**40 // 8
    assert gpusim("check", tmp_path / "out").exit_code == 0
    assert gpusim("run", path, "--set", "transform=offload(what=all)", "--set", "host_memory=512 MiB", "-o", tmp_path / "small",
                  "--no-figures").exit_code == 0  # fmt: skip
    (small,) = load_folder(tmp_path / "small")
    assert small.outcome == "host_oom" and small.spec["host_memory"] == 2**29


@pytest.mark.parametrize(("changes", "said"), BLAMED)
def test_what_cannot_be_divided_is_said_before_anything_runs(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    done = gpusim("run", experiment(tmp_path, **changes), "-o", tmp_path / "out")
    assert done.exit_code == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
