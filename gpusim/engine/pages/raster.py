"""The picture of a run in the making (`picture.py`).

It has a fixed number of columns.  When time runs beyond the last one, every two columns become one, and each is twice as long:
so it needs no log, does not know the end, and takes the same memory for 10^3 events and for 10^9.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.bits import popcount
from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import WORDS, total
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.results.fault_picture import LAYERS, Picture

SLICES = 128        # rows of the picture, at most
COLUMNS = 512
COLUMN_NS = 1000.0  # how long a column is at first


def slice_shift(blocks: int, per_block: int) -> int:
    """How many words of masks (64 pages) are one row, as a power of two."""
    return max((blocks * words(per_block) - 1) // SLICES, 0).bit_length()


def words(per_block: int) -> int:
    return max(per_block // 64, 1)


@outlined
def fold(M: DriverState) -> None:
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


@kernel
def paint(M: DriverState, layer: int, b: int, mask: int) -> None:
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


def of(M: DriverState, before: npt.NDArray[np.int64]) -> Picture:
    """What was painted."""
    s = M.state[0]
    used = int((float(s["now"]) - float(s["raster_from"])) / float(s["column_ns"])) + 1
    page = int(s["page_bytes"])
    row = (BLOCK_BYTES // words(int(s["per_block"]))) << int(s["slice_shift"])
    rows = ((int(s["blocks"]) * words(int(s["per_block"])) - 1) >> int(s["slice_shift"])) + 1
    return Picture(M.raster[:, :rows, :used].copy(), before[:, :rows], float(s["column_ns"]), row, page)


def restart(M: DriverState) -> npt.NDArray[np.int64]:
    """From now on time counts; the pages until now, by layer and row."""
    before: npt.NDArray[np.int64] = M.raster.sum(2)
    M.raster[:] = 0
    M.state["raster_from"] = M.state["now"]
    M.state["column_ns"] = COLUMN_NS
    return before
