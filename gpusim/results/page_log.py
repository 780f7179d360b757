"""The event log of unified memory: every page that comes and goes, every fault, every batch, in their order.

Residency follows from COPY, FILL, KEEP and GONE alone: pages come to a processor by one of the first three and are there until
the fourth.  A page that moves is COPY at its new place, then GONE at its old one.  Processor 0 is the CPU, 1.. are GPUs.

A record stands at the time at which the driver did it.  `since` to `until` is what took its time: of a BATCH its service, of a
COPY all copies of its service together, which follow each other in the GPU's copy engine; of all others that time alone.

Beside the records, and with lengths of their own, stand the columns of STEPS: what the timed program did, a row for each step,
with the parts of the metrics stall_..._ns that it had.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.tables import f8, i4, i8, record

KINDS = ("batch", "read", "write", "copy", "fill", "keep", "gone", "throttle", "pin", "unpin", "notice")
(
    BATCH,     # the driver has fetched `pages` faults of `processor`
    READ,      # `processor` has faulted on pages, to read them
    WRITE,     # ... to write them
    COPY,      # pages were copied to `processor` from `source`
    FILL,      # pages that were nowhere are at `processor`, zeroed
    KEEP,      # pages are at `processor` without a copy: they still were what they had been there
    GONE,      # pages are no longer at `processor`
    THROTTLE,  # `processor` has to wait for pages
    PIN,       # pages stay at `source`, whichever processor asks
    UNPIN,
    NOTICE,    # an access counter tells that `processor` often reads remotely what lies in regions of these pages
) = range(len(KINDS))  # fmt: skip

HOST = 0  # processor
CAUSES = ("demand", "prefetch", "eviction", "explicit", "counter")  # why pages move
DEMAND, PREFETCH, EVICTION, EXPLICIT, COUNTER = range(len(CAUSES))
WINDOW = 2 << 20  # bytes of address space that a block lies in
WORDS = 8  # of 64 pages: as many as a window has, of 4 KiB

LOG = record(
    [("time", f8), ("kind", np.int8), ("cause", np.int8), ("processor", np.int8), ("source", np.int8),
     ("block", i4), ("pages", i4),
     ("batch", i8),                      # the number of batches so far, of all GPUs
     ("since", f8), ("until", f8),
     ("mask", (np.uint64, WORDS))]       # pages of the block, from its start
)  # fmt: skip

KERNEL, HOST_TOUCH, OTHER = range(3)  # kinds of steps
INSIDE = ("fault", "migration", "remote", "explicit", "host")  # what a step waits for while it goes on,
BEFORE = ("alloc", "sync", "event", "sms", "copy_engine", "launch")  # and before it begins
STALLS = (*INSIDE, *BEFORE)
STEPS = (
    "step_kind",
    "step_name",           # into `step_names`, which are texts
    "step_op",             # operator of a recorded program, -1 where there is none
    "step_gpu", "step_stream",  # of a kernel; 0 where the host carries it out
    "step_after",          # the streams that the host waits for before, as bits; -1: all of them
    "step_operator",       # its number among those on the clock of its GPU, -1 of what is on none
    "step_wants", "step_own",  # multiprocessors that a kernel can use, and ns that it takes on these without faults
    "step_start", "step_end",  # ns since the run is timed
    *(f"step_{cause}" for cause in STALLS),  # ns
)  # fmt: skip
NAMES = "step_names"

# Multiprocessors that kernels had, a row for each change: when, on which GPU, which operator there (`step_operator`), how many
# from then on (-1: it ends), how many it can use, whether it keeps all that it once has (2: from its start on), its priority.
GRANTS = (
    "grant_time", "grant_process", "grant_operator", "grant_sms", "grant_wants", "grant_keeps", "grant_priority",
)  # fmt: skip

# What flowed on the links and through the memory, a row for each flow: when, of which GPU, over which of its ways, how often
# through the memory, bytes, the rate that it reaches alone, and bytes that were left when it was taken off the links.
FLOWS = ("flow_begin", "flow_end", "flow_process", "flow_way", "flow_passes", "flow_size", "flow_cap", "flow_left")
