"""Do published programs that chose no rule and no cost count what was counted on their machines?"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gpusim.calibrate.uvm import read

ROOT = Path(__file__).parents[2]
ROWS = [row for row in read(ROOT / "tests" / "data" / "uvm_measurements.csv") if row.group == "unseen"]
pytestmark = pytest.mark.oracle


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield lambda rows: __import__("uvm_rows").compare(rows, "validate")
    for name in ("uvm_rows", "uvm_programs", "uvm_unseen", "uvm_sources"):
        sys.modules.pop(name, None)


def test_what_the_rules_decide_is_exact_on_three_gpus(compare: Any) -> None:
    small = [row for row in ROWS if row.key.startswith("add_") and not row.key.endswith("_many")]
    sure = [row for row in small if row.what in ("CPU page faults", "DtoH copies") or
            (row.what, row.conditions) == ("HtoD copies", "prefetched")]  # fmt: skip
    found = compare(sure)
    assert len(found) == 9 and all(each.simulated == each.row.value for each in found)


def test_all_of_them_are_unfitted_and_have_a_program(compare: Any) -> None:
    assert len(ROWS) == 84 and {row.use for row in ROWS} == {"validate"}
    table = __import__("uvm_rows").TABLE
    assert all(any(re.fullmatch(pattern, row.key) for pattern, _ in table) for row in ROWS)
