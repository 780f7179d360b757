"""All of the block."""

from __future__ import annotations

from gpusim.uvm.bits import fill
from gpusim.uvm.compiled import kernel
from gpusim.uvm.tables import GUESS, Memory, scratch


@kernel
def propose(M: Memory, p: int, b: int, faulted: int) -> None:
    fill(M.bits, scratch(M, GUESS), 0, M.blocks[b].pages)
