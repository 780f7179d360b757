"""Pages change place: the only functions that split, join and link extents."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.studies.g10.extent_tables import DEVICE, FAULT, HOST, NONE, NOWHERE, PagedState


@kernel
def arrived(M: PagedState, e: int) -> None:
    """Extent e is the newest on the device."""
    s, x = M.state[0], M.extents[e]
    x.older, x.newer = s.newest, NONE
    if s.newest == NONE:
        s.oldest = e
    else:
        M.extents[s.newest].newer = e
    s.newest = e


@kernel
def departed(M: PagedState, e: int) -> None:
    """Extent e is on the device no more."""
    s, x = M.state[0], M.extents[e]
    if x.older == NONE:
        s.oldest = x.newer
    else:
        M.extents[x.older].newer = x.newer
    if x.newer == NONE:
        s.newest = x.older
    else:
        M.extents[x.newer].older = x.older
    x.older = x.newer = NONE


@kernel
def wait(M: PagedState, e: int, q: int) -> None:
    """Extent e is the last in queue q."""
    queue, x = M.queues[q], M.extents[e]
    x.queue, x.behind = q, NONE
    queue.pages += x.pages
    if queue.tail == NONE:
        queue.head = e
    else:
        M.extents[queue.tail].behind = e
    queue.tail = e


@kernel
def forget(M: PagedState, e: int) -> None:
    """Extent e has lost its pages to its neighbour."""
    s, x = M.state[0], M.extents[e]
    if x.before == NONE:
        M.tensors[x.tensor].extent = x.after
    else:
        M.extents[x.before].after = x.after
    if x.after != NONE:
        M.extents[x.after].before = x.before
    x.after = s.spare
    s.spare = e
    s.spares += 1


@kernel
def split(M: PagedState, e: int, n: int) -> int:
    """A new extent with the first n pages of e, in no list but the tensor's."""
    s = M.state[0]
    d = s.spare
    x, y = M.extents[e], M.extents[d]
    s.spare = y.after
    s.spares -= 1
    y.tensor, y.first, y.pages = x.tensor, x.first, n
    x.first += n
    x.pages -= n
    y.before, y.after = x.before, e
    y.older = y.newer = y.behind = NONE
    if x.before == NONE:
        M.tensors[x.tensor].extent = d
    else:
        M.extents[x.before].after = d
    x.before = d
    return int(d)


@kernel
def change(M: PagedState, e: int, n: int, where: int, q: int) -> None:
    """The first n pages of extent e are `where` from here on, waiting in queue q unless it is NONE.

    When these are all of its pages, e has been taken off the device's list and the queues before.
    """
    s, x = M.state[0], M.extents[e]
    b = x.before
    joins = b != NONE and M.extents[b].where == where and M.extents[b].queue == q
    if joins and q != NONE:
        joins = M.queues[q].tail == b
    elif joins and where == DEVICE:
        joins = s.newest == b
    if joins:
        M.extents[b].pages += n
        x.first += n
        x.pages -= n
        if q != NONE:
            M.queues[q].pages += n
        if x.pages > 0:
            return
        forget(M, e)
        e = b
    else:
        if n < x.pages:
            e = split(M, e, n)
        M.extents[e].where = where
        M.extents[e].queue = NONE
        if q != NONE:
            wait(M, e, q)
        elif where == DEVICE:
            arrived(M, e)
    if q != NONE or where == DEVICE:
        return
    y = M.extents[e]
    a = y.after
    if a != NONE and M.extents[a].where == where and M.extents[a].queue == NONE:
        y.pages += M.extents[a].pages
        forget(M, a)


@kernel
def take(M: PagedState, q: int, n: int) -> int:
    """The first n pages leave queue q; returns the extent that they are the beginning of."""
    queue = M.queues[q]
    e = queue.head
    x = M.extents[e]
    queue.pages -= n
    queue.served += n
    if n == x.pages:
        queue.head = x.behind
        if x.behind == NONE:
            queue.tail = NONE
    return int(e)


@kernel
def come(M: PagedState, q: int, n: int) -> None:
    """The first n pages of queue q arrive on the device, where there is room."""
    s = M.state[0]
    e = take(M, q, n)
    x = M.extents[e]
    log = M.iterations[s.iteration]
    if x.where == NOWHERE:
        s.made += n
        log.created += n
    else:
        s.made += n
        s.came += n
        if x.where == HOST:
            s.host_used -= n
            log.host_in += n
        else:
            s.came_ssd += n
            log.ssd_in += n
    if M.tensors[x.tensor].needed == s.launch:
        s.awaited -= n
    s.free -= n
    change(M, e, n, DEVICE, NONE)


@kernel
def leave(M: PagedState, e: int, n: int, where: int) -> int:
    """The first n pages of extent e leave the device; what the running kernel needs turns round at once.

    Returns the extent that is now the oldest after what left.
    """
    s, x = M.state[0], M.extents[e]
    log = M.iterations[s.iteration]
    if where == NOWHERE:
        s.dropped += n
    else:
        s.went += n
        if where == HOST:
            s.host_used += n
            log.host_out += n
        else:
            s.went_ssd += n
            log.ssd_out += n
    s.free += n
    rest, planned = e, x.queue != NONE
    if n == x.pages:
        rest = x.newer
        departed(M, e)
    if M.tensors[x.tensor].needed == s.launch:
        s.awaited += 0 if planned else n  # what was to leave as planned is awaited already
        s.recalled += n
        change(M, e, n, where, FAULT + where)
    else:
        change(M, e, n, where, NONE)
    return int(rest)


@kernel
def discard(M: PagedState, e: int) -> None:
    """What extent e holds is needed no more; it waits for nothing."""
    s, x = M.state[0], M.extents[e]
    if x.where == DEVICE:
        departed(M, e)
        s.free += x.pages
        if s.candidate == e:
            s.candidate = s.oldest
    elif x.where == HOST:
        s.host_used -= x.pages
    x.where = NOWHERE
