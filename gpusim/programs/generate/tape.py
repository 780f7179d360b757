"""Requests written down once and played many times.

A tape is a list of allocs and frees whose sizes are affine in one number, `fixed + per * number` bytes: the tensors of a
training step in its sequence length, those of a decoding step in the sequences under way.  A section of it is played with a
number, an offset added to its units, and a stream.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from gpusim.base.tables import table
from gpusim.policies.trials.requests import R_ALLOC, R_FREE

ROW = np.dtype([("kind", np.int64), ("unit", np.int64), ("fixed", np.int64), ("per", np.int64)])


class AffineSize(NamedTuple):
    """fixed + per * number bytes."""

    fixed: int
    per: int = 0

    def times(self, factor: int) -> AffineSize:
        return AffineSize(self.fixed * factor, self.per * factor)


class Section(NamedTuple):
    """Rows [first, end) of a tape."""

    first: int
    end: int


class RequestTape:
    """Records requests.  A unit is alive until each of its owners has freed it; then its number is used again."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._shares: dict[int, int] = {}
        self._unused: list[int] = []
        self._cut = 0
        self.units = 0

    def new(self, size: AffineSize) -> int:
        if self._unused:
            unit = heapq.heappop(self._unused)
        else:
            unit, self.units = self.units, self.units + 1
        self._shares[unit] = 1
        self._rows.append((R_ALLOC, unit, *size))
        return unit

    def share(self, unit: int) -> int:
        """The same tensor once more, as a view of it or a cast that changes nothing."""
        self._shares[unit] += 1
        return unit

    def free(self, *units: int) -> None:
        for unit in units:
            self._shares[unit] -= 1
            if self._shares[unit] == 0:
                del self._shares[unit]
                heapq.heappush(self._unused, unit)
                self._rows.append((R_FREE, unit, 0, 0))

    def free_all(self) -> None:
        """Free what is alive, the oldest unit last."""
        for unit in sorted(self._shares, reverse=True):
            self._shares[unit] = 1
            self.free(unit)

    def cut(self) -> Section:
        """The section from the previous cut to here."""
        first, self._cut = self._cut, len(self._rows)
        return Section(first, self._cut)

    def rows(self) -> Any:
        """All of it, as a table of ROW."""
        made = table(len(self._rows), ROW)
        made[:] = self._rows
        return made
