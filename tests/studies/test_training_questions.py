"""Do shipped questions about long trainings keep their answers, and files with mistakes get one sentence?

`python tests/studies/test_training_questions.py [NAME ...]` makes the golden files anew.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command_line import gpusim

from gpusim.api.failures import training_question
from gpusim.base.errors import ConfigError
from gpusim.base.yaml import find
from gpusim.show.failures import draw, save_rows_and_figure
from gpusim.studies.failures.questions import points, read

GOLDEN = Path(__file__).parents[1] / "golden" / "failures"
NAMES = find.names("training question")
SMALL = """question: Which?
training:
  machine: 4 x hgx-h100
  state: llama-8b
  storage: [1 GB/s, 10 GB/s]
  checkpoint: [sync, peers(copies=5)]
  every: [10 min, daly]
  work: 2 d
runs: 3
"""


@cache
def rows(name: str) -> list[dict[str, Any]]:
    return [point.row() for point in training_question(name)[1]]


@pytest.mark.slow
@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_golden_numbers(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [list(row) for row in rows(name)] == [list(row) for row in expected]
    for found, wanted in zip(rows(name), expected, strict=True):
        assert {k: v for k, v in found.items() if isinstance(v, str)} == {k: v for k, v in wanted.items() if isinstance(v, str)}
        numbers = [k for k, v in wanted.items() if not isinstance(v, str)]
        assert [found[k] for k in numbers] == pytest.approx([wanted[k] for k in numbers], rel=1e-3)


@pytest.mark.slow
def test_a_thousand_gpus_save_beside_the_work_and_as_often_as_the_storage_takes_it() -> None:
    by = {(row["storage"], row["checkpoint"], row["every"]): row["effective [%]"] for row in rows("checkpoints")}
    for storage in ("2 GB/s", "20 GB/s", "200 GB/s"):
        tiers = ("sync", "two_phase", "peers")
        best = {tier: max(v for (s, t, _), v in by.items() if (s, t) == (storage, tier)) for tier in tiers}
        assert best["sync"] < best["two_phase"] <= best["peers"] + 0.05
        # Daly's interval, and never shorter than a checkpoint needs to be safe, is within half a percent of the best tried.
        assert all(by[storage, tier, "daly"] > best[tier] - 0.5 for tier in best)
    assert by["2 GB/s", "two_phase", "2 min"] < 30 < 98 < by["2 GB/s", "two_phase", "15 min"]


@pytest.mark.slow
def test_a_question_is_all_combinations_and_says_why_some_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL)
    asked = read(file)
    found = [point.row() for point in points(asked)]
    assert len(found) == 8 and list(asked.axes()) == ["storage", "checkpoint", "every"]
    why = "5 neighbours that keep copies are not there: the job has 4 nodes"
    assert [row.get("why not", "") for row in found[2:4]] == [why, why]
    written = save_rows_and_figure(asked, found, tmp_path)
    assert (tmp_path / "summary.csv").read_text().startswith("storage,checkpoint,every,effective [%]") and len(written) == 4
    figure = draw(asked, [row for row in found if "effective [%]" in row])
    assert [panel.get_title() or panel.get_title(loc="left") for panel in figure.axes] == ["storage 1 GB/s", "storage 10 GB/s"]
    assert "Diamonds: a policy chose the interval" in " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


@pytest.mark.slow
def test_the_verbs_answer_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL)
    assert "a valid training question: 8 runs" in gpusim("validate", str(file)).stdout
    done = gpusim("run", str(file), "--output", str(tmp_path / "out"), "--json")
    assert json.loads(done.stdout)["question"] == "Which?" and len(json.loads(done.stdout)["rows"]) == 8
    assert (tmp_path / "out" / "failures.png").is_file()
    file.write_text(SMALL.replace("state:", "states:"))
    with pytest.raises(ConfigError, match="states"):
        read(file)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NAMES:
        (GOLDEN / f"{chosen}.json").write_text(json.dumps(rows(chosen), indent=1) + "\n")
