"""Does `gpusim reproduce g10` say what agrees, what is not there, and what was asked for wrongly?"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import GpusimError
from gpusim.cli.app import app
from gpusim.studies.g10.reproduction import _row, rankings, summary
from gpusim.studies.g10.study import DEFAULT, Case, CaseOutcome, G10Study

TRACES = Path(__file__).parents[2] / "traces" / "g10"


def said(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["reproduce", *(str(word) for word in words)])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


@pytest.mark.slow
def test_every_shipped_row_of_a_figure_agrees(tmp_path: Path) -> None:
    """ViT at 1280 and BERT at 256 of figure 15: one of five networks each; with the study's own plans this time."""
    out = tmp_path / "rows.csv"
    made = json.loads(said("g10", "--figure", "15", "--plans", "--jobs", "1", "--json", "-o", out).stdout)
    compared = [row for row in made["rows"] if row["difference"] is not None]
    assert len(compared) > 5 and all(abs(row["difference"]) < 1e-9 for row in compared)
    assert {row["network"] for row in compared} == {"bert_base", "vit"} and made["rankings"] == []
    (unsupported,) = (row for row in made["rows"] if row["note"] == "unsupported, as published")
    assert (unsupported["network"], unsupported["policy"]) == ("vit", "FlashNeuron")
    lines = out.read_text("utf-8").splitlines()
    assert len(lines) == 85 and lines[0].startswith("figure,network,batch,policy,host_gib,ssd,published,ours")


def row(policy: str, published: int, ours: int, **more: Any) -> dict[str, Any]:
    return {
        "figure": "11", "network": "n", "batch": 1, "host_gib": 128, "ssd": 3.2, "policy": policy, "published": published,
        "ours": ours, "difference": ours / published - 1, "pages": None, "note": "", "seconds": 1.0, **more,
    }  # fmt: skip


def test_summary_and_rankings() -> None:
    rows = [row("a", 100, 100), row("a", 200, 210, batch=2), row("b", 150, 150), row("b", 190, 220, batch=2)]
    rows.append({**row("b", 1, 1), "published": None, "ours": None, "difference": None, "note": "unsupported, as published"})
    a, b = summary(rows)
    assert (a["compared"], a["exact"], a["worst"]) == (2, 1, pytest.approx(0.05)) and b["both_unsupported"] == 1
    assert rankings(rows) == ["figure 11, n-2: b before a"] and rankings(rows[:1]) == []


def test_what_was_not_published_is_not_called_unsupported() -> None:
    """A bar without a figure is run where another figure publishes the same case; only FlashNeuron's are published so."""
    silent = [row for row in G10Study().rows if row.cycles is None]
    noted = Counter((row.case.policy, _row(row, CaseOutcome(1), has_trace=True)["note"]) for row in silent)
    assert noted == {("FlashNeuron", "published as unsupported"): 24, ("deepUM", "not published"): 55}
    fails = Counter(_row(row, CaseOutcome(None), has_trace=True)["note"] for row in silent)
    assert fails == {"unsupported, as published": 24, "not published": 55}
    shared = {(row.figure, row.case) for row in silent} & {(row.figure, row.case) for row in G10Study().rows if row.cycles}
    assert not shared, "no row is both"


@pytest.mark.slow
def test_nothing_to_run_is_said(tmp_path: Path) -> None:
    error = said("g10", "--figure", "11", "--traces", tmp_path, code=2).stderr
    assert str(tmp_path) in error and "none of the programs" in error


@pytest.mark.slow
def test_what_is_special_about_a_case() -> None:
    study = G10Study()
    conditions = {
        "loosen": [(Case("bert_base", 512, "prefetch_lru", 128, 3.2, 15.754), 1.394),
                   (Case("bert_base", 512, "prefetch_lru", 128, 6.4, 32), 1.0),
                   (Case("vit", 1280, "G10GDSFULL", 128, 3.2, 15.754), 1.269366)],
        "host_gib": [(Case("vit", 1280, "G10GDSSSD", 128, 3.2, 15.754), 0), (Case("vit", 1280, "lru", 16, 3.2, 15.754), 16)],
        "line": [(Case("vit", 1024, "FlashNeuron", 128, 3.2, 15.754), 0.993)],
    }  # fmt: skip
    from gpusim.studies.g10.study import load

    program = load("vit_b1280", TRACES)
    assert program is not None
    for name, cases in conditions.items():
        for case, value in cases:
            assert getattr(study.prepared(case, program)[1], name) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["g11"], "there is no study 'g11' to reproduce"),
        (["g10", "--figure", "12"], "the study has no figure '12'"),
        (["g10", "--traces", "nowhere"], "there is no such folder of traces"),
        (["g10", "--conditions", "nowhere.yaml"], "no conditions of the G10 study"),
    ],
)
def test_bad_words(words: list[str], message: str) -> None:
    from gpusim.base.errors import GpusimError as Error

    done = CliRunner().invoke(app, ["reproduce", *words])
    assert done.exit_code == 2 or isinstance(done.exception, Error)
    assert message in done.stderr + str(done.exception)


def test_bad_conditions(tmp_path: Path) -> None:
    text = DEFAULT.read_text("utf-8")
    (tmp_path / "g10_published.csv").write_bytes(DEFAULT.with_name("g10_published.csv").read_bytes())
    changes = (("hertz:", "herz:"), ("  deepUM:", "  deepum:"), ("g10_published.csv ", "g11.csv "), ("policies:", "policy:"))
    for old, new in changes:
        (tmp_path / "bad.yaml").write_text(text.replace(old, new, 1))
        with pytest.raises(GpusimError, match=r"bad\.yaml"):
            G10Study(tmp_path / "bad.yaml")
