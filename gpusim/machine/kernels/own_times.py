"""A user's measured times beside the model's: a shape of the table has its own, one near it what its neighbours say.

The ratios of measured to modelled times are interpolated between the table's shapes as a shipped correction is, one for each
class and type, and fade with distance.  An operator of a table is taken to be measured as a program runs it, with operands that
come from memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.correction import Lattice, build
from gpusim.machine.kernels.numbers import bytes_of
from gpusim.machine.kernels.operators import groups
from gpusim.machine.kernels.user_table import UserTable
from gpusim.trace.build import TraceBuilder
from gpusim.trace.shapes import Item, TensorList, parse
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from gpusim.machine.kernels.durations import OperatorTimes

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Key = tuple[str, str, tuple[str, ...]]
"""Class, type, names of dimensions."""

_FINEST = 0.5  # octaves between nodes of the last level
_MOST = 2.0  # of the logarithm: what is farther off is another kernel


@dataclass(frozen=True, eq=False)
class OwnTimes:
    """A table and what it says of shapes near its own."""

    table: UserTable
    near: Mapping[Key, Lattice]

    def corrections(self, trace: Trace, rows: I64, times: OperatorTimes) -> Iterator[tuple[Key, I64, F64]]:
        """Of the operators that are near a measured one: (N,) their number among `rows`, (N,) log of measured over modelled."""
        for key, at, places in _placed(trace, rows, times):
            lattice = self.near.get(key)
            if lattice is not None:
                near = lattice.reaches(places)
                yield key, at[near], lattice.at(places[near])


def own_times(table: UserTable, trace: Trace, times: OperatorTimes) -> OwnTimes:
    """The table with corrections of the model, whose times of `as_trace(table)` are given."""
    measured = np.array([table.time(key) for key in table.times], np.float64)
    found = {}
    for key, at, places in _placed(trace, np.arange(trace.ops), times):
        residual = np.log(measured[at] / np.maximum(times.ns[at], 1))
        found[key] = build(places, np.clip(residual, -_MOST, _MOST), [_FINEST] * places.shape[1])
    return OwnTimes(table, found)


def as_trace(table: UserTable) -> Trace:
    """A program of the table's operators, and of one tensor of all their bytes."""
    made = TraceBuilder("kernel times")
    everything = 0
    for operator, dtype, text in table.times:
        shape, size = parse(text), bytes_of(dtype)
        read, written = size * _elements(shape.inputs), size * _elements(shape.outputs or ())
        made.op(operator, [], [], read_bytes=read, written_bytes=written, dtype=dtype, shape=text)
        everything += read + written
    made.alloc(everything)
    return made.finish()


def _elements(items: tuple[Item, ...]) -> int:
    return sum(item.elements if isinstance(item, TensorList) else prod(item) for item in items if item is not None)


def _placed(trace: Trace, rows: I64, times: OperatorTimes) -> Iterator[tuple[Key, I64, F64]]:
    """The operators whose longest kernel has a place in a correction, by class, type and names of dimensions."""
    for group in groups(trace, rows):
        of: dict[tuple[str, ...], list[int]] = {}
        for i, place in enumerate(group.places or ()):
            if place and times.classes[times.what[rows[group.operator[i]]]] == group.what:
                of.setdefault(tuple(place), []).append(i)
        for names, some in of.items():
            places = np.array([list((group.places or ())[i].values()) for i in some], np.float64)
            yield (group.what, group.dtype, names), group.operator[some], places * 1024
