"""The tables of a paged memory: extents of pages in three orders, eight queues, one record of everything else.

    tensor ──▶ its extents by page      (`before`, `after`)     every page of every tensor is in one of them, wherever it is
    device ──▶ extents by arrival       (`older`, `newer`)      those on the device: the oldest leaves first
    queue  ──▶ extents that wait        (`behind`)              those on their way in or out

An extent is a run of pages of one tensor that share a place and a queue, so that nothing costs memory or time per page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

i4, i8, f8 = np.int32, np.int64, np.float64


def record(fields: list[tuple[str, Any]]) -> np.dtype[Any]:
    return np.dtype(fields, align=True)


NONE = -1

# Where pages are.  The first three are also the rows of each group of queues below.
SSD, HOST, NOWHERE, DEVICE = range(4)

# What pages wait for, in the order of service: to leave (a drop needs no wait), the running kernel's faults, and what
# was asked for ahead of need.
OUT, FAULT, AHEAD = 0, 2, 5
QUEUES = 8

EXTENT = record(
    [("tensor", i4), ("first", i4), ("pages", i4), ("where", i4), ("queue", i4), ("before", i4), ("after", i4), ("older", i4),
     ("newer", i4), ("behind", i4)]
)  # fmt: skip
TENSOR = record(
    [("pages", i8), ("extent", i8),   # its first
     ("begin", i8), ("end", i8),      # it is alive from one kernel to before the other
     ("needed", i8), ("window", i8)]  # the latest launch that needs it, that saw it in the window of the next kernels
)
QUEUE = record([("head", i8), ("tail", i8), ("pages", i8), ("served", i8)])  # served: in this tick

RUNNING, WAITING = range(2)  # the kernel's end is known, or it waits for pages

# Why the replay came back.
DONE, GROW, STUCK = range(3)

STATE = record(
    [  # the machine, per tick and in pages
     ("tick", i8), ("link", i8), ("ssd", i8), ("allocs", i8), ("device", i8), ("host", i8),
     # the policy: kernels ahead (0: it does not look ahead); does it drop what is dead?; does it repeat steady ticks at once?
     ("degree", i8), ("drops", i8), ("steady", i8),
     ("kernels", i8), ("iterations", i8),
     # the memories
     ("free", i8), ("host_used", i8), ("oldest", i8), ("newest", i8),
     ("candidate", i8),  # where the search for a victim goes on, NONE at the end
     ("spare", i8), ("spares", i8),
     # time, in cycles
     ("now", i8),        # of the next tick
     ("next", i8),       # of the next launch, while RUNNING
     ("seen", i8),       # the next tick when that launch was scheduled: of equal times, what was scheduled first goes first
     ("start", i8), ("due", i8), ("mode", i8), ("launch", i8), ("kernel", i8), ("iteration", i8),
     ("awaited", i8),    # pages on their way that the kernel needs
     # of this tick, in pages
     ("came", i8), ("came_ssd", i8), ("made", i8), ("went", i8), ("went_ssd", i8), ("dropped", i8),
     ("pushed", i8), ("pushed_ssd", i8),  # evicted to make room, in all and to the SSD
     ("recalled", i8),   # evicted and needed at once
     ("stalled", i8)]    # queues, as bits, that found no page to evict
)  # fmt: skip

# One kernel of one iteration, as the study logs it: cycles, and pages that were on their way, faulted from each place, in use.
LAUNCH = record(
    [("start", i8), ("end", i8), ("on_the_way", i8), ("from_host", i8), ("from_ssd", i8), ("new", i8), ("host_used", i8),
     ("device_used", i8)]
)  # fmt: skip
ITERATION = record([("end", i8), ("ssd_in", i8), ("host_in", i8), ("ssd_out", i8), ("host_out", i8), ("created", i8)])


class PagedState(NamedTuple):
    """All that changes in a replay."""

    extents: Any     # EXTENT[room]
    tensors: Any     # TENSOR[T]
    queues: Any      # QUEUE[QUEUES]
    state: Any       # STATE[1]
    launches: Any    # LAUNCH[iterations * kernels]
    iterations: Any  # ITERATION[iterations]


class KernelWork(NamedTuple):
    """What is replayed: read only.  K kernels."""

    cycles: Any      # int64[K] with all pages on the device
    in_start: Any    # int64[K + 1] into `used`: inputs, then from `out_start` what is only written
    out_start: Any   # int64[K]
    used: Any        # int64[...] tensors of each kernel
    rates: Any       # float64[K, 2] bytes/ms at which faults on inputs, on outputs are served, as profiled
    hint_start: Any  # int64[K + 2]: hints of the last row belong to kernel 0 from the second iteration on
    hints: Any       # int64[..., 2] tensor, where to
    links: Any       # float64[6] bytes/ms of PCIe, of the SSD; us of a far fault, of the SSD's part; bytes of a page; Hz
