"""Tuples of arrays that travel as one pointer: what compiled code reads of them, and through how many functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import config, typeof

from gpusim.base.compiled import by_pointer, entry, kernel, outlined

ROW = np.dtype([("a", np.int64), ("b", np.float64)], align=True)


@by_pointer
class Pointed(NamedTuple):
    rows: Any  # ROW[R]
    grid: Any  # int64[M, N]


class Plain(NamedTuple):
    rows: Any
    grid: Any


@kernel
def _column(t: Any, at: int) -> int:
    total = 0
    for i in range(t.grid.shape[0]):
        total += t.grid[i, at]
    return total


@outlined
def _mark(t: Any, at: int) -> None:
    row = t.grid[1]  # a view, by strides
    row[at] = -_column(t, at)
    t.rows[at].a += t.grid.size + t.grid.itemsize
    t.rows[at].b = t.rows.size / len(row)


@entry()
def _mark_all(t: Any) -> int:
    for at in range(t.grid.shape[1]):
        _mark(t, at)
    return _column(t, 0)


def _made(kind: Any, grid: Any) -> Any:
    return kind(np.zeros(5, ROW), grid)


GRIDS = {
    "rows one after another": lambda: np.arange(12).reshape(3, 4),
    "columns one after another": lambda: np.arange(12).reshape(4, 3).T,
    "every second of both": lambda: np.arange(48).reshape(6, 8)[::2, ::2],
}


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_compiled_code_reads_and_writes_the_arrays_as_those_of_a_tuple_by_value(grid: Any) -> None:
    pointed, plain = _made(Pointed, grid()), _made(Plain, grid())
    assert str(typeof(pointed)).startswith("Pointer(") and not str(typeof(plain)).startswith("Pointer(")
    first = int(grid()[:, 0].sum() - grid()[1, 0] - grid()[:, 0].sum())
    assert _mark_all(pointed) == _mark_all(plain) == first
    assert (pointed.grid == plain.grid).all() and (pointed.rows == plain.rows).all()
    assert pointed.rows["a"][:3].tolist() == [12 + 8] * 3 and pointed.rows["b"][0] == 5 / grid().shape[1]
