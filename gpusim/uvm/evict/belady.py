"""An oracle: the chunk whose next use lies farthest ahead, by the order of uses when everything fits (`foresight`)."""

from __future__ import annotations

from gpusim.uvm.compiled import kernel
from gpusim.uvm.foresight import next_use
from gpusim.uvm.ranking import renew
from gpusim.uvm.tables import SPLIT, Memory

RANKED = True
FORESEES = True


@kernel
def touched(M: Memory, g: int, b: int, r: int) -> None:
    key = -next_use(M, b)
    if M.roots[r].owner != SPLIT and M.roots[r].key != key:  # a chunk that small allocations share stays
        M.roots[r].key = key
        renew(M, g, r)
