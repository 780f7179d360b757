"""Published peaks against recordings of the same program: the whole table is in docs/record.md."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from recorded_peaks import peak_mb, published, record

pytestmark = pytest.mark.oracle

ROWS = {(kind, batch, length): real for kind, batch, length, real in published()}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch", "length"), [("sdpa", 1, 128), ("sdpa", 1, 1024), ("eager", 1, 1024)])
def test_the_published_peak_is_met(kind: str, batch: int, length: int) -> None:
    real = ROWS[kind, batch, length]
    assert abs(peak_mb(record(kind, batch, length)) / real - 1) < 0.01
