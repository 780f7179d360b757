"""Do programs that were recorded on many ranks run on a machine as they ran, and say so where they cannot?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rank_recordings import RankRecorder, steps
from typer.testing import CliRunner, Result

import gpusim as library
from gpusim.cli.app import app
from gpusim.programs.ranks.files import save_ranks
from gpusim.programs.ranks.folder import import_ranks
from gpusim.results.folder import load_folder

# A folder with dlrm_kineto and dlrm_pytorch_et, from github.com/facebookresearch/param, et_replay/tests/inputs (MIT): a step of
# DLRM on eight V100 of one host, the Kineto and the execution trace of each rank.
RUNS = Path(os.environ.get("GPUSIM_RANKS", ""))
DLRM = pytest.mark.skipif(not (RUNS / "dlrm_kineto").is_dir(), reason="GPUSIM_RANKS names no folder with dlrm_kineto")

YAML = """
question: Who waits for whom?
trace: [run.ranks]
profile: [{profile}]
bounds: false
{more}
"""


def gpusim(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def experiment(folder: Path, profile: str = "hgx-h100", more: str = "") -> Path:
    save_ranks(import_ranks(steps(folder / "run")), folder / "run.ranks")
    path = folder / "e.yaml"
    path.write_text(YAML.format(profile=profile, more=more))
    return path


@pytest.mark.slow
def test_ranks_wait_as_they_did_in_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps(tmp_path / "run")
    done = gpusim("import", tmp_path / "run")
    assert done.exit_code == 0 and "2 ranks, 2 collectives and sends between them" in done.output, done.output
    path = tmp_path / "e.yaml"
    path.write_text(YAML.format(profile="hgx-h100", more="options: {log: true}"))
    done = gpusim("run", path, "-o", tmp_path / "out", "--no-figures")
    assert done.exit_code == 0 and "Ranks of run.ranks" in done.output, done.output
    (run,) = load_folder(tmp_path / "out")
    assert run.spec["parallel"] == "recorded" and "batch_ns" not in run.metrics
    first, second = run.ranks
    assert first.metrics["collective_wait_ns"] == first.metrics["recorded_collective_wait_ns"] == 2 * 200_000
    assert "collective_wait_ns" not in second.metrics and second.metrics["recorded_collective_wait_ns"] == 0
    assert run.metrics["makespan_ns"] == pytest.approx(1_000_000 + 10_000 + 300_000 + 20_000 + 50_000, rel=0.03)
    checked = gpusim("check", tmp_path / "out")
    assert checked.exit_code == 0 and "1 run is right" in checked.output, checked.stderr


@pytest.mark.slow
def test_a_straggler_makes_the_others_wait(tmp_path: Path) -> None:
    save_ranks(import_ranks(steps(tmp_path / "run", (200, 200))), tmp_path / "run.ranks")
    result = library.simulate(tmp_path / "run.ranks", on="hgx-h100", stragglers="1=1.5", bounds=False, log=True)
    waits = [rank.metrics.get("collective_wait_ns", 0) for rank in (one.value for one in result.ranks)]
    assert waits == [2 * 100_000, 0] and library.check(result).ok


@pytest.mark.slow
def test_absent_ranks_take_part_in_collectives_and_in_nothing_else(tmp_path: Path) -> None:
    for rank in (0, 3):
        made = RankRecorder(rank, 4, {"0": range(4)})
        made.kernel(0, 5, 100)
        made.collective(5, 105, 20, ranks=range(4), elements=1 << 20)
        made.write(tmp_path / "run")
    with pytest.warns(UserWarning, match="2 of 4 ranks were not recorded"):
        result = library.simulate(tmp_path / "run", on="hgx-h100", bounds=False, log=True)
    assert [bool(rank.spec.get("absent")) for rank in result.ranks] == [False, True, True, False]
    assert library.check(result).ok
    (tmp_path / "run" / "rank3.pt.trace.json").unlink()
    for rank in (1, 2, 3):  # all of them take as long
        made = RankRecorder(rank, 4, {"0": range(4)})
        made.kernel(0, 5, 100)
        made.collective(5, 105, 20, ranks=range(4), elements=1 << 20)
        made.write(tmp_path / "run")
    whole = library.simulate(tmp_path / "run", on="hgx-h100", bounds=False)
    assert whole.makespan_ns == result.makespan_ns


@pytest.mark.slow
def test_nothing_to_time_is_a_table_of_memory(tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data"
    snapshot = next(iter(sorted(data.rglob("*.pickle*"))), None)
    assert snapshot is not None, "a memory snapshot stands among the tests' data"
    for rank in range(2):
        (tmp_path / f"rank{rank}.pickle").write_bytes(snapshot.read_bytes())
    result = library.simulate(tmp_path, on="hgx-h100", bounds=False)
    peaks = [rank.metrics["reserved_peak_bytes"] for rank in result.ranks]
    assert peaks[0] == peaks[1] == result.metrics["reserved_peak_bytes"] > 0 and "makespan_ns" not in result.metrics


@pytest.mark.parametrize(
    ("profile", "more", "said"),
    [
        ("l4", "", "'run.ranks' was recorded on 2 ranks, and l4 is one GPU"),
        ("hgx-h100", "parallel: data=8", "'run.ranks' was recorded on 2 ranks: `parallel` changes the program of one GPU"),
        ("hgx-h100", "transform: batch(to=2)", "'run.ranks' was recorded on 2 ranks: `transform` changes the program"),
        ("hgx-h100", "stragglers: 2=1.5", "there is no rank 2: 2 are counted from 0"),
        ("hgx-h100", "unified: driver", "ranks under unified memory are not simulated"),
    ],
)
def test_what_recorded_ranks_cannot_be_combined_with_is_said_at_its_place(
    profile: str, more: str, said: str, tmp_path: Path
) -> None:
    done = gpusim("run", experiment(tmp_path, profile, more), "-o", tmp_path / "out")
    assert done.exit_code == 2 and said in done.stderr and "e.yaml:" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_more_ranks_than_gpus(tmp_path: Path) -> None:
    save_ranks(import_ranks(steps(tmp_path / "run", (1, 1, 1), clocks=(0, 0, 0))), tmp_path / "run.ranks")
    path = tmp_path / "e.yaml"
    path.write_text(YAML.format(profile="2x-rtx-3090-nvlink", more=""))
    done = gpusim("run", path)
    assert done.exit_code == 2 and "'run.ranks' was recorded on 3 ranks, and 2x-rtx-3090-nvlink has 2 GPUs" in done.stderr


@DLRM
@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("tensors", [False, True], ids=["kineto", "with execution traces"])
def test_dlrm_on_eight_v100_waits_as_recorded(tensors: bool) -> None:
    made = import_ranks(RUNS / "dlrm_kineto")
    if tensors:
        made = import_ranks(RUNS / "dlrm_pytorch_et", kineto=RUNS / "dlrm_kineto")
    assert [one.kind for one in made.check()] == [
        *["all_to_all"] * 4, "all_reduce", "all_to_all", "all_reduce", "all_reduce",
    ]  # fmt: skip
    result = library.simulate(made, on="dgx-1-v100", bounds=False, log=True)
    waits = [(rank.metrics["collective_wait_ns"], rank.metrics["recorded_collective_wait_ns"]) for rank in result.ranks]
    for simulated, recorded in waits:
        assert simulated == pytest.approx(recorded, rel=0.06)
    simulated, recorded = map(sum, zip(*waits, strict=True))
    assert simulated == pytest.approx(recorded, rel=0.03) and recorded == 46_806_000
    assert result.makespan_ns == pytest.approx(result.metrics["recorded_ns"], rel=0.01)
    assert library.check(result).ok
