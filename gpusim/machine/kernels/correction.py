"""What measured kernels say beyond the physical form: the log of their ratio, interpolated between shapes.

A lattice in the base-2 logarithms of the dimensions, in levels from coarse to fine.  Each level holds what the coarser ones
leave: a node has the weighted mean of the measured points around it, shrunk towards 0 where there are few.  Between nodes the
correction is multilinear; where no node is near it is 0, so that it fades with distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_SHRINK = 0.3  # points that say 0 at each node
_APART = 0.1  # octaves
_SPAN = 512  # nodes along a dimension, most


@dataclass(frozen=True)
class Level:
    """Nodes that carry something, by their key in rising order."""

    steps: tuple[float, ...]
    keys: I64
    values: F64


@dataclass(frozen=True)
class Lattice:
    """The log residual of one class on one GPU."""

    levels: tuple[Level, ...]

    def at(self, dims: F64) -> F64:
        """(N,) log of measured over physical at (N, D) dimensions."""
        out = np.zeros(len(dims))
        order = np.lexsort(dims.T[::-1])  # neighbours next to each other: twice as fast
        for level in self.levels:
            for key, weight in _corners(dims[order], level.steps):
                out[order] += weight * _lookup(level, key)
        return out


    def reaches(self, dims: F64) -> npt.NDArray[np.bool_]:
        """(N,) whether a measured point was near the (N, D) dimensions."""
        coarsest = self.levels[0]
        found = np.zeros(len(dims), np.bool_)
        for key, weight in _corners(dims, coarsest.steps):
            found |= (_lookup(coarsest, key) != 0) & (weight > 0)
        return found


def build(dims: F64, residual: F64, finest: Sequence[float], levels: int = 4, shrink: float = _SHRINK) -> Lattice:
    """The lattice of (N, D) dimensions with (N,) log residuals; `finest`: octaves of the last level.

    A dimension of less than a tenth of an octave is one whose neighbours say little, such as the width of an attention head:
    only the coarsest level joins its values.
    """
    found: list[Level] = []
    left = residual.copy()
    for scale in (2.0**n for n in reversed(range(levels))):
        wide = scale == 2.0 ** (levels - 1)
        steps = tuple(step * scale if step > _APART else 2.0 if wide else step for step in finest)
        corners = list(_corners(dims, steps))
        keys, inverse = np.unique(np.concatenate([key for key, _ in corners]), return_inverse=True)
        weight = np.concatenate([w for _, w in corners])
        total = np.bincount(inverse, weight, len(keys))
        values = np.bincount(inverse, weight * np.tile(left, len(corners)), len(keys)) / (total + shrink)
        level = Level(steps, keys, values)
        found.append(level)
        left = left - Lattice((level,)).at(dims)
    return Lattice(tuple(found))


def _corners(dims: F64, steps: Sequence[float]) -> list[tuple[I64, F64]]:
    """The corners of the cells in which points lie: keys (N,) and weights (N,) of each."""
    place = np.log2(np.maximum(dims, 1.0)) / np.asarray(steps)
    low = np.floor(place).astype(np.int64)
    part = place - low
    out: list[tuple[I64, F64]] = [(np.zeros(len(dims), np.int64), np.ones(len(dims)))]
    for i in range(dims.shape[1]):  # each dimension doubles the corners
        below, above = 1 - part[:, i], part[:, i]
        nodes = [(key * _SPAN + low[:, i], weight) for key, weight in out]
        out = [(key, weight * below) for key, weight in nodes] + [(key + 1, weight * above) for key, weight in nodes]
    return out


def _lookup(level: Level, key: I64) -> F64:
    where = np.minimum(np.searchsorted(level.keys, key), len(level.keys) - 1)
    return np.asarray(level.values[where] * (level.keys[where] == key), np.float64)
