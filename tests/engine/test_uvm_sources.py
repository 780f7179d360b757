"""Is each program of a published row written down with its source, and is one that is not known told?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpusim.calibrate.uvm import PublishedRow, read

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.oracle
ROWS = read(ROOT / "tests" / "data" / "uvm_measurements.csv")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield lambda name: __import__(name)
    for name in ("uvm_rows", "uvm_programs", "uvm_unseen", "uvm_sources"):
        sys.modules.pop(name, None)


def row(key: str, what: str = "kernel time", use: str = "validate") -> PublishedRow:
    return PublishedRow("made-up", "", key, what, "", "", "", 1.0, "ms", use, "")


def test_every_row_that_a_program_answers_has_a_source(benchmark: Any) -> None:
    rows, sources = benchmark("uvm_rows"), benchmark("uvm_sources")
    inputs = (r"gh200_.*", r"schieffer_.*", r"t4_replay", r"t4_shares", r"um_.*")  # numbers of the link, of no program
    import re

    for each in ROWS:
        asked = any(re.fullmatch(pattern, name) for pattern, _ in rows.TABLE for name in rows.names(each))
        if asked and not any(re.fullmatch(pattern, each.key) for pattern in inputs):
            assert sources.source_of(*rows.names(each)) is not None, each.key


def test_an_unknown_hint_is_told_and_not_answered_without_it(benchmark: Any) -> None:
    rows = benchmark("uvm_rows")
    [found] = rows.compare([row("gpuext_adv_ReadMostyl")], "validate")
    assert found.simulated is None and found.reason.startswith("no hint 'ReadMostyl' is written down (there are ")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("uvmsmart_real_hotspot3D", "no program 'hotspot3D' is written down"),
        ("nvprof_fault_2048KB", "no touches '2048' is written down"),
        ("5070ti_Sweep-4K", "the kernel of Sweep is not in the sources"),
        ("v100_tiny", "its program cannot be read again"),
        ("5070ti_Stencil-3K", "no size '3K' is written down"),
    ],
)
def test_a_program_that_is_not_known_is_told(benchmark: Any, key: str, said: str) -> None:
    [found] = benchmark("uvm_rows").compare([row(key, "number of fault batches")], "validate")
    assert found.simulated is None and found.reason.startswith(said)
