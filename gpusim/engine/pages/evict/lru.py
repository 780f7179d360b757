"""The chunk that no kernel has used, and no service refreshed, for longest: the driver's list, refreshed by every use."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.pages.chunks import append
from gpusim.engine.pages.driver_tables import USED, DriverState


@kernel
def touched(M: DriverState, g: int, b: int, r: int) -> None:
    if M.gpus[g].newest[USED] != r:
        append(M, g, r, USED)
