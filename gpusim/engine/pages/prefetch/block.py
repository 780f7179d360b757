"""All of the block."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.pages.bits import fill
from gpusim.engine.pages.driver_tables import GUESS, DriverState, scratch


@kernel
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    fill(M.bits, scratch(M, GUESS), 0, M.blocks[b].pages)
