"""The chunk that was used least often since it came; of equals, the one that was served first."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.pages.ranking import renew
from gpusim.engine.pages.tables import DriverState

RANKED = True


@kernel
def touched(M: DriverState, g: int, b: int, r: int) -> None:
    M.roots[r].key += 1
    renew(M, g, r)
