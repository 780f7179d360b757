"""What the device waited for, and what the program itself moved."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.clock.records import record
from gpusim.engine.state import FROM_DEVICE, TO_DEVICE, Island, PolicyTables
from gpusim.results import log
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, NVME_READ, NVME_WRITE


@kernel
def done_row(isl: Island, k: int, count: int) -> int:
    """The row of the last of the first so many activities of queue k; -1 when that is so long ago that it is in use again."""
    queue = isl.queues[k]
    if count == 0 or queue.submitted - count >= queue.mask:
        return -1
    return queue.base + ((count - 1) & queue.mask)


@outlined
def stalled(isl: Island, pol: PolicyTables, activity: int, cause: int, waited: int, span: int) -> None:
    """The activity's stream has stood still for `span` ns, until row `waited` had ended (-1: for nothing that ends)."""
    if span > 0:
        isl.stalls[cause] += span
        record(isl, pol, log.STALL, activity, cause, isl.activities[waited].number if waited >= 0 else -1, span)


@kernel
def account_stall(isl: Island, pol: PolicyTables, row: int) -> None:
    """Split the time since the stream fell idle by what the kernel waited for, in the order in which it came.

    The last part belongs to whatever came last, or to multiprocessors or the turn in a copy engine where it lacked nothing
    else, since `ready`; the parts add up to the gap.
    """
    c, n = isl.clock[0], isl.counts[0]
    a = isl.activities[row]
    queue = isl.queues[a.queue]
    at, ready = queue.free_at, c.now
    if queue.wants:
        ready = queue.wants - 1
    elif queue.granted:
        ready = queue.came
    host, room, data, event = a.submit, -1, -1, -1
    room_row, data_row, event_row = -1, -1, -1
    for k in range(c.queues):
        count = isl.need[row, k]
        if k != a.queue and count > 0:
            last = done_row(isl, k, count)
            end = isl.activities[last].end if last >= 0 else -1
            if isl.queues[k].role == FROM_DEVICE:
                if end > room:
                    room, room_row = end, last
            elif isl.queues[k].role == TO_DEVICE:
                if end > data:
                    data, data_row = end, last
            elif end > event:
                event, event_row = end, last
    if a.brought > 0:
        prefetched = done_row(isl, a.brought_by, a.brought)
        if prefetched >= 0 and isl.activities[prefetched].end > at:
            n.prefetch_late += 1
    while at < ready:
        # The earliest of the causes that lie after `at` owns the time up to itself.
        until = ready
        if at < host < until:
            until = host
        if at < room < until:
            until = room
        if at < data < until:
            until = data
        if at < event < until:
            until = event
        span = until - at
        if until == host:
            alloc = min(span, a.alloc_ns)
            sync = min(span - alloc, a.sync_ns)
            stalled(isl, pol, a.number, log.BY_ALLOC, -1, alloc)
            stalled(isl, pol, a.number, log.BY_SYNC, -1, sync)
            stalled(isl, pol, a.number, log.BY_LAUNCH, -1, span - alloc - sync)
        elif until == data:
            stalled(isl, pol, a.number, log.BY_SWAP_IN, data_row, span)
        elif until == room:
            stalled(isl, pol, a.number, log.BY_SWAP_OUT, room_row, span)
        elif until == event:
            stalled(isl, pol, a.number, log.BY_EVENT, event_row, span)
        else:
            stalled(isl, pol, a.number, log.BY_LAUNCH, -1, span)
        at = until
    if queue.wants:
        stalled(isl, pol, a.number, log.BY_SMS, -1, c.now - ready)
    elif queue.granted:
        stalled(isl, pol, a.number, log.BY_COPY_ENGINE, -1, c.now - ready)


@kernel
def count_copies(isl: Island, kind: int, change: int) -> None:
    """The program's own copies under way, and how many began while another went the same way."""
    d, n = isl.devices[0], isl.counts[0]
    if kind == COPY_IN:
        n.shared_in += change > 0 and d.copying_in > 0
        d.copying_in += change
    elif kind == COPY_OUT:
        n.shared_out += change > 0 and d.copying_out > 0
        d.copying_out += change


@kernel
def count_operator(isl: Island, a: Any) -> None:
    """The program's own copies, collectives and work of the host."""
    n = isl.counts[0]
    if a.kind == HOST_WORK:
        n.host_work += a.end - a.start
        return
    n.transfer += a.end - a.start
    if a.kind == COPY_IN:
        n.copied_in += a.bytes
    elif a.kind == COPY_OUT:
        n.copied_out += a.bytes
    elif a.kind == COLLECTIVE or a.kind == COPY_PEER:
        n.collective += a.bytes
    elif a.kind == NVME_READ:
        n.nvme_read += a.bytes
    elif a.kind == NVME_WRITE:
        n.nvme_written += a.bytes
