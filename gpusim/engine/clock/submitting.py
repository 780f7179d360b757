"""How an activity enters a queue."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.state import NEVER, Island


@kernel
def submit(isl: Island, q: int, kind: int, way: int, arg: int, size: int, duration: int, time: int) -> int:
    """Append an activity to queue q with no needs yet; returns its row."""
    c = isl.clock[0]
    queue = isl.queues[q]
    row = queue.base + (queue.submitted & queue.mask)
    queue.submitted += 1
    a = isl.activities[row]
    a.kind, a.way, a.queue, a.arg, a.bytes, a.number, a.submit, a.duration = kind, way, q, arg, size, c.number, time, duration
    a.start, a.end, a.done, a.brought, a.cancelled, a.parts, a.behind, a.waited = NEVER, NEVER, 0, 0, 0, 0, q, 0
    a.gives, a.called, a.paged, a.stalled = 0, 0, 0, 0
    c.number += 1
    c.woken = isl.look[q] = 1
    for k in range(c.queues):
        isl.need[row, k] = 0
    return row
