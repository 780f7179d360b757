"""Does `gpusim faults` list the runs of a folder, explain one of them, and find the hint that helps it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_results import faulting
from typer.testing import CliRunner

from gpusim.base.yaml.find import find
from gpusim.cli.app import app
from gpusim.results.folder import open_folder, save_result
from gpusim.show.report import report

PROGRAM = """
arrays: {ball: 4 MiB, still: 2 MiB}
steps:
  - repeat: 6
    steps:
      - {host_write: ball, count: 4 KiB}
      - kernel: look
        accesses: [{update: ball, pattern: "sparse(pages=1, seed=7)"}]
"""
YAML = """
question: What does the driver cost?
trace: program.yaml
profile: l4
memory: [100 %, 50 %]
unified: driver
bounds: false
"""


def gpusim(*words: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("experiment")
    (here / "program.yaml").write_text(PROGRAM)
    (here / "experiment.yaml").write_text(YAML.replace("program.yaml", str(here / "program.yaml")))
    gpusim("run", here / "experiment.yaml", "-o", here / "out", "--no-figures", "--jobs", "1")
    return here / "out"


@pytest.mark.slow
def test_several_runs_are_listed_and_one_is_explained_with_the_hint_that_helps(folder: Path) -> None:
    listed = gpusim("faults", folder)
    assert "100 % memory" in listed and "50 % memory" in listed and "explains one of them" in listed
    said = gpusim("faults", folder, 1)
    assert "ball goes to and fro" in said
    assert "What would help" in said and "cudaMemPrefetchAsync of what a kernel touches, before it for `ball`: " in said
    assert "unified: driver(advice=ball:prefetch)" in said
    assert gpusim("faults", folder, 1) == said  # what was found is kept
    assert "What would help" not in gpusim("faults", folder, 1, "--no-advise")
    values = json.loads(gpusim("faults", folder, 1, "--json"))
    assert values["advice"]["said"] == "ball:prefetch" and values["allocations"][0]["name"] == "ball"
    assert "## Faults of the run that loses most" in (folder / "report.md").read_text()


def test_a_run_that_is_not_there_and_a_folder_without_faults_are_told(folder: Path, tmp_path: Path) -> None:
    assert "there is no run '9'" in gpusim("faults", folder, 9, code=2)
    from made_results import run

    save_result(tmp_path, "0" * 16, run())
    assert "no run here was under unified memory" in gpusim("faults", tmp_path / "runs" / ("0" * 16), code=2)
    assert "no results folder and no experiment 'unified_advise'" in (said := gpusim("faults", "unified_advise", code=2))
    assert "did you mean 'unified_advice'" in said
    plain = tmp_path / "plain.yaml"
    plain.write_text("question: q?\ntrace: gpt-medium-infer\nprofile: l4\n")
    assert "no run of this experiment is under unified memory" in gpusim("faults", plain, code=2)
    assert not (tmp_path / "results").exists()


def test_a_run_of_tensors_beside_runs_with_faults_has_none_to_explain(tmp_path: Path) -> None:
    from made_results import faulting, run

    text = "question: q?\ntrace: t\nprofile: p\n"
    open_folder(tmp_path, text, {}, keys := ["0" * 16, "1" * 16])
    for key, made in zip(keys, (run(), faulting()), strict=True):
        save_result(tmp_path, key, made)
    for words in ((1,), (1, "--advise"), ("0000",)):
        said = gpusim("faults", tmp_path, *words, code=2)
        assert f"run {words[0]} was not under unified memory, so there is nothing to explain" in said


def test_a_report_explains_the_run_that_loses_most() -> None:
    said = report([faulting(slowdown=1.2, profile="A100"), faulting(slowdown=2.0, profile="T4")])
    section = said.partition("## Faults of the run that loses most")[2]
    assert section.strip().startswith("driver · gpt2 · T4")
    assert "- Faults: GPU reads 330, of these evicted before 306." in section
    assert "lists the others" in section
    assert "## Faults" not in report([])


@pytest.mark.parametrize("verb", ["run", "validate", "faults"])
def test_a_program_or_a_machine_in_place_of_an_experiment_is_told_what_to_do(verb: str, folder: Path) -> None:
    program = folder.parent / "program.yaml"
    assert "`gpusim init iterate` writes an experiment on it" in gpusim(verb, "iterate", code=2)
    assert f"{program}: this is a program and no experiment" in gpusim(verb, program, code=2)
    if verb != "validate":  # which takes profiles as well
        assert "this is a hardware profile and no experiment" in gpusim(verb, find("profile", "t4"), code=2)
