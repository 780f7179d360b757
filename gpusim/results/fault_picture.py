"""The picture of a run: pages faulted on, migrated, evicted and freed, by time and address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LAYERS = 4
FAULTED, CAME, EVICTED, TAKEN = range(LAYERS)  # GPUs asked for pages; they came to one; left it to make room; left it otherwise
ORDERED = 0.8  # share of steps in one direction from which an allocation counts as swept in the order of its addresses
ENOUGH = 8     # steps from which that can be said


@dataclass(frozen=True, eq=False)
class Picture:
    """Pages by layer, row (rising addresses) and column (time since the run is timed).

    before  what happened until then, by layer and row
    """

    pages: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
    column_ns: float
    row_bytes: int
    page_bytes: int

    @property
    def ahead(self) -> npt.NDArray[np.int64]:
        """Pages that came without being faulted on."""
        unasked: npt.NDArray[np.int64] = self.pages[CAME] - self.pages[FAULTED]
        return unasked.clip(0)

    @property
    def resident(self) -> npt.NDArray[np.float64]:
        """The share of each row's bytes that GPUs hold at the end of each column."""
        balance = self.before[CAME] - self.before[EVICTED] - self.before[TAKEN]
        flow = self.pages[CAME] - self.pages[EVICTED] - self.pages[TAKEN]
        held: npt.NDArray[np.float64] = (balance[:, None] + flow.cumsum(1)) * (self.page_bytes / self.row_bytes)
        return held.clip(0.0, 1.0)

    def swept(self, first: int, size: int) -> int:
        """Whether bytes [first, first + size) came by rising (1) or falling (-1) addresses, however often; 0: in no order."""
        came = self.pages[CAME, first // self.row_bytes : -(-(first + size) // self.row_bytes)]
        there = came[:, came.any(0)]
        if len(came) < ENOUGH or there.shape[1] < ENOUGH:
            return 0
        middle = (np.arange(len(came)) @ there) / there.sum(0)
        steps = np.diff(middle)
        steps = steps[steps != 0]
        if len(steps) < ENOUGH:
            return 0
        rising = float((steps > 0).mean())
        return 1 if rising >= ORDERED else -1 if rising <= 1 - ORDERED else 0

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """For a file."""
        sizes = np.array([self.column_ns, self.row_bytes, self.page_bytes])
        return {"pages": self.pages, "before": self.before, "sizes": sizes}


def from_arrays(given: Mapping[str, npt.NDArray[Any]]) -> Picture:
    column, row, page = given["sizes"]
    return Picture(given["pages"].astype(np.int64), given["before"].astype(np.int64), float(column), int(row), int(page))
