"""Do the zoo's programs hold what others measured?  The quick rows; `published_peaks.py --all` runs every one."""

from collections import Counter

import pytest
from published_peaks import rows, summary

from gpusim.programs.zoo.catalogue import ask

pytestmark = pytest.mark.oracle

QUICK = {"gpt2-trainer-allocated": 0.005, "bert-eager-4x512": 0.015, "bert-sdpa-4x512": 0.03}


def test_every_row_asks_for_a_program_and_few_are_not_stated():
    found = rows()
    assert len({row.row for row in found}) == len(found) >= 20
    for row in found:
        ask(row.program)
        assert row.source
        assert row.quantity in ("allocated", "reserved", "nvidia-smi", "activations")
    counts = Counter(row.stated for row in found)
    assert counts["no"] <= len(found) / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_published_peak_is_met(name):
    pytest.importorskip("torch")
    row = next(row for row in rows() if row.row == name)
    assert abs(row.error()) < QUICK[name]


def test_errors_are_summed_up_by_their_size():
    assert summary("x", [0.01, -0.03, 0.02]) == "x: 3 rows, median 2.0%, p90 2.8%, largest 3.0%"
