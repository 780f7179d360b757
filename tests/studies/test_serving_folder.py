"""A question run as an experiment: the same rows as the call, kept in a folder, computed once, in any number of processes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from command_line import gpusim

from gpusim.api.serving import serve_question
from gpusim.studies.serving import folder

QUESTION = """question: "How many requests at once?"
service:
  model: llama-1b
  machine: l40s
  max_seqs: [1, 8]
  engine: [vllm@0.33, static]
requests: drawn(prompt=64, output=8, requests=20)
"""


@pytest.fixture
def question(tmp_path: Path) -> Path:
    path = tmp_path / "at_once.yaml"
    path.write_text(QUESTION)
    return path


def test_run_keeps_what_serve_answers(question: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    printed = gpusim("run", str(question), "-o", str(out), "-j", "1").stdout
    rows = serve_question(str(question))[1]
    with (out / "summary.csv").open() as file:
        kept = list(csv.DictReader(file))
    assert [list(row) for row in kept] == [list(row) for row in rows] and len(kept) == 4
    assert [[str(value) for value in row.values()] for row in rows] == [list(row.values()) for row in kept]
    assert "How many requests at once?" in printed and "summary.csv" in printed
    assert len(list((out / "runs").iterdir())) == 4


def test_what_is_there_is_not_computed_again(question: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, computed = tmp_path / "results", list[Any]()
    first = serve_question(str(question), out)[1]
    plain = folder.point_of
    monkeypatch.setattr(folder, "point_of", lambda asked, one: computed.append(one.values) or plain(asked, one))
    assert serve_question(str(question), out)[1] == first and computed == []
    question.write_text(QUESTION.replace("[1, 8]", "[1, 8, 4]"))
    assert len(serve_question(str(question), out)[1]) == 6 and [one["max_seqs"] for one in computed] == [4, 4]
    serve_question(str(question), out, force=True)
    assert len(computed) == 8


@pytest.mark.slow
@pytest.mark.agreement
def test_two_processes_answer_what_one_does(question: Path, tmp_path: Path) -> None:
    assert serve_question(str(question), tmp_path / "two", jobs=2)[1] == serve_question(str(question))[1]


def test_validate_tells_a_question_and_its_mistakes(question: Path, tmp_path: Path) -> None:
    assert "a valid serving question: 4 services" in gpusim("validate", str(question)).stdout
    question.write_text(QUESTION.replace("max_seqs", "max_seq"))
    for verb in ("validate", "run"):
        assert "did you mean 'max_seqs'?" in gpusim(verb, str(question), code=2).stderr
    question.write_text(QUESTION)
    assert "asks about services" in gpusim("run", str(question), "--log", code=2).stderr
