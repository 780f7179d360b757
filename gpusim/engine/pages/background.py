"""What the driver does while the link is idle: it makes room ahead of need, and brings what prefetchers expect.

A thread of its own on the host; the link's idle time is that of kernels, and of the driver's work on faults.  What has begun is
finished, and the copies of the next batch wait for it.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages.ahead import next_wanted
from gpusim.engine.pages.bits import clear, copy, none, subtract
from gpusim.engine.pages.chunk_policy import in_flight
from gpusim.engine.pages.chunks import append
from gpusim.engine.pages.copies import take_queued
from gpusim.engine.pages.driver_tables import (
    FAULTED,
    FREE,
    NONE,
    PREFETCH,
    RESIDENT,
    USED,
    WANTED,
    WRITES,
    DriverState,
    row,
    scratch,
    shared,
)
from gpusim.engine.pages.events import note_copies
from gpusim.engine.pages.eviction import evict
from gpusim.engine.pages.page_policy import belongs
from gpusim.engine.pages.prefetchers import extend
from gpusim.engine.pages.service import place, plain
from gpusim.engine.pages.victims import SEARCH, spare, victim


@outlined
def work_ahead(M: DriverState, g: int, idle: float) -> None:
    """The link of GPU g has been idle for `idle` ns until now."""
    s, gpu = M.state[0], M.gpus[g]
    take_queued(gpu)
    while idle > 0.0 and gpu.length[FREE] < s.reserve and s.oversubscription:
        r = spare(M, g)
        if r == NONE:
            break
        took = evict(M, g, r)
        append(M, g, r, FREE)
        idle -= max(took, take_queued(gpu))
    if s.migrates:
        idle = demote(M, g, idle)
    while idle > 0.0 and s.learns and not s.failed:
        b = next_wanted(M, g)
        if b != NONE:
            idle -= fetch_ahead(M, g, b)
        elif not extend(M, g):
            break
    note_copies(M, g, 0.0, 0.0)  # of these it is not told when they go on
    if idle < 0.0:
        gpu.copied = max(gpu.copied, s.now - idle)


@outlined
def demote(M: DriverState, g: int, idle: float) -> float:
    """Chunks that do not belong into GPU g leave, of the oldest that many; the ns of idle time that are left."""
    gpu = M.gpus[g]
    r, looked = gpu.oldest[USED], 0
    while r != NONE and looked < SEARCH and idle > 0.0:
        newer, b = M.roots[r].newer, M.roots[r].owner
        if b >= 0 and not M.roots[r].locked and not in_flight(M, g, r) and not belongs(M, g, b, False):
            took = evict(M, g, r)
            append(M, g, r, FREE)
            idle -= max(took, take_queued(gpu))
        r = newer
        looked += 1
    return float(idle)


@outlined
def fetch_ahead(M: DriverState, g: int, b: int) -> float:
    """The wanted pages of block b come to GPU g; ns."""
    W, s, gpu = M.bits, M.state[0], M.gpus[g]
    mask, no_writes, wanted = scratch(M, FAULTED), scratch(M, WRITES), shared(M, WANTED, b)
    copy(W, mask, wanted)
    clear(W, wanted)
    subtract(W, mask, row(M, g, RESIDENT, b))
    full = gpu.length[FREE] == 0 and M.chunk[g, b] == NONE and not s.oversubscription
    if none(W, mask) or full or not plain(M, b):
        return 0.0
    if gpu.length[FREE] == 0 and M.chunk[g, b] == NONE:
        r = victim(M, g)
        if r == NONE or in_flight(M, g, r):  # what was asked for goes before what may be
            return 0.0
    clear(W, no_writes)
    M.blocks[b].served, M.blocks[b].served_by = M.counts[g].replays + 1, g
    took = gpu.block + place(M, g, b, g, mask, no_writes, PREFETCH, NONE)
    took = max(took, take_queued(gpu) + gpu.setting_up)
    gpu.setting_up = 0.0
    return float(took)
