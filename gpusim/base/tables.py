"""Tables of the compiled island: structured arrays whose rows read `tab[i].field` compiled and interpreted alike.

Results know the rows of their logs by these, so numba is loaded when a table is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

import numpy as np

i1, i4, i8, f8 = np.int8, np.int32, np.int64, np.float64


class TableRow(np.record):  # type: ignore[misc]
    """A row of an interpreted table: its fields go before numpy's own attributes, `size`, `data` and `base` are both."""

    def __getattribute__(self, name: str) -> Any:
        fields = np.void.__getattribute__(self, "dtype").fields
        return self[name] if name in fields else super().__getattribute__(name)


def table(rows: int, dtype: np.dtype[Any]) -> Any:
    """A zeroed table of `rows` records; without numba's compiler, of `TableRow`s."""
    from numba import config

    return np.zeros(rows, np.dtype((TableRow, dtype)) if config.DISABLE_JIT else dtype)


def record(fields: list[tuple[str, Any]]) -> np.dtype[Any]:
    """A row's type from its fields, aligned as C does."""
    return np.dtype(fields, align=True)


Tables = TypeVar("Tables")


def declared(tables: type) -> dict[str, tuple[Any, ...]]:
    """What a NamedTuple says of each field beside its type, in order: `name: Annotated[Any, dtype, axis, axis]`."""
    return {name: hint.__metadata__ for name, hint in get_type_hints(tables, include_extras=True).items()}


@cache
def _arrays(tables: type) -> list[tuple[str, np.dtype[Any], tuple[Any, ...]]]:
    return [(name, np.dtype(dtype), tuple(axes)) for name, (dtype, *axes) in declared(tables).items()]


def signature(tables: type) -> Any:
    """The type that numba knows such a tuple by, its arrays being those that `filled` makes."""
    from numba import typeof

    return typeof(tables(**{name: _array(dtype, (1,) * len(axes)) for name, dtype, axes in _arrays(tables)}))


def filled(tables: type[Tables], lengths: Mapping[str, int], **given: Any) -> Tables:
    """The tuple with the arrays that are given, and the others zeroed: an axis is as long as it says, or as `lengths`
    says of its name; 1 where that says nothing, which is for what a run does not use.

    TypeError for a given array of another type or number of axes than its field declares.
    """
    declaring: Any = tables
    for name, dtype, axes in _arrays(declaring):
        if name not in given:
            given[name] = _array(dtype, tuple(axis if isinstance(axis, int) else lengths.get(axis, 1) for axis in axes))
        elif given[name].dtype != dtype or given[name].ndim != len(axes):
            found = f"{given[name].dtype} with {given[name].ndim} axes"
            raise TypeError(f"{tables.__name__}.{name} is {dtype} with {len(axes)} axes, not {found}")
    return tables(**given)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    return table(math.prod(shape), dtype).reshape(shape) if dtype.fields else np.zeros(shape, dtype)
