"""The CPU touches memory on the clock of the GPUs: a block at a time, while kernels run, as an operator of a stream of its own.

Faults of the CPU are served by the thread that touches, beside the driver's thread of the GPU; they wait for the lock of a
block that this one has.  What comes to the host meanwhile is one transfer for each block, from its first copy to its last.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages import host
from gpusim.engine.pages.copies import do_not_flow
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.paging import BRINGS, HELD_UP, SERVES, TOUCH_WRITE, PagedKernels
from gpusim.engine.pages.thrashing import unpin
from gpusim.engine.pages.transfers import ask, set_aside, take
from gpusim.engine.state import ASKED, OF_STREAM

LATE = 100.0  # ns: how often one looks again that waits for a driver whose copies are late


@kernel
def is_held(M: DriverState, b: int, p: int) -> bool:
    """Another GPU has a block whose service it has not replayed yet: its lock is held until then, or warps would starve."""
    x = M.blocks[b]
    return bool(x.served_by != p and x.served_by > 0 and x.served == M.counts[x.served_by].replays + 1)


@kernel
def free_at(M: DriverState, P: PagedKernels, b: int) -> float:
    """When the CPU may have the block, which a driver may be serving: now, or later."""
    s, v, x = M.state[0], P.server[0], M.blocks[b]
    if not is_held(M, b, 0):
        return float(s.now)
    until = M.gpus[x.served_by].replays_at
    if until > s.now:
        return float(until + 1.0)
    return float(s.now + LATE if x.served_by == v.gpu and v.phase == SERVES else s.now)


@outlined
def touch(M: DriverState, P: PagedKernels, q: int, act: Any) -> None:
    """The next block of what the operator of stream q touches, from now on; the stream waits for it."""
    s, r, v = M.state[0], P.runs[q], P.server[0]
    gpu, t, begin, b = M.gpus[v.gpu], P.transfers[OF_STREAM + q], s.now, r.at
    if b == act.first // s.per_block:
        unpin(M)
    r.state = BRINGS
    ready = begin + LATE if v.phase == HELD_UP else free_at(M, P, b)
    if ready > begin:
        ask(t, begin)
        t.ready = ready
        return
    set_aside(M, P)
    copied = gpu.copied
    if v.active:  # copies of the GPU's driver have channels of their own
        gpu.copied = begin
    gpu.begun = 0
    host.touch_block(M, b, act.first, act.outer, act.kind == TOUCH_WRITE)
    if gpu.begun:
        take(M, P, OF_STREAM + q, gpu.copied)
    if t.state != ASKED:
        ask(t, begin)
    t.ready, t.piece = s.now, math.inf
    do_not_flow(M, v.gpu)
    if v.active:
        gpu.copied = copied
    gpu.begun, s.now = 0, begin
    r.at = b + 1
