"""Do the programs behind the shipped traces, recorded again, pair with them operator by operator?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shipped_programs import PROGRAMS, record, with_shapes  # noqa: E402

from gpusim.trace.files import load_trace  # noqa: E402
from gpusim.trace.trace import Trace, columns  # noqa: E402

pytestmark = pytest.mark.oracle

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture
def shipped(name: str) -> Trace:
    return load_trace(TRACES / f"{name}.npz")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_shipped_trace_has_the_shapes_of_its_program(name: str, shipped: Trace) -> None:
    if not name.startswith("gpt-medium"):
        pytest.importorskip("transformers", "5.23")
    again = with_shapes(shipped, record(name), PROGRAMS[name][2])
    assert again.shapes == shipped.shapes
    for (column, a), (_, b) in zip(columns(again), columns(shipped), strict=True):
        assert np.array_equal(a, b), column


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-medium-infer"])
def test_a_program_of_other_sizes_does_not_pair(name: str, shipped: Trace) -> None:
    other = record("gpt-medium-train")
    with pytest.raises(ValueError, match=r"operator [0-9]+ of gpt-medium-infer is "):
        with_shapes(shipped, other, "step1.fwd")
