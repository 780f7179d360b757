"""Does a latency and a rate from small transfers of keys and values say what large ones take?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.calibrate.serving.transfers import SMALL, fitted, published, table


@pytest.mark.oracle
def test_transfers_above_a_gigabyte_are_said_by_those_below() -> None:
    rows = published()
    fit, held_out = fitted(rows), [row for row in rows if row.bytes >= SMALL]
    assert len(held_out) == 4
    for row in held_out:
        assert fit.ms(row.bytes) == pytest.approx(row.ms, rel=0.10)
    assert 1.0 < fit.latency < 3.0 and 150e6 < fit.rate < 200e6  # ms; bytes/ms, below the line rate


def test_the_document_has_the_table() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
