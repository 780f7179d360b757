"""`gpusim tune` as a user runs it, and what other verbs make of its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gpusim as library
from gpusim.cli.app import app

YAML = """question: Which look-ahead?
trace: gpt-medium-train
profile: a100-pcie-40gb
memory: 60 %
policies: {prefetch: next_k}
tune:
  policies.prefetch.next_k.k: {from: 1, to: 16}
"""


def gpusim(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    return path


@pytest.mark.slow
def test_a_search_leaves_a_folder_that_other_verbs_read(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = gpusim("tune", experiment, "--budget", 8, "--grid", "-o", out).stdout
    assert said.startswith("Which look-ahead?\n\n8 trials (1 as written), then ") and "for the least slowdown." in said
    assert "To copy:\n\npolicies:\n  prefetch: next_k(k=" in said and f"gpusim run {experiment} --set " in said
    found = json.loads(gpusim("tune", experiment, "--budget", 8, "--grid", "-o", out, "--json").stdout)
    assert found["best"]["slowdown"] == min(trial["slowdown"] for trial in found["trials"] if trial["origin"] != "grid")
    assert found["set"] == [f"policies.prefetch={found['best']['lines']['policies.prefetch']}"]
    assert "next_k(k=" in gpusim("compare", out).stdout
    gpusim("plot", out, "--figure", "policy_comparison", "--format", "svg")
    assert (out / "figures" / "policy_comparison.svg").is_file()
    assert "next_k(k=" in (out / "report.md").read_text()
    # The folder's experiment is the one that was searched.
    again = json.loads(gpusim("tune", out / "experiment.yaml", "--budget", 8, "-o", out, "--json").stdout)
    assert again["best"] == found["best"]


@pytest.mark.slow
def test_a_call_returns_what_the_verb_prints(experiment: Path, tmp_path: Path) -> None:
    printed = json.loads(gpusim("tune", experiment, "--budget", 6, "-o", tmp_path / "out", "--json").stdout)
    found = library.tune(experiment, budget=6, folder=tmp_path / "out")
    assert found.best == printed["best"]["lines"] and found.answer == printed["answer"]
    assert found.yaml.splitlines()[0] == "policies:" and len(found.frame()) == len(printed["trials"])
    assert len(found.results) == 6 and "knob" in repr(found) and "<table" in found._repr_html_()
    assert found.front == [printed["best"]]


def test_mistakes_are_sentences_with_their_place(experiment: Path) -> None:
    experiment.write_text(YAML.replace("from: 1, to: 16", "from: 16, to: 1"))
    for verb in ("tune", "validate", "run"):
        assert f"{experiment}:7:31: " in gpusim(verb, experiment, code=2).stderr
    experiment.write_text(YAML.replace("next_k.k", "next_k.kk"))
    for verb in ("tune", "validate"):
        assert f"{experiment}:7:3: 'next_k' has no parameter 'kk'" in gpusim(verb, experiment, code=2).stderr
    experiment.write_text(YAML)
    assert "1 knob" in gpusim("validate", experiment).stdout
    assert "a budget of 0 leaves nothing to run" in gpusim("tune", experiment, "--budget", 0, code=2).stderr
    assert "did you mean 'slowdown'" in gpusim("tune", experiment, "--minimise", "slowdwn", code=2).stderr


@pytest.mark.slow
def test_a_search_in_which_nothing_fits_says_so(experiment: Path, tmp_path: Path) -> None:
    sets = ("--set", "memory=2 %", "--set", "trace=resnet50-train")
    said = gpusim("tune", experiment, *sets, "--budget", 4, "-o", tmp_path / "out", code=2).stdout
    assert "No trial finished: 4 out of memory." in said
