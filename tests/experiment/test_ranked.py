"""Does a run on a machine of several GPUs have a result of each rank, and one of all?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpusim import check, simulate
from gpusim.base.errors import GpusimError
from gpusim.cli.app import app
from gpusim.results.folder import load_folder

ROOT = Path(__file__).parents[2]
YAML = """
question: How is it divided?
trace: gpt2-small-train
profile: {profile}
parallel: {parallel}
bounds: {bounds}
"""
BLAMED = [
    ({"parallel": "data=2\nplacement: paced"}, "e.yaml:6:12: placement: there is no placement policy 'paced'"),
    ({"parallel": "data=2\nplacement: gpu0 gpu9"}, "e.yaml:6:12: machine 'hgx-h100' has no GPU 'gpu9'"),
    ({"parallel": "data=2\nplacement: packed(n=3)"}, "e.yaml:6:12: placement: policy 'packed' has no parameter 'n'"),
    ({"parallel": "data=2\nfold: true\nstragglers: 1=1.1"}, "e.yaml:6:7: ranks that are slower than others are not like them"),
    ({"parallel": "none\nfold: true", "profile": "l4"}, "e.yaml:6:7: there are no ranks to fold"),
    ({"parallel": "tensor=8"}, "e.yaml:5:11: tensor=8 does not divide the 12 attention heads of gpt2-small-train"),
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
    ({"tiers": "peer > host"}, "e.yaml:7:8: tier 'peer' is an exclusive memory, and ranks share their machine"),
    ({"tiers": "host > peer(any)"}, "e.yaml:7:8: no tier of its own stands behind peer(any)"),
    ({"tiers": "remote(rdma) > host"}, "names no memory: there is no other host"),
    ({"profile": "l4", "parallel": "none", "tiers": "peer(any) > host"}, "l4 is one GPU: peer(any) is memory of other devices"),
    ({"policies": "{pool: interleave}"}, "e.yaml:7:18: a pool policy chooses among memories of other devices, and the tiers"),
    ({"tiers": "peer(any) > host", "policies": "{pool: interleaf}"}, "there is no pool policy 'interleaf'"),
]


def gpusim(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def experiment(folder: Path, **changes: str) -> Path:
    said = {"profile": "hgx-h100", "parallel": "data=8", "bounds": "false", **changes}
    path = folder / "e.yaml"
    more = "".join(f"{key}: {value}\n" for key, value in said.items() if f"{{{key}}}" not in YAML)
    path.write_text(YAML.format(**said) + more)
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
def test_ranks_are_placed_by_a_policy_of_ones_own_as_the_documents_show_it(tmp_path: Path) -> None:
    """GPUs 0 and 3 of a DGX-1 are the first with two links between them; the run is checked where they were."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "policies.md").read_text("utf-8"), re.S | re.M)
    (tmp_path / "mine.py").write_text(next(block for block in blocks if "@policy.placement" in block))
    path = experiment(tmp_path, profile="dgx-1-v100", parallel="data=2")
    path.write_text(f"{path.read_text()}use: [mine.py]\nplacement: [fastest_pair, by_topology, gpu5 gpu2]\n")
    done = gpusim("run", path, "-o", tmp_path / "out", "--no-figures", "--log")
    assert done.exit_code == 0, done.output
    placed = {r.spec["placement"]: [rank.spec["gpu"] for rank in r.ranks] for r in load_folder(tmp_path / "out")}
    assert placed == {"fastest_pair": ["gpu0", "gpu3"], "by_topology": placed["by_topology"], "gpu5 gpu2": ["gpu5", "gpu2"]}
    checked = gpusim("check", tmp_path / "out")
    assert checked.exit_code == 0, checked.output
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text().replace("return [a, b,", "return [b, a,"))
    again = gpusim("run", path, "-o", tmp_path / "out", "--no-figures", "--log")
    assert "1 runs executed" in again.output or "1 run executed" in again.output, again.output


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize(("machine", "layout", "placement"), [
    ("hgx-h100", "data=8 zero=3", "packed"), ("hgx-h100", "data=2 tensor=2 pipeline=2 microbatches=4", "packed"),
    ("2 x hgx-h100 over roce", "data=4 tensor=4", "packed"), ("dgx-1-v100", "data=4 tensor=2", "by_topology"),
])  # fmt: skip
def test_a_fold_has_the_result_of_all_ranks(machine: str, layout: str, placement: str) -> None:
    said: dict[str, Any] = {"on": machine, "parallel": layout, "placement": placement, "bounds": False}
    whole, folded = (simulate("gpt2-small-train", **said, fold=fold) for fold in (False, True))
    assert folded.spec["fold"] == "True" and len(folded.ranks) == len(whole.ranks)
    for a, b in zip((whole, *whole.ranks), (folded, *folded.ranks), strict=True):
        assert a.metrics.keys() == b.metrics.keys() and a.spec.get("gpu") == b.spec.get("gpu")
        for name, value in a.metrics.items():
            assert b.metrics[name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.slow
def test_the_log_of_a_fold_is_that_of_a_right_run_of_all_ranks() -> None:
    result = simulate("gpt2-small-train", on="hgx-h100", parallel="data=4 tensor=2", bounds=False, fold=True, log=True)
    assert check(result).ok is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"on": "dgx-1-v100"}, "all_reduce of .* bytes takes ranks 0,1 .* ns and ranks 2,3"),
        ({"on": "hgx-h100", "memory": "60 %", "parallel": "data=2"}, "rank 0 copies from or to its host"),
        ({"on": "hgx-h100", "stragglers": "0=1.1"}, "differ in their kernels' times"),
    ],
)
def test_ranks_that_are_not_alike_are_not_folded(changes: dict[str, str], said: str) -> None:
    with pytest.raises(GpusimError, match=f"the ranks cannot be folded: .*{said}"):
        simulate("gpt2-small-train", **{"parallel": "data=4 tensor=2", "bounds": False, "fold": True, **changes})


@pytest.mark.slow
def test_a_fold_that_runs_out_of_memory_says_what_all_ranks_say() -> None:
    said: dict[str, Any] = {"on": "hgx-h100", "parallel": "data=2", "memory": "1 %", "bounds": False}
    whole, folded = (simulate("gpt2-small-train", **said, fold=fold) for fold in (False, True))
    assert whole.outcome == folded.outcome == "oom" and [r.outcome for r in whole.ranks] == [r.outcome for r in folded.ranks]


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


@pytest.mark.slow
def test_stages_with_little_memory_do_not_wait_for_each_other_for_ever(tmp_path: Path) -> None:
    """Eight stages that swap: sends and receives in turn would, since the one waits for room that the other keeps."""
    said = "[{pipeline: 8, microbatches: 8}, {pipeline: 4, microbatches: 8, schedule: zero_bubble}]"
    path = experiment(tmp_path, parallel=said)
    done = gpusim("run", path, "--set", "memory=90 %", "-o", tmp_path / "out", "--no-figures")
    assert done.exit_code == 0, done.output
    assert all(run.finished and run.metrics["d2h_bytes"] > 0 for run in load_folder(tmp_path / "out"))


@pytest.mark.slow
def test_ranks_that_lend_each_other_memory_are_run_and_checked(tmp_path: Path) -> None:
    """Two ranks with too little memory beside six idle GPUs: their memory is faster than that of the host."""
    more = {"memory": "75 %", "tiers": "[host, peer(any) > host]", "policies": "{pool: [by_topology, interleave]}"}
    path = experiment(tmp_path, parallel="[data=2, {data: 2, zero: 3}]", options="{log: true}", **more)
    done = gpusim("run", path, "-o", tmp_path / "out", "--no-figures")
    assert done.exit_code == 0 and "6 runs executed" in done.output, done.output
    checked = gpusim("check", tmp_path / "out")
    assert checked.exit_code == 0 and "6 runs are right" in checked.output, checked.output
    for layout in ("data=2", "data=2 zero=3"):
        of = [r for r in load_folder(tmp_path / "out") if r.spec["parallel"] == layout]
        host, *lent = sorted(of, key=lambda r: "pool" in r.spec)
        assert all(r.metrics["makespan_ns"] < host.metrics["makespan_ns"] and r.metrics["peer_in_bytes"] > 0 for r in lent)


@pytest.mark.parametrize(("changes", "said"), BLAMED)
def test_what_cannot_be_divided_is_said_before_anything_runs(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    done = gpusim("run", experiment(tmp_path, **changes), "-o", tmp_path / "out")
    assert done.exit_code == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
