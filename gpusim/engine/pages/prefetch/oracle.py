"""An oracle: the pages of the block that the running kernel is yet to use, and no others (`foresight`)."""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import outlined
from gpusim.engine.pages.bits import WORDS
from gpusim.engine.pages.driver_tables import GUESS, NONE, DriverState, scratch

FORESEES = True
LEARNS = True


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    out, i = scratch(M, GUESS), M.blocks[b].run
    if i == NONE:
        return
    launch = M.future[i].launch
    while i < len(M.future) and M.future[i].block == b and M.future[i].launch == launch:
        for w in range(WORDS):
            M.bits[out, w] |= np.uint64(M.future[i].pages[w])
        i += 1
