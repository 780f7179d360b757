"""The chunk that was used least often since it came; of equals, the one that was served first."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.ranking import renew

RANKED = True


@kernel
def touched(M: DriverState, g: int, b: int, r: int) -> None:
    M.roots[r].key += 1
    renew(M, g, r)
