"""Access counters: a GPU counts its remote accesses, by 2 MiB, and notifies the driver, which migrates the pages to it.

A notice names the regions of 64 KiB that were accessed.  The driver gets it an interrupt later, or when it is done with the
notices before; the kernel goes on meanwhile.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.engine.pages import system
from gpusim.engine.pages.bits import PAGES, add, copy, drop, fill, keep, next_set, none, subtract, total
from gpusim.engine.pages.bits import clear as wipe
from gpusim.engine.pages.copies import take_queued
from gpusim.engine.pages.driver_tables import (
    ASKED,
    ATS,
    COUNTER,
    FAULTED,
    GUESS,
    HMM,
    MAPPED,
    NONE,
    RESIDENT,
    DriverState,
    row,
    scratch,
)
from gpusim.engine.pages.events import note, note_copies
from gpusim.engine.pages.prefetchers import propose
from gpusim.engine.pages.remapping import map_evicted
from gpusim.engine.pages.service import destination, place
from gpusim.results.page_log import NOTICE


@outlined
def count(M: DriverState, p: int, b: int, page: int, accesses: int, now: float) -> None:
    """GPU p has accessed `page` of block b remotely.  Counters look at windows of 2 MiB, not at blocks."""
    s, x = M.state[0], M.counters[p, b]
    if M.blocks[b].kind == HMM:
        return
    x.accesses += accesses
    x.regions |= 1 << ((page + M.blocks[b].offset) // s.big)
    if x.accesses >= s.counter_threshold * (1 + x.asked) and not x.noticed:
        x.noticed = 1
        if s.notices == 0:
            s.notice_due = max(now, s.driver_free) + M.gpus[p].pass_ns
        k = s.notices_head + s.notices
        M.notices[k if k < len(M.notices) else k - len(M.notices)] = b
        s.notices += 1
        M.counts[p].notices += 1
        M.ranges[M.blocks[b].range].notices += 1


@outlined
def attend(M: DriverState, p: int) -> None:
    """The oldest notice: the copies hold up what the kernel reads over the same link, the driver's work does not.

    What the block before threw out has its remote mappings by now; what this one throws out has none before the next.
    """
    map_evicted(M)
    s, n, gpu = M.state[0], M.counts[p], M.gpus[p]
    took = gpu.block
    if s.notices_fetched == 0:
        s.notices_fetched = min(s.notices, s.counter_batch)
        took += gpu.batch + gpu.fault * s.notices_fetched
    b = M.notices[s.notices_head]
    x = M.counters[p, b]
    came = fetch(M, p, b, x.regions)
    took += came
    x.regions, x.noticed = 0, 0
    if s.migrates and came == 0.0:
        x.asked += 1
    else:
        x.accesses, x.asked = 0, 0
    s.notices -= 1
    s.notices_fetched -= 1
    s.notices_head = s.notices_head + 1 if s.notices_head + 1 < len(M.notices) else 0
    copies = take_queued(gpu)
    n.service += took + copies
    note_copies(M, p, s.now, s.now + copies)
    s.now += copies
    s.driver_free = s.notice_due = s.now + took


@outlined
def fetch(M: DriverState, p: int, b: int, regions: int) -> float:
    """Migrate pages of block b in these regions that GPU p accesses remotely, where the driver would migrate them; ns."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    wanted, asked = scratch(M, FAULTED), scratch(M, ASKED)
    wipe(W, wanted)
    for k in range(PAGES // s.big):
        if regions >> k & 1:
            fill(W, wanted, max(k * s.big - block.offset, 0), min((k + 1) * s.big - block.offset, block.pages))
    keep(W, wanted, row(M, p, MAPPED, b))
    subtract(W, wanted, row(M, p, RESIDENT, b))
    note(M, NOTICE, COUNTER, p, NONE, b, wanted)
    page = next_set(W, wanted, 0, PAGES)
    while page < PAGES:
        if destination(M, p, b, page, False, True) != p:
            drop(W, wanted, page)
        page = next_set(W, wanted, page + 1, PAGES)
    if none(W, wanted):
        return 0.0
    copy(W, asked, wanted)
    if block.kind == ATS and block.preferred == p:
        fill(W, asked, 0, block.pages)
    elif propose(M, p, b, wanted, total(W, wanted)):
        add(W, asked, scratch(M, GUESS))
    if block.kind == ATS and not system.fits(M, p, b, asked):
        return 0.0
    return float(place(M, p, b, p, asked, wanted, COUNTER, NONE))
