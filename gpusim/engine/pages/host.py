"""What the program does beside kernels: the CPU touches memory, memory is prefetched, hinted about, freed."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import add, clear, copy, fill, keep, next_clear, none, subtract, total
from gpusim.engine.pages.chunks import append, free_frame
from gpusim.engine.pages.copies import begin_copies, do_not_flow, wait_for_copies
from gpusim.engine.pages.driver_tables import (
    ATS,
    CPU,
    DEMAND,
    DIRTY,
    DISCARDED,
    DONE,
    EVICTED,
    EXPLICIT,
    FAULTED,
    FREE,
    GUESS,
    LOST,
    MANAGED,
    MAPPED,
    NONE,
    RESIDENT,
    TAKEN,
    USED,
    WANTED,
    WRITABLE,
    WRITES,
    DriverState,
    row,
    scratch,
    shared,
)  # fmt: skip
from gpusim.engine.pages.events import note
from gpusim.engine.pages.mapping import grant, reaches, sees, unmap
from gpusim.engine.pages.residency import bring, leave
from gpusim.engine.pages.service import serve
from gpusim.engine.pages.system import fits
from gpusim.engine.pages.thrashing import calm_down, unpin
from gpusim.programs.managed.steps import ADVICE
from gpusim.results.page_log import READ, WRITE

READ_MOSTLY, UNSET_READ_MOSTLY, PREFERRED_LOCATION, UNSET_PREFERRED_LOCATION, ACCESSED_BY, _ = range(len(ADVICE))


@kernel
def part(M: DriverState, b: int, first: int, outer: int) -> tuple[int, int]:
    """The pages of block b within the positions [first, outer), positions being pages of all windows in a row."""
    s, block = M.state[0], M.blocks[b]
    begin = b * s.per_block + block.offset
    return min(max(first - begin, 0), block.pages), max(min(outer - begin, block.pages), 0)


@outlined
def touch_system(M: DriverState, b: int, page: int, end: int, write: bool) -> float:
    """The CPU touches pages [page, end) of system memory: the host's kernel gives what is nowhere, not the driver; ns."""
    W, new, seen = M.bits, scratch(M, FAULTED), M.ranges[M.blocks[b].range]
    clear(W, new)
    fill(W, new, page, end)
    for p in range(M.state[0].processors):
        subtract(W, new, row(M, p, RESIDENT, b))
    n = total(W, new)
    if n == 0:
        return 0.0
    M.counts[CPU].faults += n
    if write:
        seen.cpu_writes += n
    else:
        seen.cpu_reads += n
    note(M, WRITE if write else READ, DEMAND, CPU, NONE, b, new)
    took = bring(M, CPU, b, new, new, DEMAND, False)
    for p in range(M.state[0].processors):
        if p == CPU or sees(M, p, b, CPU):
            grant(M, p, b, new)
    return float(took)


@outlined
def touch_block(M: DriverState, b: int, first: int, outer: int, write: bool) -> None:
    """The CPU reads or writes the bytes of block b that lie in the pages at [first, outer), ascending, from now on."""
    s, W, n = M.state[0], M.bits, M.counts[CPU]
    gpu = M.gpus[1]
    faulted, writes = scratch(M, FAULTED), scratch(M, WRITES)
    begin_page, end = part(M, b, first, outer)
    page = begin_page
    n.touches += end - page
    work = (end - page) * s.page_bytes * gpu.cpu_byte
    n.busy += work
    s.now += work
    if M.blocks[b].kind != MANAGED:
        s.now += touch_system(M, b, page, end, write)
    plane = row(M, CPU, WRITABLE if write else MAPPED, b)
    page = next_clear(W, plane, page, end)
    while page < end:
        clear(W, faulted)
        fill(W, faulted, page, page + 1)
        clear(W, writes)
        if write:
            fill(W, writes, page, page + 1)
        n.fetched += 1
        begin = s.now
        s.now += gpu.cpu_fault
        s.now += serve(M, CPU, b, writes)
        wait_for_copies(M)
        n.service += s.now - begin
        if s.failed:
            return
        if none(W, faulted):  # throttled: asleep until it may proceed
            n.waited += max(s.wake - s.now, 0.0)
            s.now = max(s.now, s.wake)
        page = next_clear(W, plane, page, end)
    if write:  # what it reaches in a GPU's memory
        clear(W, faulted)
        fill(W, faulted, begin_page, end)
        subtract(W, faulted, row(M, CPU, RESIDENT, b))
        add(W, shared(M, DIRTY, b), faulted)


@outlined
def host_touch(M: DriverState, first: int, outer: int, write: bool) -> int:
    """The CPU reads or writes all bytes of the pages at [first, outer), ascending, with nothing beside it."""
    s = M.state[0]
    unpin(M)
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        if s.failed == DONE:
            touch_block(M, b, first, outer, write)
            do_not_flow(M, NONE)
    return int(s.failed)


@outlined
def prefetch(M: DriverState, first: int, outer: int, to: int) -> int:
    """cudaMemPrefetchAsync: block by block, without faults.  Copies overlap the driver's work on the next block."""
    s, W = M.state[0], M.bits
    to = CPU if s.unified else to
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        page, end = part(M, b, first, outer)
        mask = scratch(M, FAULTED)
        clear(W, mask)
        fill(W, mask, page, end)
        if M.blocks[b].tracked:
            calm_down(M, b)
        if to != CPU and M.blocks[b].kind == ATS and not fits(M, to, b, mask):
            continue
        s.now += M.gpus[max(to, 1)].block + bring(M, to, b, mask, mask, EXPLICIT, M.blocks[b].read_mostly != 0)
        if s.failed:
            return int(s.failed)
        for g in range(1, s.processors):
            begin_copies(M, g)
        if M.blocks[b].read_mostly:
            for q in range(s.processors):  # a copy may be read only
                subtract(W, row(M, q, WRITABLE, b), mask)
        if to != CPU:
            grant(M, to, b, mask)
        for q in range(s.processors):
            if q != to and sees(M, q, b, to):
                grant(M, q, b, mask)
    return DONE


@outlined
def migrate(M: DriverState, first: int, outer: int, to: int) -> int:
    """The same, and waiting for it."""
    s = M.state[0]
    to = CPU if s.unified else to
    begin = s.now
    if prefetch(M, first, outer, to):
        return int(s.failed)
    wait_for_copies(M)
    do_not_flow(M, NONE)
    M.counts[to].service += s.now - begin
    return DONE


@outlined
def map_accessed_by(M: DriverState, first: int, outer: int, p: int) -> None:
    """SetAccessedBy: p maps at once what it can reach where it is."""
    s, W = M.state[0], M.bits
    mask = scratch(M, FAULTED)
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        for q in range(s.processors):
            if reaches(M, p, q) and not M.blocks[b].read_mostly:
                clear(W, mask)
                fill(W, mask, 0, M.blocks[b].pages)
                keep(W, mask, row(M, q, RESIDENT, b))
                grant(M, p, b, mask)


@outlined
def unmap_remote(M: DriverState, first: int, outer: int, p: int) -> None:
    """Unmap from p what is not resident there: a new preferred location, or AccessedBy unset.

    Page tables that are the host's (ATS) stay.
    """
    s, W = M.state[0], M.bits
    mask = scratch(M, FAULTED)
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        clear(W, mask)
        fill(W, mask, 0, M.blocks[b].pages)
        subtract(W, mask, row(M, p, RESIDENT, b))
        if M.blocks[b].kind != ATS:
            unmap(M, p, b, mask)


@outlined
def store_no_more(M: DriverState, first: int, outer: int, p: int) -> None:
    """Processor p may only read the pages (uvm_policy.c, va_block_set_read_duplication_locked)."""
    for b in range(first // M.state[0].per_block, (outer - 1) // M.state[0].per_block + 1):
        if M.blocks[b].kind != ATS:
            clear(M.bits, row(M, p, WRITABLE, b))


@outlined
def advise(M: DriverState, first: int, outer: int, hint: int, processor: int) -> None:
    """cudaMemAdvise of an allocation; hint: its number among `steps.ADVICE`."""
    s = M.state[0]
    a, z = first // s.per_block, (outer - 1) // s.per_block + 1
    if hint == READ_MOSTLY:
        for b in range(a, z):
            M.blocks[b].read_mostly = M.blocks[b].kind != ATS
        for p in range(s.processors):
            unmap_remote(M, first, outer, p)
            store_no_more(M, first, outer, p)
    elif hint == UNSET_READ_MOSTLY:
        for b in range(a, z):
            M.blocks[b].read_mostly = 0
        collapse(M, first, outer)
        for p in range(s.processors):
            if M.blocks[a].accessed_by >> p & 1:
                map_accessed_by(M, first, outer, p)
    elif hint in (PREFERRED_LOCATION, UNSET_PREFERRED_LOCATION):
        for b in range(a, z):
            M.blocks[b].preferred = processor if hint == PREFERRED_LOCATION else NONE
        if hint == PREFERRED_LOCATION:
            unmap_remote(M, first, outer, processor)
    elif hint == ACCESSED_BY:
        for b in range(a, z):
            M.blocks[b].accessed_by |= 1 << processor
        map_accessed_by(M, first, outer, processor)
    else:
        for b in range(a, z):
            M.blocks[b].accessed_by &= ~(1 << processor)
        unmap_remote(M, first, outer, processor)


@outlined
def collapse(M: DriverState, first: int, outer: int) -> None:
    """Read duplication ends: one copy stays, at the preferred location if it has one, else on the first GPU that has one."""
    s, W = M.state[0], M.bits
    mask, other = scratch(M, FAULTED), scratch(M, GUESS)
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        for k in range(-1, s.processors):
            q = M.blocks[b].preferred if k < 0 else (k + 1) % s.processors
            if q != NONE:
                copy(W, mask, row(M, q, RESIDENT, b))
                for p in range(s.processors):
                    if p != q:
                        copy(W, other, mask)
                        leave(M, p, b, other, EXPLICIT)
                grant(M, q, b, mask)


@outlined
def discard(M: DriverState, first: int, outer: int) -> None:
    """cuMemDiscardBatchAsync: what the pages hold is lost.

    They stay where they are and are mapped nowhere: a later access faults, and finds them without a copy.  A root chunk with
    nothing else leaves before all that are used.
    """
    s, W = M.state[0], M.bits
    mask = scratch(M, FAULTED)
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        page, end = part(M, b, first, outer)
        clear(W, mask)
        fill(W, mask, page, end)
        lost = shared(M, LOST, b)
        for p in range(s.processors):
            unmap(M, p, b, mask)
        add(W, lost, mask)
        M.blocks[b].lost = 1
        for p in range(1, s.processors):
            copy(W, mask, row(M, p, RESIDENT, b))
            subtract(W, mask, lost)
            if none(W, mask) and M.chunk[p, b] != NONE and M.roots[M.chunk[p, b]].list == USED:
                append(M, p, M.chunk[p, b], DISCARDED)
        s.now += M.gpus[1].block


@outlined
def release(M: DriverState, first: int, outer: int) -> None:
    """The blocks of an allocation are freed: nothing is copied."""
    s, W = M.state[0], M.bits
    mask = scratch(M, FAULTED)
    for b in range(first // s.per_block, (outer - 1) // s.per_block + 1):
        if M.blocks[b].tracked:
            calm_down(M, b)
        clear(W, mask)
        fill(W, mask, 0, M.blocks[b].pages)
        for plane in (EVICTED, TAKEN, LOST, WANTED):
            clear(W, shared(M, plane, b))
        M.blocks[b].lost = 0
        for p in range(s.processors):
            leave(M, p, b, mask, NONE)
            if p != CPU and M.chunk[p, b] != NONE:
                M.roots[M.chunk[p, b]].owner = NONE
                append(M, p, M.chunk[p, b], FREE)
                M.chunk[p, b] = NONE
            if p != CPU and M.blocks[b].partial != NONE:
                for page in range(M.blocks[b].pages):
                    free_frame(M, p, b, page)
