"""An oracle: the chunk whose next use lies farthest ahead, by the order of uses when everything fits (`foresight`)."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.pages.driver_tables import SPLIT, DriverState
from gpusim.engine.pages.foresight import next_use
from gpusim.engine.pages.ranking import renew

RANKED = True
FORESEES = True


@kernel
def touched(M: DriverState, g: int, b: int, r: int) -> None:
    key = -next_use(M, b)
    if M.roots[r].owner != SPLIT and M.roots[r].key != key:  # a chunk that small allocations share stays
        M.roots[r].key = key
        renew(M, g, r)
