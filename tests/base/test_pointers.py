"""Tuples of arrays that travel as one pointer: what compiled code reads of them, and through how many functions."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numba import config, typeof, types

from gpusim.base.compiled import Placed, by_pointer, entry, fetch, kernel, outlined, tables_at
from gpusim.base.tables import filled, i8, signature

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


@by_pointer
class Many(NamedTuple):
    rows: Annotated[Any, i8, "R"]
    grid: Annotated[Any, i8, "R", 2]


MANY = signature(Many)
_many_at = tables_at(MANY)


@entry(types.int64(types.int64[::1]))
def _count_up(addresses: Any) -> int:
    total = 0
    for i in range(addresses.size):
        t = _many_at(addresses[i])
        t.rows[0] += 1
        t.grid[-1, 1] = t.rows.size
        total += t.grid.size
    return total


def test_compiled_code_finds_each_tuple_that_has_been_placed_by_its_address() -> None:
    made = [filled(Many, {"R": n}) for n in (1, 2, 3)]
    placed = [Placed(tables, MANY) for tables in made]
    which = [0, 2, 1, 2]
    assert _count_up(np.array([placed[i].address for i in which], np.int64)) == sum(2 * (i + 1) for i in which)
    assert [int(t.rows[0]) for t in made] == [1, 1, 2]
    assert [t.grid.tolist()[-1] for t in made] == [[0, 1], [0, 2], [0, 3]]


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("grid", [np.zeros((4, 2))[::2], np.zeros((2, 3), np.int64).T, np.zeros(4, np.int64)])
def test_a_tuple_of_another_type_is_not_placed(grid: Any) -> None:
    with pytest.raises(TypeError, match=r"grid is not an array of 2 axes of int64 .* one piece"):
        Placed(Many(np.zeros(1, np.int64), grid), MANY)


@entry()
def _read_ahead(t: Any, row: int) -> int:
    fetch(t.rows, row)
    fetch(t.grid, row)
    return int(t.grid[row, 0])


def test_rows_that_are_fetched_ahead_stay_as_they_are() -> None:
    tables = _made(Pointed, GRIDS["rows one after another"]())
    assert [_read_ahead(tables, row) for row in range(3)] == [0, 4, 8]
    assert not tables.rows["a"].any() and (tables.grid == GRIDS["rows one after another"]()).all()
