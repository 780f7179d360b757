"""Published runs of SplitwiseSim, request by request: SPLITWISE_RUNS names their folder.

Source: Mutinifni/splitwise-sim @8f99e7dc (MIT).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving.splitwise import read, repeated, runs, table

RUNS = Path(os.environ.get("SPLITWISE_RUNS", "SPLITWISE_RUNS"))
SECONDS = 1e-6
NAMES = {
    "baseline~test_trace~0_1", "baseline~azure_code_400~0_2", "baseline~azure_code_400~2_0", "splitwise_1_1~test_trace~1_1",
    "splitwise_1_1~azure_code_400~0_2", "splitwise_1_1~azure_code_400~1_1",
}  # fmt: skip


def folder() -> Path:
    if not (RUNS / "perf_model.csv").is_file():
        pytest.skip("SPLITWISE_RUNS does not name the folder of SplitwiseSim's runs")
    return RUNS


@pytest.mark.oracle
def test_all_runs_are_there() -> None:
    found = runs(folder())
    assert {"~".join(run.split("~")[1:4]) for run in found} >= NAMES


@pytest.mark.oracle
@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_request_is_as_published(name: str) -> None:
    run = next(run for run in runs(folder()) if f"~{name}~" in run)
    found = repeated(RUNS, read(RUNS, run))
    assert found.served.finished.all()
    assert all(difference < SECONDS for difference in found.differences.values()), found.differences
    assert found.elsewhere == 0


@pytest.mark.oracle
def test_the_document_has_the_table() -> None:
    assert table(folder()) in (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match="has no runs of SplitwiseSim"):
        runs(tmp_path)
