"""The log of a run, written: every page that comes and goes, every fault, every batch (results.page_log has the format)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kernel
from gpusim.engine.pages.bits import total
from gpusim.engine.pages.driver_tables import CPU, EVICTION, NONE, DriverState
from gpusim.engine.pages.raster import paint
from gpusim.results.fault_picture import CAME, EVICTED, FAULTED, TAKEN
from gpusim.results.page_log import BATCH, GONE, KEEP, WORDS, WRITE


@kernel
def note(M: DriverState, kind: int, cause: int, p: int, source: int, b: int, mask: int) -> None:
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
def note_batch(M: DriverState, p: int, fetched: int) -> None:
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
