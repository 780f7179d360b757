"""Where pages are: the only place where they come to a processor that asked, and leave another."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import PAGES, add, clear, copy, keep, next_set, none, runs, subtract, total
from gpusim.engine.pages.chunks import append, free_frame
from gpusim.engine.pages.copies import adds, chunks_of, host_chunks
from gpusim.engine.pages.driver_tables import (
    ATS,
    COPIED,
    CPU,
    DIRTY,
    EVICTED,
    FROM,
    GOING,
    HMM,
    LOST,
    MOVING,
    NONE,
    PREFETCH,
    PREFETCHED,
    RESIDENT,
    TAKEN,
    UNUSED,
    USED,
    DriverState,
    row,
    scratch,
    shared,
)  # fmt: skip
from gpusim.engine.pages.events import note
from gpusim.engine.pages.eviction import forget
from gpusim.engine.pages.mapping import unmap
from gpusim.engine.pages.pieces import refresh, settle
from gpusim.engine.pages.population import populate
from gpusim.engine.pages.system import give_back
from gpusim.engine.state import COMES, CROSSES, LEAVES
from gpusim.results.page_log import COPY, FILL, GONE


@kernel
def returned(M: DriverState, plane: int, b: int, moving: int) -> int:
    """How many pages of row `moving` a plane had marked; it marks them no longer."""
    W, back = M.bits, scratch(M, FROM)
    copy(W, back, moving)
    keep(W, back, shared(M, plane, b))
    subtract(W, shared(M, plane, b), moving)
    return int(total(W, back))


@outlined
def leave(M: DriverState, q: int, b: int, mask: int, cause: int) -> None:
    """The pages of row `mask` are no longer resident at q, nor mapped there."""
    W = M.bits
    theirs, gone = row(M, q, RESIDENT, b), scratch(M, FROM)
    unmap(M, q, b, mask)
    copy(W, gone, mask)
    keep(W, gone, theirs)
    if none(W, gone):
        return
    note(M, GONE, cause, q, NONE, b, gone)
    subtract(W, theirs, gone)
    if q != CPU:
        forget(M, q, b, gone)
        if M.state[0].pieces:
            settle(M, q, b)
        if M.blocks[b].kind == ATS:
            give_back(M, q, total(W, gone))
        elif M.blocks[b].kind == HMM:
            page = next_set(W, gone, 0, PAGES)
            while page < PAGES:
                free_frame(M, q, b, page)
                page = next_set(W, gone, page + 1, PAGES)
        elif none(W, theirs) and M.chunk[q, b] != NONE:
            append(M, q, M.chunk[q, b], UNUSED)


@outlined
def revive(M: DriverState, p: int, b: int, mask: int) -> None:
    """Pages of row `mask` are wanted at p: what was discarded elsewhere is nowhere now, and comes without a copy."""
    W, lost, gone = M.bits, shared(M, LOST, b), scratch(M, MOVING)
    copy(W, gone, mask)
    keep(W, gone, lost)
    for q in range(M.state[0].processors):
        if q != p:
            leave(M, q, b, gone, NONE)
    subtract(W, lost, mask)
    M.blocks[b].lost = not none(W, lost)


@outlined
def copies_take(M: DriverState, p: int, q: int, b: int, pages: int, records: int) -> None:
    """So many pages of block b come from processor q to p in so many copies: their time, and what flows over the link."""
    s, n, seen = M.state[0], M.counts[p], M.ranges[M.blocks[b].range]
    gpu = M.gpus[max(p, 1)]
    start, byte = gpu.in_start, gpu.in_byte
    if p == CPU:
        start, byte = M.gpus[q].out_start, M.gpus[q].out_byte
    elif q != CPU and gpu.peer_byte > 0.0:
        byte = gpu.peer_byte
    elif q != CPU:  # through host memory
        start, byte = start + M.gpus[q].out_start, byte + M.gpus[q].out_byte
    took = records * start + pages * s.page_bytes * byte
    if p == CPU:
        M.counts[q].copy_out += took
        M.gpus[q].queued += start + pages * s.page_bytes * byte
        adds(M.gpus[q], LEAVES, pages * s.page_bytes, byte)
        seen.copy_out += took
    else:
        n.copy_in += took
        gpu.queued += start + pages * s.page_bytes * byte
        adds(gpu, COMES if q == CPU or gpu.peer_byte == 0.0 else CROSSES, pages * s.page_bytes, byte)
        seen.copy_in += took


@outlined
def bring(M: DriverState, p: int, b: int, mask: int, demanded: int, cause: int, duplicate: bool) -> float:
    """The pages of row `mask` of block b become resident at processor p; ns.

    Those in row `demanded` move for `cause`, the others ahead of need: runs of adjacent pages of one cause are one copy.
    duplicate: the copies elsewhere stay (read duplication).  Row COPIED tells afterwards which pages came from elsewhere.
    """
    W, s = M.bits, M.state[0]
    gpu, n, seen = M.gpus[max(p, 1)], M.counts[p], M.ranges[M.blocks[b].range]
    ns = 0.0
    moving, source, copied = scratch(M, MOVING), scratch(M, FROM), scratch(M, COPIED)
    clear(W, copied)
    here = row(M, p, RESIDENT, b)
    if M.blocks[b].lost:
        revive(M, p, b, mask)
    copy(W, moving, mask)
    subtract(W, moving, here)
    if p != CPU and not none(W, moving):
        ns += populate(M, p, b, moving)
        if s.failed:
            return float(ns)
        copy(W, source, here)  # pages of this block that made room for others of it have left, and fault again
        add(W, source, moving)
        keep(W, mask, source)
    for q in range(s.processors):
        if q == p:
            continue
        copy(W, source, moving)
        keep(W, source, row(M, q, RESIDENT, b))
        for other in range(q):  # of several copies, the one of the lowest processor is read
            if other != p:
                subtract(W, source, row(M, other, RESIDENT, b))
        pages = total(W, source)
        if pages == 0:
            continue
        add(W, copied, source)
        ahead = scratch(M, GOING)
        copy(W, ahead, source)
        subtract(W, ahead, demanded)
        later = total(W, ahead)
        records = runs(W, ahead)
        n.came[PREFETCH] += later
        n.copies[PREFETCH] += records
        keep(W, source, demanded)
        more = runs(W, source)
        n.came[cause] += pages - later
        came = seen.went if p == CPU else seen.came
        came[PREFETCH] += later
        came[cause] += pages - later
        if later > 0:
            note(M, COPY, PREFETCH, p, q, b, ahead)
        if pages > later:
            note(M, COPY, cause, p, q, b, source)
        n.copies[cause] += more
        copies_take(M, p, q, b, pages, records + more)
        add(W, source, ahead)
        if p == CPU:
            host_chunks(M, b, pages)
        if p == CPU or q == CPU:
            ns += chunks_of(M, b, source) * gpu.chunk
        ns += (runs(W, source) - 1) * gpu.run + pages * gpu.page
    copy(W, source, moving)
    subtract(W, source, copied)
    if not none(W, source):
        note(M, FILL, cause, p, NONE, b, source)
        if p == CPU:
            host_chunks(M, b, total(W, source))
            ns += total(W, source) * gpu.cpu_page * (s.page_bytes / 4096)
    if p != CPU:
        again = returned(M, EVICTED, b, moving)
        n.refetched += again
        seen.refetched += again
        seen.ping_pong += returned(M, TAKEN, b, moving)
    written = scratch(M, GOING)
    copy(W, written, moving)
    keep(W, written, shared(M, DIRTY, b))
    if not duplicate:
        for q in range(s.processors):
            if q != p:
                leave(M, q, b, mask, cause)
        if p == CPU:
            add(W, shared(M, TAKEN, b), copied)
    if p != CPU:  # of what leaves one GPU for another the host knows no more than before
        add(W, shared(M, DIRTY, b), written)
        subtract(W, moving, demanded)
        add(W, shared(M, PREFETCHED, b), moving)
    add(W, here, mask)
    if p != CPU and s.pieces and M.blocks[b].kind != ATS:
        refresh(M, p, b, mask)
    elif p != CPU and M.chunk[p, b] != NONE:
        append(M, p, M.chunk[p, b], USED)
    return float(ns)
