"""The log of a run, written: every page that comes and goes, every fault, every batch (results.page_log has the format)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import total
from gpusim.engine.pages.driver_tables import CPU, EVICTION, NONE, DriverState
from gpusim.engine.pages.raster import paint
from gpusim.results.fault_picture import CAME, EVICTED, FAULTED, TAKEN
from gpusim.results.page_log import BATCH, COPY, GONE, KEEP, WORDS, WRITE


@outlined
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
        r.pages, r.batch, r.since, r.until = total(M.bits, mask), s.batches, s.now, s.now
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
        r.pages, r.batch, r.since, r.until = fetched, s.batches, s.now, s.now
    s.logged += 1


@kernel
def note_end(M: DriverState, place: int) -> None:
    """What the record at this place stands for ends now."""
    if place < len(M.log):
        M.log[place].until = M.state[0].now


@kernel
def note_copies(M: DriverState, g: int, since: float, until: float) -> None:
    """The copies to and from GPU g that were noted since the last call take this time."""
    s, gpu = M.state[0], M.gpus[g]
    for i in range(gpu.noted, min(s.logged, len(M.log))):
        r = M.log[i]
        if r.kind == COPY and until > since and (r.processor == g or (r.processor == CPU and r.source == g)):
            r.since, r.until = since, until
    gpu.noted = s.logged


def pages(log: Any) -> Any:
    """bool[records, 512]: which pages of its block each record is about."""
    return np.unpackbits(np.ascontiguousarray(log["mask"]).view(np.uint8), axis=-1, bitorder="little").view(bool)
