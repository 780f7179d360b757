"""Where pages are, and what moves them: the only place where a copy happens and where a chunk is taken or thrown out."""

from __future__ import annotations

import numpy as np

from gpusim.uvm.bits import PAGES, WORDS, add, clear, copy, fill, keep, next_set, none, runs, subtract, total
from gpusim.uvm.chunks import append, frame_of, take_free, unlink
from gpusim.uvm.compiled import kernel, outlined
from gpusim.uvm.tables import (
    COPIED,
    CPU,
    DIRTY,
    EVICTED,
    EVICTION,
    FROM,
    GOING,
    HERE,
    MAPPED,
    MOVING,
    NO_MEMORY,
    NONE,
    PREFETCH,
    PREFETCHED,
    RESIDENT,
    REST,
    SPLIT,
    UNUSED,
    USED,
    WRITABLE,
    Memory,
    note,
    row,
    scratch,
    shared,
)  # fmt: skip
from gpusim.uvm.victims import CLEAN_DROP, victim


@kernel
def forget(M: Memory, g: int, b: int, mask: int) -> None:
    """The pages of row `mask` leave GPU g: what was prefetched and never touched was in vain."""
    W = M.bits
    ahead, dirty = shared(M, PREFETCHED, b), shared(M, DIRTY, b)
    rest = scratch(M, REST)
    copy(W, rest, mask)
    keep(W, rest, ahead)
    M.counts[g].wasted += total(W, rest)
    subtract(W, ahead, mask)
    subtract(W, dirty, mask)


@kernel
def unmap(M: Memory, p: int, b: int, mask: int) -> None:
    subtract(M.bits, row(M, p, MAPPED, b), mask)
    subtract(M.bits, row(M, p, WRITABLE, b), mask)


@kernel
def reaches(M: Memory, p: int, q: int) -> bool:
    """Can processor p access memory of q over the link?  The CPU only where the link is coherent, GPUs host memory always."""
    if p == q or q == CPU:
        return True
    return bool(M.gpus[max(p, q)].fast_peer)


@kernel
def grant(M: Memory, p: int, b: int, mask: int) -> None:
    """Processor p maps the pages of row `mask` that are resident, with the highest permission that copies elsewhere allow."""
    W, s = M.bits, M.state[0]
    mapped, writable = row(M, p, MAPPED, b), row(M, p, WRITABLE, b)
    for w in range(WORDS):
        somewhere = W[row(M, p, RESIDENT, b), w]
        elsewhere = somewhere & np.uint64(0)
        for q in range(s.processors):
            if q != p:
                elsewhere |= W[row(M, q, RESIDENT, b), w]
        twice = somewhere & elsewhere
        W[mapped, w] |= W[mask, w] & (somewhere | elsewhere)
        W[writable, w] |= W[mask, w] & (somewhere | elsewhere) & ~twice


@outlined
def throw_out(M: Memory, g: int, b: int, mask: int) -> float:
    """The pages of row `mask` of block b leave GPU g for the CPU; ns.  All are copied that have no copy there, clean or not."""
    W, s, gpu, n = M.bits, M.state[0], M.gpus[g], M.counts[g]
    going = scratch(M, GOING)
    here, cpu = row(M, g, RESIDENT, b), row(M, CPU, RESIDENT, b)
    keep(W, mask, here)
    copy(W, going, mask)
    subtract(W, going, cpu)
    if s.evict == CLEAN_DROP:
        n.dropped_clean += total(W, going)
        keep(W, going, shared(M, DIRTY, b))
        n.dropped_clean -= total(W, going)
    pages, records = total(W, going), runs(W, going)
    rest = scratch(M, REST)
    copy(W, rest, going)
    subtract(W, rest, shared(M, DIRTY, b))
    n.left_clean += total(W, rest)
    ns = records * gpu.out_start + pages * s.page_bytes * gpu.out_byte
    n.copy_out += ns
    n.left += pages
    n.left_copies += records
    forget(M, g, b, mask)
    add(W, shared(M, EVICTED, b), mask)
    subtract(W, here, mask)
    add(W, cpu, mask)
    for p in range(1, s.processors):  # who reads the GPU's memory from afar loses sight of it as well
        unmap(M, p, b, mask)
        if M.blocks[b].accessed_by & (1 << p):
            grant(M, p, b, mask)
    note(M, EVICTION, b, 0, pages)
    return float(ns + total(W, mask) * gpu.page)


@outlined
def evict(M: Memory, g: int, r: int) -> float:
    """All of root chunk r leaves GPU g; ns."""
    W, ns = M.bits, 0.0
    owner = M.roots[r].owner
    mask = scratch(M, HERE)
    unlink(M, g, r)
    if owner >= 0:
        clear(W, mask)
        fill(W, mask, 0, M.blocks[owner].pages)
        ns += throw_out(M, g, owner, mask)
        M.chunk[g, owner] = NONE
    else:
        per_root = M.state[0].per_block
        for b in range(M.state[0].blocks):
            p = M.blocks[b].partial
            if p != NONE:
                clear(W, mask)
                for i in range(M.blocks[b].pages):
                    if M.frames[p, i] // per_root == r and M.frames[p, i] >= 0:
                        fill(W, mask, i, i + 1)
                        M.frames[p, i] = NONE
                if not none(W, mask):
                    ns += throw_out(M, g, b, mask)
    M.counts[g].evictions += 1
    M.roots[r].owner = NONE
    return ns


@outlined
def root_chunk(M: Memory, g: int) -> tuple[int, float]:
    """A root chunk for the caller, out of all lists, and the ns that making room for it took; NONE if nobody may leave."""
    r = take_free(M, g)
    if r != NONE:
        return r, 0.0
    s = M.state[0]
    r = victim(M, g) if s.oversubscription else NONE
    if r == NONE:
        s.failed = NO_MEMORY
        return NONE, 0.0
    return r, evict(M, g, r)


@outlined
def populate_partial(M: Memory, g: int, b: int, mask: int) -> float:
    """Frames for the pages of row `mask`: by big pages where the block has them whole, else one by one."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    ns = 0.0
    page = next_set(W, mask, 0, PAGES)
    while page < PAGES:
        if M.frames[block.partial, page] == NONE:
            first, n = page, 1
            begin = page - (page + block.offset) % s.big
            if begin >= 0 and begin + s.big <= block.pages:
                first, n = begin, s.big
                for i in range(begin, begin + s.big):
                    if M.frames[block.partial, i] != NONE:
                        first, n = page, 1
            f = frame_of(M, g, n)
            if f == NONE:
                r, took = root_chunk(M, g)
                ns += took
                if r == NONE:
                    return float(ns)
                M.roots[r].owner = SPLIT
                f = r * s.per_block
            append(M, g, f // s.per_block, USED)
            for i in range(n):
                M.frames[block.partial, first + i] = f + i
        page = next_set(W, mask, page + 1, PAGES)
    return ns


@outlined
def populate(M: Memory, g: int, b: int, mask: int) -> float:
    """Physical memory of GPU g for the pages of row `mask` of block b; ns."""
    W, s, block, gpu = M.bits, M.state[0], M.blocks[b], M.gpus[g]
    ns = 0.0
    if not block.seen & (1 << g):
        block.seen |= 1 << g
        M.counts[g].first_touches += 1
        ns += gpu.first_touch
    if block.partial != NONE:
        ns += populate_partial(M, g, b, mask)
        zeroed = mask
    else:
        if M.chunk[g, b] != NONE:
            return ns
        r, took = root_chunk(M, g)
        ns += took
        if r == NONE:
            return float(ns)
        M.roots[r].owner = b
        M.chunk[g, b] = r
        zeroed = scratch(M, REST)
        clear(W, zeroed)
        fill(W, zeroed, 0, block.pages)
    nowhere = scratch(M, GOING)
    copy(W, nowhere, zeroed)
    for p in range(s.processors):
        subtract(W, nowhere, row(M, p, RESIDENT, b))
    n = total(W, nowhere)
    M.counts[g].zeroed += n
    return float(ns + n * s.page_bytes * gpu.zero_byte)


@outlined
def bring(M: Memory, p: int, b: int, mask: int, demanded: int, cause: int, duplicate: bool) -> float:
    """The pages of row `mask` of block b become resident at processor p; ns.

    Those in row `demanded` move for `cause`, the others ahead of need: runs of adjacent pages of one cause are one copy.
    duplicate: the copies elsewhere stay (read duplication).  Row COPIED tells afterwards which pages came from elsewhere.
    """
    W, s = M.bits, M.state[0]
    gpu, n = M.gpus[max(p, 1)], M.counts[p]
    ns = 0.0
    moving, source, copied = scratch(M, MOVING), scratch(M, FROM), scratch(M, COPIED)
    clear(W, copied)
    here = row(M, p, RESIDENT, b)
    copy(W, moving, mask)
    subtract(W, moving, here)
    if p != CPU and not none(W, moving):
        ns += populate(M, p, b, moving)
        if s.failed:
            return float(ns)
    moved = 0
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
        n.copies[cause] += more
        if p == CPU:
            start, byte = M.gpus[q].out_start, M.gpus[q].out_byte
        else:
            start, byte = gpu.in_start, gpu.in_byte
        took = (records + more) * start + pages * s.page_bytes * byte
        if p == CPU:
            M.counts[q].copy_out += took
        else:
            n.copy_in += took
        ns += took + max(records + more - 1, 0) * gpu.run
        moved += pages
    if p != CPU:
        copy(W, source, moving)
        keep(W, source, shared(M, EVICTED, b))
        n.refetched += total(W, source)
        subtract(W, shared(M, EVICTED, b), moving)
        copy(W, source, moving)
        subtract(W, source, demanded)
        add(W, shared(M, PREFETCHED, b), source)
    if not duplicate:
        for q in range(s.processors):
            if q != p:
                leave(M, q, b, mask)
    add(W, here, mask)
    if p != CPU and M.blocks[b].partial == NONE:
        append(M, p, M.chunk[p, b], USED)
    return float(ns + moved * gpu.page)


@outlined
def leave(M: Memory, q: int, b: int, mask: int) -> None:
    """The pages of row `mask` are no longer resident at q, nor mapped there."""
    W = M.bits
    theirs = row(M, q, RESIDENT, b)
    unmap(M, q, b, mask)
    if none(W, theirs):
        return
    if q != CPU:
        gone = scratch(M, FROM)
        copy(W, gone, mask)
        keep(W, gone, theirs)
        forget(M, q, b, gone)
    subtract(W, theirs, mask)
    if q != CPU and none(W, theirs) and M.blocks[b].partial == NONE and M.chunk[q, b] != NONE:
        append(M, q, M.chunk[q, b], UNUSED)
