"""What the driver moves, as transfers that the island lets flow: copies each way, from other GPUs, and zero fills.

Services add to what their GPU moves (`copies.adds`).  A batch takes what its services have added, and so does what the program
brings; what comes or leaves ahead of need is set aside, and flows while warps work.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.paging import PagedKernels
from gpusim.engine.state import AHEAD, ASKED, IDLE, LEGS


@kernel
def ask(t: Any, at: float) -> None:
    """The island is to begin this transfer at this moment; its legs are still to be said."""
    t.state, t.leg, t.at, t.ready, t.piece, t.late = ASKED, 0, at, 0.0, math.inf, 0
    for leg in range(LEGS):
        t.bytes[leg] = t.ns[leg] = 0.0


@outlined
def take(M: DriverState, P: PagedKernels, k: int, until: float) -> bool:
    """Transfer k moves what services have added, from their first copy on, alone until this moment; False: nothing."""
    gpu, t, total = M.gpus[P.server[0].gpu], P.transfers[k], 0.0
    for leg in range(LEGS):
        total += gpu.takes[leg]
    if total <= 0.0:
        return False
    ask(t, gpu.first_copy)
    for leg in range(LEGS):
        t.bytes[leg], t.ns[leg] = gpu.moves[leg], (until - gpu.first_copy) * gpu.takes[leg] / total
        gpu.moves[leg] = gpu.takes[leg] = 0.0
    return True


@outlined
def set_aside(M: DriverState, P: PagedKernels) -> None:
    """What has been added so far came or left ahead of need."""
    gpu, v = M.gpus[P.server[0].gpu], P.server[0]
    for leg in range(LEGS):
        v.ahead[leg] += gpu.moves[leg]
        v.ahead_ns[leg] += gpu.takes[leg]
        gpu.moves[leg] = gpu.takes[leg] = 0.0


@outlined
def flow_ahead(M: DriverState, P: PagedKernels, start: float) -> None:
    """What came or left ahead of need flows while warps work, from `start` until now, or for as long as it takes."""
    v, t, total = P.server[0], P.transfers[AHEAD], 0.0
    set_aside(M, P)
    for leg in range(LEGS):
        total += v.ahead_ns[leg]
    if total <= 0.0 or t.state != IDLE:
        return
    ask(t, start)
    t.takes = max(M.state[0].now - start, total)
    for leg in range(LEGS):
        t.bytes[leg] = v.ahead[leg]
        v.ahead[leg] = v.ahead_ns[leg] = 0.0
