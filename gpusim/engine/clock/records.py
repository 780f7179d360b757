"""Records of the event log, as the island writes them."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.state import Island, PolicyTables
from gpusim.trace.trace import COLLECTIVE


@outlined
def append(buffers: Any, log: Any, time: int, kind: int, a: int, b: int, addr: int, size: int) -> None:
    """One more record in the event log; the loop makes sure that there is room."""
    e = log[buffers[0].logged]
    buffers[0].logged += 1
    e.t, e.kind, e.a, e.b, e.addr, e.bytes = time, kind, a, b, addr, size


@kernel
def record(isl: Island, pol: PolicyTables, kind: int, a: int, b: int, addr: int, size: int) -> None:
    """Write to the event log, if there is one."""
    if pol.buffers[0].log_on:
        append(pol.buffers, pol.log, isl.clock[0].now, kind, a, b, addr, size)


@outlined
def has(isl: Island, i: int, granted: int) -> None:
    """The i-th of those that run has so many multiprocessors from now on, -1: it ends; where a log of that is kept."""
    p, x = isl.pager[0], isl.running[i]
    if isl.grants.size > 1:
        if p.grants < isl.grants.size:
            e, a = isl.grants[p.grants], isl.activities[x.activity]
            e.time, e.operator, e.sms, e.wants, e.priority = isl.clock[0].now, a.arg, granted, x.sms, x.priority
            e.keeps = 2 if a.kind == COLLECTIVE else x.whole
        p.grants += 1
