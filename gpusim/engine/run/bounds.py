"""What no policy can beat: the least traffic that a memory of this size allows."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.trace.columns import Events, events
from gpusim.trace.trace import ALLOC, FREE, OP
from gpusim.trace.workload import Workload


def swap_in_bound(workload: Workload, capacity: int) -> int:
    """Bytes that must come back into a memory of `capacity` bytes under any eviction policy, allocator and grain.

    Every byte is a page of its own and goes by Belady's rule (farthest next use leaves first), which is optimal for pages
    of one size (Belady 1966; Mattson et al. 1970); nothing is rounded and nothing is fragmented.  The tensors of one
    operator have to be there together.  Only bytes that were there before and hold data count.
    """
    t = workload.trace
    return int(
        _fractional_belady(
            events(t), t.size, workload.acc_start, workload.acc_unit, workload.acc_next, workload.first,
            workload.has_data, capacity,
        )
    )  # fmt: skip


@kept()
def _fractional_belady(
    events: Events, size: Any, start: Any, unit: Any, following: Any, first: Any, has_data: Any, capacity: int
) -> int:
    present = np.zeros(size.size, np.int64)  # bytes of each tensor in memory
    known = np.zeros(size.size, np.uint8)  # has been in memory before, with data
    due = np.full(size.size, np.inf)
    user = np.full(size.size, -1)  # the latest operator that accessed the tensor: its own may not leave
    farthest = [(0.0, -1)]  # (-next use, tensor), stale entries are skipped
    kept = [(0.0, -1)]
    op = -1
    used = 0
    moved = 0
    for e in range(events.kind.size):
        lo, hi = 0, 0
        if events.kind[e] == FREE:
            used -= present[events.arg[e]]
            present[events.arg[e]] = 0
            due[events.arg[e]] = -1.0
            continue
        elif events.kind[e] == ALLOC:
            u = events.arg[e]
            if has_data[u]:
                used += size[u]
                present[u] = size[u]
                known[u] = 1
                due[u] = first[u]
                heapq.heappush(farthest, (-due[u], u))
        elif events.kind[e] == OP:
            op = events.arg[e]
            lo, hi = start[op], start[op + 1]
        for i in range(lo, hi):
            u = unit[i]
            missing = size[u] - present[u]
            if known[u]:
                moved += missing
            known[u] = 1
            used += missing
            present[u] = size[u]
            due[u] = following[i]
            user[u] = op
            heapq.heappush(farthest, (-due[u], u))
        while used > capacity and len(farthest) > 0:
            key, u = farthest[0]
            if u < 0 or present[u] == 0 or due[u] != -key:
                heapq.heappop(farthest)
                continue
            if hi > lo and user[u] == op:
                kept.append(heapq.heappop(farthest))
                continue
            leaves = min(present[u], used - capacity)
            present[u] -= leaves
            used -= leaves
            if present[u] == 0:
                heapq.heappop(farthest)
        while len(kept) > 0:
            heapq.heappush(farthest, kept.pop())
    return moved
