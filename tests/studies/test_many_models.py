"""Many models in words: what fits where, shipped questions, published loads.

`python tests/studies/test_many_models.py [NAME ...]` makes the golden files anew.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import gpusim

import gpusim as library
from gpusim.api.models import models, models_question
from gpusim.base.errors import ConfigError, GpusimError
from gpusim.base.yaml import find
from gpusim.studies.models import published
from gpusim.studies.models.questions import read
from gpusim.studies.models.setup import ModelsSpec, models_of, prepare

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
NAMES = find.names("question of many models")
FEW = "drawn(prompt=128, output=8, requests=40)"


@cache
def rows(name: str) -> list[dict[str, Any]]:
    return [point.row() for point in models_question(name)[1]]


@pytest.mark.slow
@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_golden_numbers(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [list(row) for row in rows(name)] == [list(row) for row in expected]
    for found, wanted in zip(rows(name), expected, strict=True):
        words = [k for k, v in wanted.items() if isinstance(v, str)]
        assert [found[k] for k in words] == [wanted[k] for k in words]
        numbers = [k for k in wanted if k not in words]
        assert [found[k] for k in numbers] == pytest.approx([wanted[k] for k in numbers], rel=1e-3, nan_ok=True)


@pytest.mark.slow
def test_more_host_memory_reads_less_and_foresight_reads_least() -> None:
    read_gb: dict[str, list[float]] = {}
    for row in rows("host_memory_for_models"):
        read_gb.setdefault(row["evict"], []).append(row["read [GB]"])
    assert all(gb == sorted(gb, reverse=True) for gb in read_gb.values())
    assert all(foreseen <= gb for foreseen, gb in zip(read_gb["belady"], read_gb["lru"], strict=True))


@pytest.mark.slow
def test_estimates_place_models_where_they_lie() -> None:
    by = {(row["loader"], row["pool"], row["placement"]): row for row in rows("where_models_go")}
    for loader, pool, _ in by:
        assert by[loader, pool, "soonest"]["from host"] > by[loader, pool, "random"]["from host"]


@pytest.mark.oracle
def test_published_loads() -> None:
    """Those whose source says disk, threads and bytes: 7 % in the median; the largest, 31 %, reads at 20 of 29 GB/s."""
    scored = [abs(published.error(row)) for row in published.rows() if row.get("scored")]
    assert len(scored) == 13 and np.median(scored) < 0.08 and max(scored) < 0.32
    assert "Median of the 13 rows" in published.table()


def test_a_cold_request_waits_for_exactly_the_load() -> None:
    """One model, one request at a time: the first token comes a load later than it does when the model is there."""
    found = models("llama-8b", "l40s", FEW, rate=0.1, spread=0.0)
    ttft, load = found.ttft_ns(), found.hosted[0].times.loaded
    alone = models("llama-8b", "l40s", FEW, rate=0.1, spread=0.0, boot="1 s")
    assert found.run.cold.tolist() == [True] + [False] * 39 and found.metrics()["loads"] == 1
    assert alone.ttft_ns()[0] - ttft[0] == 10**9
    assert load < ttft[0] < load + 10**8 and (ttft[1:] < 10**8).all()
    assert found.limit().startswith("2% of the requests wait")


def test_models_in_words() -> None:
    found = models_of("llama-8b x 2, llama-70b(tensor=4, weights=fp8)")
    assert list(map(str, found)) == ["llama-8b", "llama-8b", "llama-70b(tensor=4, weights=fp8)"]


def test_hosts_of_a_cluster_are_servers() -> None:
    made = prepare(ModelsSpec(models="llama-8b", machine="2 x hgx-h100 over roce", servers=2))
    assert made.gpus == (8, 8, 8, 8)


@pytest.mark.parametrize(("machine", "share"), [("2 x l40s", 0.5), ("hgx-h100", 1.0)])
def test_a_model_on_two_gpus_is_copied_to_both_at_once(machine: str, share: float) -> None:
    """Each GPU has its half over a link of its own; two GPUs of an HGX share a switch's link to the host."""
    one, two = (prepare(ModelsSpec(models=f"llama-8b(tensor={n})", machine=machine)).hosted[0].times for n in (1, 2))
    assert two.read == one.read and two.copied == pytest.approx(one.copied * share, rel=0.03)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"models": "lama-8b"}, "the zoo has no model 'lama-8b'"), ({"models": "llama-8b x 0"}, "names no model"),
        ({"models": "llama-8b(tensors=2)"}, "a model has no 'tensors'"), ({"models": "llama-8b(tensor=2)"}, "too few"),
        ({"models": "llama-70b"}, r"leaves no room for keys and values .*llama-70b\(tensor=2\)"),
        ({"pool": "8 GiB"}, "host memory keeps 8 GiB"),
        ({"pool": "8 TB"}, "do not fit the host's memory"), ({"models": "llama-8b x 400"}, "do not fit a disk of"),
        ({"placement": "near"}, "models are not placed 'near'"), ({"loader": "mmap"}, "there is no loader 'mmap'"),
        ({"evict": "lur"}, "lur"), ({"evict": "none"}, "nothing leaves under it"), ({"keep": "5"}, "has no unit"),
        ({"rate": -1}, "rate of many models is -1"), ({"pools": "64 GiB"}, "many models have no 'pools'"),
        ({"requests": "drawn(adapters=4)"}, "requests want adapters"), ({"requests": "nothing.csv"}, "there is no file"),
    ],
)  # fmt: skip
def test_words_that_cannot_be_run(words: dict[str, Any], said: str) -> None:
    given = {"models": "llama-8b x 4", "machine": "l40s", "requests": FEW} | words
    with pytest.raises(GpusimError, match=said):
        library.models(given.pop("models"), given.pop("machine"), given.pop("requests"), **given)


def test_files_that_are_no_question(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("question: What?\nmodels:\n  models: llama-8b\n  machine: l40s\n  pol: [64 GiB]\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:5"):
        read(path)


def test_the_command_line(tmp_path: Path) -> None:
    words = ("models", "--models", "llama-8b x 2", "--machine", "l40s", "--requests", FEW)
    told = gpusim(*words, "-o", str(tmp_path)).stdout
    assert "2 llama-8b on 1 GPUs" not in told and "2 llama-8b on one GPU (l40s)" in told
    assert json.loads((tmp_path / "models.json").read_text())["metrics"]["requests"] == 40
    assert "many models need --machine" in gpusim("models", "--models", "llama-8b", code=2).stderr


@pytest.mark.slow
def test_a_question_of_ones_own_runs_as_a_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "question: Which loader?\nmodels:\n  models: llama-8b x 3\n  machine: l40s\n"
        f"  requests: {FEW}\n  loader: [pipelined, safetensors]\n"
    )
    assert "a valid question of many models: 2 runs" in gpusim("validate", str(path)).stdout
    told = gpusim("run", str(path), "-o", str(tmp_path / "out")).stdout
    assert "Which loader?" in told and all((tmp_path / "out" / name).is_file() for name in ("summary.csv", "models.png"))


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        (GOLDEN / f"{name}.json").write_text(json.dumps(rows(name), indent=1) + "\n")
