"""One tick of the paged memory: what moves in it, in which order, and what is evicted for it.

A tick moves at most `link` pages in and as many out, `ssd` of them to and from the SSD each way, and creates at most `allocs`
pages.  The order of service is the study's (platformxlab/G10, src/simulationEvents.cc): planned evictions to the SSD, then to
the host; faults from the SSD, from the host, of new pages; what was asked for ahead of need, from the same.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.studies.g10.extent_tables import AHEAD, FAULT, HOST, NONE, NOWHERE, OUT, QUEUES, SSD, PagedState
from gpusim.studies.g10.extents import come, leave, take


@kernel
def open_faults(M: PagedState) -> int:
    """Pages that the kernels at hand and before have faulted on and not got."""
    return int(M.queues[FAULT + SSD].pages + M.queues[FAULT + HOST].pages + M.queues[FAULT + NOWHERE].pages)


@kernel
def alive(M: PagedState, e: int) -> bool:
    """Is the tensor of this extent in use, before or after, in the iteration at hand?"""
    t = M.tensors[M.extents[e].tensor]
    return bool(t.begin <= M.state[0].kernel < t.end)


@kernel
def needed(M: PagedState, e: int) -> bool:
    """Does the kernel at hand need the tensor of this extent?"""
    return bool(M.tensors[M.extents[e].tensor].needed == M.state[0].launch)


@kernel
def passed_over(M: PagedState, e: int, fault: bool) -> bool:
    """Is this extent, on the device, no victim?  It waits to leave anyway, or a kernel that comes soon needs it."""
    s, x = M.state[0], M.extents[e]
    if x.queue != NONE:
        return True
    return bool(s.degree > 0 and not fault and M.tensors[x.tensor].window == s.launch)


@kernel
def victim(M: PagedState, fault: bool) -> int:
    """The next extent to evict, NONE if none may be: the oldest arrival, from where the search stopped last within one launch.

    A policy that looks ahead goes on from there only for what it asked for ahead of need; a fault takes the oldest of all.
    """
    s = M.state[0]
    e = s.oldest if s.degree > 0 and fault else s.candidate
    while e != NONE and passed_over(M, e, fault):
        e = M.extents[e].newer
    if e == NONE and s.degree == 0:
        e = s.oldest
        while e != NONE and passed_over(M, e, fault):
            e = M.extents[e].newer
    if e == NONE:
        s.candidate = NONE
    return int(e)


@kernel
def evict(M: PagedState, e: int, n: int, fault: bool, where: int) -> None:
    """The first n pages of victim e leave; the search goes on behind them."""
    s = M.state[0]
    follows = s.degree == 0 or not fault or s.candidate == e
    s.pushed += n
    if where == SSD:
        s.pushed_ssd += n
    rest = leave(M, e, n, where)
    if follows:
        s.candidate = rest


@kernel
def make_room(M: PagedState, q: int, n: int, fault: bool) -> int:
    """Room for the first of n pages of queue q on a full device: how many pages fit now.  NONE when none may be evicted.

    A page from the host gives its place there back as soon as its victim has found one, so that on a full host only the
    first victim goes on to the SSD.
    """
    s = M.state[0]
    full = s.host_used >= s.host
    if s.went >= s.link or (full and s.went_ssd >= s.ssd):
        return 0
    e = victim(M, fault)
    if e == NONE:
        return NONE
    x = M.extents[e]
    n = min(n, x.pages)
    if x.newer == NONE and n == x.pages and n > 1:
        n -= 1  # page by page, those that come would stand behind the last one, where the search goes on
    if s.drops and not alive(M, e):
        where = NOWHERE
    else:
        n = min(n, s.link - s.went)
        from_host = q in (FAULT + HOST, AHEAD + HOST)
        if full:
            where = SSD
            n = 1 if from_host else min(n, s.ssd - s.went_ssd)
        else:
            where = HOST
            n = n if from_host else min(n, s.host - s.host_used)
    evict(M, e, n, fault, where)
    return int(n)


@outlined
def admit(M: PagedState, q: int, most: int, fault: bool) -> bool:
    """Serve at most so many pages of queue q, all for the device.  False when none may be evicted for them."""
    s, queue = M.state[0], M.queues[q]
    while most > 0 and queue.pages > 0:
        e = queue.head
        n = min(most, M.extents[e].pages)
        if s.free > 0:
            n = min(n, s.free)
        else:
            n = make_room(M, q, n, fault or needed(M, e))
            if n == NONE:
                s.stalled |= 1 << q
                return False
            if n == 0:
                return True
        come(M, q, n)
        most -= n
    return True


@kernel
def dismiss(M: PagedState, q: int, most: int, where: int) -> None:
    """Serve at most so many pages of queue q, all for the place below."""
    s, queue = M.state[0], M.queues[q]
    while most > 0 and queue.pages > 0:
        e = queue.head
        n = min(most, M.extents[e].pages)
        take(M, q, n)
        first = s.candidate == e
        leave(M, e, n, where)
        if first:
            s.candidate = s.oldest
        most -= n


@kernel
def leave_as_planned(M: PagedState) -> None:
    """Serve the queues of planned evictions; what the host has no room for goes on to the SSD."""
    s = M.state[0]
    dismiss(M, OUT + SSD, min(s.ssd, s.link), SSD)
    while M.queues[OUT + HOST].pages > 0 and s.went < s.link:
        room = s.host - s.host_used
        if room > 0:
            dismiss(M, OUT + HOST, min(room, s.link - s.went), HOST)
        elif s.went_ssd < s.ssd:
            dismiss(M, OUT + HOST, min(s.ssd - s.went_ssd, s.link - s.went), SSD)
        else:
            break


@outlined
def serve(M: PagedState) -> None:
    """One tick."""
    s = M.state[0]
    s.came = s.came_ssd = s.made = s.went = s.went_ssd = s.dropped = s.pushed = s.pushed_ssd = s.recalled = s.stalled = 0
    for q in range(QUEUES):
        M.queues[q].served = 0
    if M.queues[OUT + SSD].pages > 0 or M.queues[OUT + HOST].pages > 0:
        leave_as_planned(M)
    admit(M, FAULT + SSD, min(s.ssd, s.link, s.allocs), True)
    admit(M, FAULT + HOST, min(s.link - s.came, s.allocs - s.made), True)
    admit(M, FAULT + NOWHERE, s.allocs - s.made, True)
    if admit(M, AHEAD + SSD, min(s.ssd - s.came_ssd, s.link - s.came), False):
        admit(M, AHEAD + HOST, s.link - s.came, False)
    admit(M, AHEAD + NOWHERE, s.allocs - s.made, False)


@outlined
def force(M: PagedState) -> None:
    """What was asked for ahead of need and stands still is served like faults, since the kernel waits for some of it."""
    s = M.state[0]
    admit(M, AHEAD + SSD, min(s.ssd, s.link, s.allocs - s.made), True)
    admit(M, AHEAD + HOST, min(s.link - s.came, s.allocs - s.made), True)
    admit(M, AHEAD + NOWHERE, s.allocs - s.made, True)

