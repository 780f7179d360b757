"""Ticks that would only repeat the one before are done at once.

A tick repeats itself while the same queues move the same numbers of pages, for the same reasons.  That is so as long as each
served queue's first extent lasts, no memory fills up or stops being full, and all evicted pages are of one kind.  Two queues
that bring pages in the same tick shuffle the order of arrival tick by tick, which is left to them.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.studies.g10.extent_tables import AHEAD, FAULT, HOST, NONE, NOWHERE, OUT, QUEUES, SSD, WAITING, PagedState
from gpusim.studies.g10.extents import come
from gpusim.studies.g10.service import alive, dismiss, evict, needed, open_faults, passed_over, victim


@kernel
def alike(M: PagedState, e: int, fault: bool, most: int) -> int:
    """Pages, up to `most`, that leave from e on in a row for the same place and do not turn round."""
    dead = M.state[0].dropped > 0
    n = 0
    while e != NONE and n < most:
        x = M.extents[e]
        if not passed_over(M, e, fault):
            if needed(M, e) or (M.state[0].drops and alive(M, e) == dead):
                break
            n += x.pages if x.newer != NONE else x.pages - 1  # behind the last page there is no other, not those that come
        e = x.newer
    return int(min(n, most))


@outlined
def repeats(M: PagedState, free: int, host_used: int, ticks: int) -> int:
    """How many of the next ticks repeat the one just done, which began with so many pages free and in use."""
    s = M.state[0]
    k, arrivals, served, planned = ticks, NONE, 0, 0
    for q in range(QUEUES):
        queue = M.queues[q]
        n = queue.served
        if n == 0:
            continue
        if queue.pages == 0 or s.stalled & (1 << q) or (q >= FAULT and arrivals != NONE):
            return 0
        if q < FAULT and needed(M, queue.head):
            return 0
        k = min(k, M.extents[queue.head].pages // n)
        served += n
        if q >= FAULT:
            arrivals = q
        else:
            planned += n
    spilled = s.went_ssd - s.pushed_ssd - M.queues[OUT + SSD].served
    if s.recalled or k == 0 or (spilled != 0 and spilled != M.queues[OUT + HOST].served):
        return 0
    if s.pushed == 0:
        drain = (served - planned) - planned
        if drain > 0:
            k = min(k, s.free // drain)
    elif s.free != free or s.dropped not in (0, s.pushed) or s.pushed_ssd not in (0, s.pushed):
        return 0
    fill, to_host = s.host_used - host_used, s.went - s.went_ssd
    if (s.host_used >= s.host) != (host_used >= s.host):
        return 0
    if fill > 0:
        k = min(k, (s.host - s.host_used - to_host - 1) // fill)
    elif fill < 0 and host_used + to_host >= s.host:
        return 0
    if s.mode == WAITING and open_faults(M) == 0:
        k = min(k, (s.awaited - 1) // served)
    if k > 0 and s.pushed > 0:
        fault = arrivals < AHEAD or needed(M, M.queues[arrivals].head)
        k = min(k, alike(M, victim(M, fault), fault, k * s.pushed) // s.pushed)
    return max(0, int(k))


@outlined
def repeat(M: PagedState, k: int) -> None:
    """What k more ticks do that repeat the one just done."""
    s = M.state[0]
    host = SSD if s.host_used >= s.host else HOST
    pushed, where = s.pushed * k, NOWHERE
    if s.dropped == 0:
        where = SSD if s.pushed_ssd > 0 else HOST
    for q in range(QUEUES):
        n = M.queues[q].served * k
        if n == 0:
            continue
        if q < FAULT:
            dismiss(M, q, n, SSD if q == OUT + SSD else host)
            continue
        fault = q < AHEAD or needed(M, M.queues[q].head)
        while pushed > 0:
            e = victim(M, fault)
            m = min(pushed, M.extents[e].pages)
            evict(M, e, m, fault, where)
            pushed -= m
        come(M, q, n)
