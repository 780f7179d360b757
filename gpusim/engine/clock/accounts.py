"""What the device waited for, and what the program itself moved."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.engine.state import FROM_DEVICE, TO_DEVICE, Island
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, NVME_READ, NVME_WRITE


@kernel
def done_time(isl: Island, k: int, count: int) -> int:
    """When the first so many activities of queue k had ended, ns; -1 when that is so long ago that its row is in use again."""
    queue = isl.queues[k]
    if count == 0 or queue.submitted - count >= queue.mask:
        return -1
    return isl.activities[queue.base + ((count - 1) & queue.mask)].end


@kernel
def account_stall(isl: Island, row: int) -> None:
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
        n.stall_sms += c.now - ready
    elif queue.granted:
        ready = queue.came
        n.stall_copy_engine += c.now - ready
    host, room, data, event = a.submit, -1, -1, -1
    for k in range(c.queues):
        count = isl.need[row, k]
        if k != a.queue and count > 0:
            end = done_time(isl, k, count)
            if isl.queues[k].role == FROM_DEVICE:
                room = max(room, end)
            elif isl.queues[k].role == TO_DEVICE:
                data = max(data, end)
            else:
                event = max(event, end)
    if a.brought > 0 and done_time(isl, a.brought_by, a.brought) > at:
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
            n.stall_alloc += alloc
            n.stall_sync += sync
            n.stall_launch += span - alloc - sync
        elif until == data:
            n.stall_swap_in += span
        elif until == room:
            n.stall_swap_out += span
        elif until == event:
            n.stall_event += span
        else:
            n.stall_launch += span
        at = until


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
