"""`gpusim tune` as a user runs it, and what other verbs make of its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import gpusim
from page_content import told

import gpusim as library
from gpusim.base.errors import ResultError
from gpusim.results.folder import load_folder
from gpusim.show import tuned
from gpusim.show.page.write import write_page
from gpusim.studies.tuning import kept

YAML = """question: Which look-ahead?
trace: gpt-medium-train
profile: a100-pcie-40gb
memory: 60 %
policies: {prefetch: next_k}
tune:
  policies.prefetch.next_k.k: {from: 1, to: 16}
"""


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
    # What is kept says the same again, all of it.
    assert tuned.text(kept.load(out, load_folder(out)), str(experiment)) in said
    page = told(write_page(out).path)["folders"][0]["told"]["tuned"]
    assert page["said"][1] in said and page["said"][1] == found["answer"]
    best, knobs = page["tables"]
    assert best["rows"][0] == ["", "slowdown", "with"] and best["rows"][1][0] == "best" and len(knobs["rows"]) == 2
    assert page["copied"][1] == f"gpusim run out/experiment.yaml --set '{found['set'][0]}'"
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 99}, "this is no search in format gpusim-tune, version 1"), ({"trials": 3}, "this search lacks something"),
        (None, "this file is damaged"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_read_is_one_sentence(tmp_path: Path, change: dict[str, Any] | None, words: str) -> None:
    whole = {
        "format": "gpusim-tune", "version": 1, "question": "", "goals": [{"metric": "slowdown", "better": "lower", "per": ""}],
        "budget": 1, "seed": 0, "batch": 1, "grid": False, "places": 1, "complete": True, "importance": {}, "trials": [],
        "space": {"knobs": [], "fixed": {}, "given": []},
    }  # fmt: skip
    file = tmp_path / "tune.json"
    file.write_text(json.dumps(whole))
    assert kept.load(tmp_path, []) is not None and kept.load(tmp_path / "elsewhere", []) is None
    file.write_text("[" if change is None else json.dumps({**whole, **change}))
    with pytest.raises(ResultError, match=words) as refused:
        kept.load(tmp_path, [])
    assert refused.value.where == str(file) and "gpusim tune" in refused.value.hint


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
