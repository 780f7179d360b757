"""Room on a full GPU: a root chunk is evicted, with all that lies in it."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import add, clear, copy, fill, keep, none, put, runs, subtract, total
from gpusim.engine.pages.chunks import let_go, take_free, unlink
from gpusim.engine.pages.copies import adds, chunks_of, host_chunks, push
from gpusim.engine.pages.driver_tables import (
    CPU,
    DIRTY,
    EVICTED,
    EVICTION,
    FROM,
    GOING,
    HERE,
    LOST,
    NO_MEMORY,
    NONE,
    PREFETCHED,
    RESIDENT,
    REST,
    DriverState,
    row,
    scratch,
    shared,
)  # fmt: skip
from gpusim.engine.pages.events import note
from gpusim.engine.pages.mapping import unmap
from gpusim.engine.pages.remapping import defer
from gpusim.engine.pages.victims import victim
from gpusim.engine.state import LEAVES
from gpusim.results.page_log import COPY, GONE, KEEP


@kernel
def forget(M: DriverState, g: int, b: int, mask: int) -> None:
    """The pages of row `mask` leave GPU g: what was prefetched and never touched was in vain.

    What the host has not seen yet is remembered while another GPU has a copy.
    """
    W = M.bits
    ahead, dirty = shared(M, PREFETCHED, b), shared(M, DIRTY, b)
    rest = scratch(M, REST)
    copy(W, rest, mask)
    keep(W, rest, ahead)
    wasted = total(W, rest)
    M.counts[g].wasted += wasted
    M.ranges[M.blocks[b].range].wasted += wasted
    subtract(W, ahead, mask)
    copy(W, rest, mask)
    for q in range(1, M.state[0].processors):
        if q != g:
            subtract(W, rest, row(M, q, RESIDENT, b))
    subtract(W, dirty, rest)


@outlined
def drop_lost(M: DriverState, g: int, b: int, mask: int) -> None:
    """Discarded pages leave GPU g without a copy, and row `mask`: they are nowhere."""
    W, lost, gone = M.bits, shared(M, LOST, b), scratch(M, FROM)
    copy(W, gone, mask)
    keep(W, gone, lost)
    if none(W, gone):
        return
    note(M, GONE, NONE, g, NONE, b, gone)
    forget(M, g, b, gone)
    M.counts[g].dropped_lost += total(W, gone)
    subtract(W, row(M, g, RESIDENT, b), gone)
    subtract(W, mask, gone)
    subtract(W, lost, gone)
    M.blocks[b].lost = not none(W, lost)


@outlined
def throw_out(M: DriverState, g: int, b: int, mask: int) -> float:
    """The pages of row `mask` of block b leave GPU g for the CPU; ns.  All are copied that have no copy there, clean or not.

    It is a service of that block as any other.  The copy waits until the GPU's page tables and TLBs have lost them, and runs
    while the driver goes on.
    """
    W, s, gpu, n = M.bits, M.state[0], M.gpus[g], M.counts[g]
    seen = M.ranges[M.blocks[b].range]
    going = scratch(M, GOING)
    here, cpu = row(M, g, RESIDENT, b), row(M, CPU, RESIDENT, b)
    keep(W, mask, here)
    if M.blocks[b].lost:
        drop_lost(M, g, b, mask)
    copy(W, going, mask)
    subtract(W, going, cpu)
    clean = scratch(M, REST)
    copy(W, clean, going)
    subtract(W, clean, shared(M, DIRTY, b))
    if s.drops_clean and not none(W, clean):
        n.dropped_clean += total(W, clean)
        subtract(W, going, clean)
        note(M, KEEP, EVICTION, CPU, g, b, clean)
        clear(W, clean)
    pages, records = total(W, going), runs(W, going)
    ns = records * gpu.out_start + pages * s.page_bytes * gpu.out_byte
    n.left += pages
    n.left_clean += total(W, clean)
    n.left_copies += records
    n.copy_out += ns
    seen.went[EVICTION] += pages
    seen.left_clean += total(W, clean)
    seen.copy_out += ns
    if pages > 0:
        note(M, COPY, EVICTION, CPU, g, b, going)
    forget(M, g, b, mask)
    add(W, shared(M, EVICTED, b), mask)
    subtract(W, here, mask)
    add(W, cpu, mask)
    note(M, GONE, EVICTION, g, NONE, b, mask)
    afar = scratch(M, REST)
    for p in range(1, s.processors):  # remote mappings of the GPU's memory end as well
        copy(W, afar, mask)
        subtract(W, afar, row(M, p, RESIDENT, b))
        unmap(M, p, b, afar)
    adds(gpu, LEAVES, pages * s.page_bytes, gpu.out_byte)
    defer(M, g, b)
    host_chunks(M, b, pages)
    took = gpu.block + total(W, mask) * gpu.page_out + chunks_of(M, b, going) * gpu.chunk
    leaves = gpu.invalidate * (not none(W, mask)) + min(records, 1) * gpu.out_start + pages * s.page_bytes * gpu.out_byte
    push(gpu, leaves, s.now + took)
    return float(took)


@outlined
def evict(M: DriverState, g: int, r: int) -> float:
    """All of root chunk r leaves GPU g; ns."""
    W, ns = M.bits, 0.0
    owner = M.roots[r].owner
    mask = scratch(M, HERE)
    unlink(M, g, r)
    if owner >= 0:
        M.blocks[owner].departures += 1
        clear(W, mask)
        fill(W, mask, 0, M.blocks[owner].pages)
        ns += throw_out(M, g, owner, mask)
        M.chunk[g, owner] = NONE
    else:
        per_root = M.state[0].per_block
        for frame in range(r * per_root, (r + 1) * per_root):
            b = M.holder[frame] - 1
            if b >= 0:
                clear(W, mask)
                for i in range(M.blocks[b].pages):
                    if M.frames[g - 1, M.blocks[b].partial, i] // per_root == r:
                        put(W, mask, i)
                        let_go(M, g, b, i)
                ns += throw_out(M, g, b, mask)
    M.counts[g].evictions += 1
    M.roots[r].owner = NONE
    return ns


@kernel
def anew(M: DriverState, g: int) -> float:
    """What a service takes beside when it finds no memory: it asks again, may now evict, and starts from the beginning; ns.

    uvm_va_block.c: block_alloc_gpu_chunk returns NV_ERR_MORE_PROCESSING_REQUIRED; uvm_gpu_replayable_faults.c:
    UVM_VA_BLOCK_RETRY_LOCKED serves the block again.
    """
    return float(M.gpus[g].block + M.gpus[g].first_touch)


@outlined
def root_chunk(M: DriverState, g: int) -> tuple[int, float]:
    """A root chunk for the caller, out of all lists, and the ns that making room for it took; NONE if none may be evicted."""
    r = take_free(M, g)
    if r != NONE:
        return r, 0.0
    s = M.state[0]
    r = victim(M, g) if s.oversubscription else NONE
    if r == NONE:
        s.failed = NO_MEMORY
        return NONE, 0.0
    return r, evict(M, g, r) + anew(M, g)
