"""Values measured on a grid of dimensions, multilinear between its nodes in the logarithms of the dimensions.

A grid is the product of the values that each dimension takes.  Nodes that were not measured, such as shapes that did not fit
into the memory, have the value of the nearest node along the first dimension that has one.  Outside, the value is the edge's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogGrid:
    """`nodes`: of each dimension, base-2 logarithms in rising order; `values`: one for each combination."""

    nodes: tuple[F64, ...]
    values: F64

    def at(self, points: Sequence[F64]) -> F64:
        """Values at dimensions that broadcast against each other."""
        points = np.broadcast_arrays(*(np.asarray(p, np.float64) for p in points))
        places = [_place(nodes, np.log2(np.maximum(p, 1e-9))) for nodes, p in zip(self.nodes, points, strict=True)]
        out = np.zeros(points[0].shape)
        for corner in np.ndindex(*(2,) * len(places)):
            weight, index = np.ones(points[0].shape), []
            for bit, (low, part) in zip(corner, places, strict=True):
                weight = weight * (part if bit else 1 - part)
                index.append(low + bit if bit else low)
            out += weight * self.values[tuple(np.minimum(i, n - 1) for i, n in zip(index, self.values.shape, strict=True))]
        return out


def grid(dims: Sequence[F64], values: F64) -> LogGrid:
    """The grid of (N,) values at (N,) positive dimensions each; of several values at one node the mean."""
    nodes, index = [], []
    for d in dims:
        found, inverse = np.unique(d, return_inverse=True)
        nodes.append(np.log2(found))
        index.append(inverse.reshape(-1))
    shape = tuple(len(n) for n in nodes)
    flat = np.ravel_multi_index(tuple(index), shape)
    count = np.bincount(flat, minlength=int(np.prod(shape)))
    total = np.bincount(flat, values, int(np.prod(shape)))
    table = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0).reshape(shape)
    for axis in range(table.ndim):
        table = _filled(table, axis)
    return LogGrid(tuple(nodes), table)


def _place(nodes: F64, at: F64) -> tuple[npt.NDArray[np.int64], F64]:
    """The node below each point, and how far it is to the next: 0..1."""
    low = np.clip(np.searchsorted(nodes, at, side="right") - 1, 0, max(len(nodes) - 2, 0))
    if len(nodes) == 1:
        return low, np.zeros(at.shape)
    return low, np.clip((at - nodes[low]) / (nodes[low + 1] - nodes[low]), 0.0, 1.0)


def _filled(table: F64, axis: int) -> F64:
    """Holes with the nearest value along an axis."""
    moved = np.moveaxis(table, axis, -1)
    lines = moved.reshape(-1, moved.shape[-1]).copy()
    for line in lines:
        known = np.flatnonzero(~np.isnan(line))
        if 0 < len(known) < len(line):
            holes = np.flatnonzero(np.isnan(line))
            line[holes] = line[known[np.abs(holes[:, None] - known[None, :]).argmin(axis=1)]]
    return np.moveaxis(lines.reshape(moved.shape), -1, axis)
