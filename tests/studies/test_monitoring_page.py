"""Does docs/monitoring.md say what the code does?  `python docs/monitoring.py` makes its tables."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpusim.results.result import Result
from gpusim.studies.monitoring.judged import BETWEEN, ENDED, NOTHING, SLOWED, state

pytestmark = pytest.mark.documents
PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
CHEAP = ("double_buffering", "turns")


@cache
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_monitoring", PAGE.with_suffix(".py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(name: str) -> list[dict[str, str]]:
    """The table of this name in the page."""
    block = PAGE.read_text("utf-8").split(f"<!-- {name}: made by docs/monitoring.py -->\n")[1].split("<!-- end -->")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().splitlines()]
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


@pytest.mark.slow
def test_lists_and_incidents_are_what_the_code_does() -> None:
    text = PAGE.read_text("utf-8")
    assert tool().page(text) == text
    assert len(rows("incidents")) > 10 and len(rows("alerts")) == 11


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_so_are_the_rows_of_experiments(name: str, tmp_path: Path) -> None:
    (told,) = [row for row in rows("experiments") if row["experiment"] == name]
    assert {"experiment": name, **{k: str(v) for k, v in tool().of_experiment(name, tmp_path).items()}} == told


def test_the_last_row_adds_up() -> None:
    *each, last = rows("experiments")
    for column in set(last) - {"experiment", "false alarms"}:
        assert last[column] == f"**{sum(int(row[column]) for row in each)}**"
    assert last["false alarms"] == f"**{sum(int(row['false alarms'].split()[0]) for row in each)}**"


@pytest.mark.parametrize(
    ("outcome", "metrics", "expected"),
    [
        ("finished", {"slowdown": 1.05, "swap_outs": 9}, NOTHING),
        ("finished", {"slowdown": 1.5}, BETWEEN),
        ("finished", {"slowdown": 2.0}, SLOWED),
        ("finished", {"swap_outs": 0, "clean_drops": 0}, NOTHING),
        ("finished", {"swap_outs": 0, "clean_drops": 1}, BETWEEN),
        ("finished", {"evictions": 3}, BETWEEN),
        ("host_oom", {"slowdown": 1.0}, ENDED),
    ],
)
def test_what_is_wrong_with_a_run_is_told_by_its_result(outcome: str, metrics: dict[str, Any], expected: str) -> None:
    assert state(Result({}, outcome, metrics)) == expected
