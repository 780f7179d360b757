"""The log of a run: every page that comes and goes, every fault, every batch, in their order.

Residency follows from COPY, FILL, KEEP and GONE alone: pages come to a processor by one of the first three and are there until
the fourth.  A page that moves is COPY at its new place, then GONE at its old one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kernel
from gpusim.base.tables import f8, i4, i8, record
from gpusim.engine.pages.bits import WORDS, total
from gpusim.engine.pages.raster import paint
from gpusim.engine.pages.tables import CPU, EVICTION, NONE, Memory
from gpusim.results.fault_picture import CAME, EVICTED, FAULTED, TAKEN

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
    PIN,       # pages stay at `source`, whoever asks
    UNPIN,
    NOTICE,    # an access counter tells that `processor` often reads from afar what lies in regions of these pages
) = range(len(KINDS))  # fmt: skip

LOG = record(
    [("time", f8), ("kind", np.int8), ("cause", np.int8), ("processor", np.int8), ("source", np.int8),
     ("block", i4), ("pages", i4),
     ("batch", i8),                      # the number of batches so far, of all GPUs
     ("mask", (np.uint64, WORDS))]       # pages of the block, from its start
)  # fmt: skip


@kernel
def note(M: Memory, kind: int, cause: int, p: int, source: int, b: int, mask: int) -> None:
    """One row of the log for the pages of row `mask`, counted only when there is no room; and its place in the picture."""
    s = M.state[0]
    if p > CPU:
        if kind <= WRITE:
            paint(M, FAULTED, b, mask)
        elif kind <= KEEP:
            paint(M, CAME, b, mask)
        elif kind == GONE:
            paint(M, EVICTED if cause == EVICTION else TAKEN, b, mask)
    if s.logged < len(M.log):
        r = M.log[s.logged]
        r.time, r.kind, r.cause, r.processor, r.source, r.block = s.now, kind, cause, p, source, b
        r.pages, r.batch = total(M.bits, mask), s.batches
        for w in range(WORDS):
            r.mask[w] = M.bits[mask, w]
    s.logged += 1


@kernel
def note_batch(M: Memory, p: int, fetched: int) -> None:
    s = M.state[0]
    s.batches += 1
    if s.logged < len(M.log):
        r = M.log[s.logged]
        r.time, r.kind, r.cause, r.processor, r.source, r.block = s.now, BATCH, NONE, p, NONE, NONE
        r.pages, r.batch = fetched, s.batches
    s.logged += 1


def pages(log: Any) -> Any:
    """bool[records, 512]: which pages of its block each record is about."""
    return np.unpackbits(np.ascontiguousarray(log["mask"]).view(np.uint8), axis=-1, bitorder="little").view(bool)
