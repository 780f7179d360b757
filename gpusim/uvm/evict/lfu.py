"""The chunk that was used least often since it came; of equals, the one that was served first."""

from __future__ import annotations

from gpusim.uvm.compiled import kernel
from gpusim.uvm.ranking import renew
from gpusim.uvm.tables import Memory

RANKED = True


@kernel
def touched(M: Memory, g: int, b: int, r: int) -> None:
    M.roots[r].key += 1
    renew(M, g, r)
