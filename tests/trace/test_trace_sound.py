"""The compiled check of large traces says no exactly where the one with sentences does."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.generate.synth import random_program
from gpusim.trace import check
from gpusim.trace.build import make_trace
from gpusim.trace.sound import sound
from gpusim.trace.trace import COLUMNS, NAME_TABLES, Trace

pytestmark = pytest.mark.agreement


def columns(trace: Trace) -> dict[str, np.ndarray]:
    return {name: getattr(trace, name).copy() for name in COLUMNS}


def made(trace: Trace, changed: dict[str, np.ndarray]) -> Trace:
    tables = {t: getattr(trace, t) for t in NAME_TABLES}
    return make_trace(trace.name, changed, tables, check=False)


@pytest.mark.parametrize("seed", range(40))
def test_one_wrong_number_is_seen_by_both(seed: int) -> None:
    trace = random_program(seed, 60, parameters=2)
    assert sound(trace)
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(25):
        changed = columns(trace)
        column = str(rng.choice(["arg", "kind", "read_id", "write_id", "phase"]))
        values = changed[column]
        low, high = (-1, 9) if column in ("kind", "phase") else (-2, trace.tensors + 2)
        values[rng.integers(len(values))] = rng.integers(low, high)
        if column == "kind":
            values[values < 0] = 11
        other = made(trace, changed)
        try:
            check.check_trace(other)
            fine = True
        except TraceError:
            fine = False
        assert sound(other) == fine, column
        wrong += not fine
    assert wrong > 5


def test_large_traces_take_the_compiled_check(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_program(1, 60)
    changed = columns(trace)
    changed["read_id"][0] = trace.tensors
    monkeypatch.setattr(check, "MANY", 1)
    check.check_trace(trace)
    with pytest.raises(TraceError, match="reads tensor"):  # the sentence is still there
        check.check_trace(made(trace, changed))
