"""A picture of a run in the making: pages faulted on, arrived, evicted and taken back, by time and address.

It has a fixed number of columns.  When time runs beyond the last one, every two columns become one, and each is twice as long:
so it needs no log, does not know the end, and takes the same memory for 10^3 events and for 10^9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.uvm.bits import WORDS, total
from gpusim.uvm.compiled import outlined, popcount
from gpusim.uvm.tables import BLOCK_BYTES, LAYERS, Memory

FAULTED, CAME, EVICTED, TAKEN = range(LAYERS)  # GPUs asked for pages; they came to one; left it to make room; left it otherwise
SLICES = 128        # rows of the picture, at most
COLUMNS = 512
COLUMN_NS = 1000.0  # how long a column is at first


def slice_shift(blocks: int, per_block: int) -> int:
    """How many words of masks (64 pages) are one row, as a power of two."""
    return max((blocks * words(per_block) - 1) // SLICES, 0).bit_length()


def words(per_block: int) -> int:
    return max(per_block // 64, 1)


@outlined
def fold(M: Memory) -> None:
    """Columns become twice as long."""
    half = COLUMNS // 2
    for layer in range(LAYERS):
        for r in range(M.raster.shape[1]):
            x = M.raster[layer, r]
            for t in range(half):
                x[t] = x[2 * t] + x[2 * t + 1]
            for t in range(half, COLUMNS):
                x[t] = 0
    M.state[0].column_ns *= 2


@outlined
def paint(M: Memory, layer: int, b: int, mask: int) -> None:
    """The pages of row `mask` of block b, now."""
    s = M.state[0]
    while s.now - s.raster_from >= s.column_ns * COLUMNS:
        fold(M)
    t = int((s.now - s.raster_from) / s.column_ns)
    n = max(s.per_block >> 6, 1)
    if n <= 1 << s.slice_shift:  # a block lies in one row
        M.raster[layer, (b * n) >> s.slice_shift, t] += total(M.bits, mask)
        return
    for w in range(WORDS):
        M.raster[layer, (b * n + w) >> s.slice_shift, t] += popcount(M.bits[mask, w])


@dataclass(frozen=True, eq=False)
class Raster:
    """Pages by layer, row (rising addresses) and column (time since the start of what is timed).

    before  what happened until then, by layer and row
    """

    pages: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
    column_ns: float
    row_bytes: int
    page_bytes: int

    @property
    def resident(self) -> npt.NDArray[np.float64]:
        """The share of each row's bytes that GPUs hold at the end of each column; several copies count once."""
        balance = self.before[CAME] - self.before[EVICTED] - self.before[TAKEN]
        flow = self.pages[CAME] - self.pages[EVICTED] - self.pages[TAKEN]
        held: npt.NDArray[np.float64] = (balance[:, None] + flow.cumsum(1)) * (self.page_bytes / self.row_bytes)
        return held.clip(0.0, 1.0)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """For a file."""
        sizes = np.array([self.column_ns, self.row_bytes, self.page_bytes])
        return {"pages": self.pages, "before": self.before, "sizes": sizes}


def from_arrays(given: Mapping[str, npt.NDArray[Any]]) -> Raster:
    column, row, page = given["sizes"]
    return Raster(given["pages"].astype(np.int64), given["before"].astype(np.int64), float(column), int(row), int(page))


def of(M: Memory, before: npt.NDArray[np.int64]) -> Raster:
    """What was painted."""
    s = M.state[0]
    used = int((float(s["now"]) - float(s["raster_from"])) / float(s["column_ns"])) + 1
    page = int(s["page_bytes"])
    row = (BLOCK_BYTES // words(int(s["per_block"]))) << int(s["slice_shift"])
    rows = ((int(s["blocks"]) * words(int(s["per_block"])) - 1) >> int(s["slice_shift"])) + 1
    return Raster(M.raster[:, :rows, :used].copy(), before[:, :rows], float(s["column_ns"]), row, page)


def restart(M: Memory) -> npt.NDArray[np.int64]:
    """From now on time counts; the pages until now, by layer and row."""
    before: npt.NDArray[np.int64] = M.raster.sum(2)
    M.raster[:] = 0
    M.state["raster_from"] = M.state["now"]
    M.state["column_ns"] = COLUMN_NS
    return before
