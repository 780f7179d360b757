"""The GPU's side of faults: warps issue accesses in turn, misses wait in the uTLBs, and those fill the fault buffer.

    thread blocks ─▶ slots of warps ─▶ a queue of accesses per uTLB ─┬─ mapped: done
                                                                    └─ not: outstanding, at most 56 of a uTLB

A uTLB serves its accesses in order, and stands still when as many pages are outstanding as it can keep, 56 in 14 entries of
16 KiB: a store that a warp issues after its loads queues behind the loads of all other warps.  A warp goes on page by page:
what was served once need not be there at the end.  Each access that waits is reported, whatever else waits for its page, in the
order of `place`: that in which they missed, the nth miss of each uTLB since the launch or the replay before the next of any.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from gpusim.base.compiled import by_pointer, kernel, outlined
from gpusim.base.tables import f8, i8, record, signature
from gpusim.engine.pages.bits import bit
from gpusim.engine.pages.counters import count
from gpusim.engine.pages.driver_tables import CPU, DIRTY, MAPPED, NONE, PREFETCHED, RESIDENT, WRITABLE, DriverState, row, shared
from gpusim.engine.pages.follow import follow
from gpusim.engine.pages.sweep import sweep
from gpusim.programs.managed.pattern import LANES, LINE, SECTOR, requests, segment

SCHEDULERS = 4  # of an SM
SLOT = record(
    [("bx", i8), ("by", i8), ("warp", i8), ("step", i8), ("access", i8), ("lane", i8), ("page", i8), ("pending", i8),
     ("sleeps", i8)]
)
ENTRY = 14  # a uTLB keeps what waits in entries of 1 << ENTRY bytes
NO_PLACE = 1 << 62
WARPS = 8   # that may wait for each page
UTLB = record([("head", i8), ("queued", i8), ("out", i8), ("pages", i8), ("entries", i8), ("sent", i8),
               ("place", i8), ("next", i8)])  # of its last miss, and of the first that is not reported yet
# An access that waits: slot of its warp, does it store, what it touches of the page, was it the first of its page, its entry;
# its place in the order of reports.
MISS = record([("slot", i8), ("write", i8), ("sectors", i8), ("lines", i8), ("page", i8), ("entry", i8), ("place", i8)])
FRONT = record(
    [("processor", i8), ("utlbs", i8), ("limit", i8), ("entries", i8), ("entry_shift", i8),
     ("slots", i8),  # of a uTLB, that this kernel uses
     ("warps", i8), ("ctas", i8), ("grid_x", i8), ("next_cta", i8), ("threads", i8), ("steps", i8), ("accesses", i8),
     ("sweeps", i8),  # thread blocks that find all their pages run through at once (sweep.py)
     ("issued", i8), ("ns", f8),
     ("remote_ns", f8), ("stored_ns", f8),  # of remote accesses, and of bytes that they store, which go the other way
     ("read", f8), ("written", f8), ("peer", f8),  # remote bytes
     ("outstanding", i8), ("gpcs", i8), ("gpc", i8),  # ... that reports next
     ("last", i8), ("before", i8),  # places: the last that there is, the last of the launch or the replay
     ("stride", i8),
     ("buffered", i8), ("get", i8)]
)  # fmt: skip


@by_pointer
class Front(NamedTuple):
    """The warps of a running kernel, and the fault buffer; U uTLBs."""

    state: Annotated[Any, FRONT, 1]
    slots: Annotated[Any, SLOT, "U", "slots"]
    utlbs: Annotated[Any, UTLB, "U"]
    queue: Annotated[Any, i8, "U", "slots"]  # ring of slots that have an access to issue
    left: Annotated[Any, i8, "U", "slots"]   # warps that are left of the thread block whose first warp has this slot
    out: Annotated[Any, i8, "U", "waiting"]  # pages that accesses wait for, in the order in which they missed ...
    misses: Annotated[Any, MISS, "U", "waiting"]  # ... and these accesses
    buffer: Annotated[Any, i8, "entries"]    # ring: 2 * page + write
    batch: Annotated[Any, i8, "entries"]
    spare: Annotated[Any, i8, "entries"]     # for sorting, as is ...
    digits: Annotated[Any, i8, 256]


FRONT_END = signature(Front)


@kernel
def push(F: Front, u: int, slot: int) -> None:
    t = F.utlbs[u]
    k = t.head + t.queued
    if k >= F.queue.shape[1]:
        k -= F.queue.shape[1]
    F.queue[u, k] = slot
    t.queued += 1


@kernel
def launch(F: Front, u: int, slot: int, cta: int) -> None:
    """Thread block `cta` begins on uTLB u, in the slots from `slot` on."""
    s = F.state[0]
    bx, by = cta % s.grid_x, cta // s.grid_x
    for w in range(s.warps):
        x = F.slots[u, slot + w]
        x.bx, x.by, x.warp, x.step, x.access, x.lane, x.page, x.pending, x.sleeps = bx, by, w, 0, 0, 0, NONE, 0, 0
    for w in range(s.warps):  # an SM's schedulers issue at once: which of their warps is first differs from SM to SM
        at = w - w % SCHEDULERS
        push(F, u, slot + at + (w - at + u) % min(SCHEDULERS, s.warps - at))
    F.left[u, slot] = s.warps


@kernel
def link_ns(f: Any) -> float:
    """What the accesses over the link take that no time has been spent for yet."""
    return float(max(f.remote_ns, f.stored_ns))


@outlined
def from_afar(M: DriverState, F: Front, b: int, page: int, write: bool, sectors: int, lines: int) -> None:
    """An access went over the link, in a request for each line; of stores those cost more that do not fill theirs.

    What is stored goes the other way than what is read, and beside it.
    """
    f, p = F.state[0], F.state[0].processor
    gpu, n_bytes = M.gpus[p], sectors * SECTOR
    M.counts[p].remote_bytes += n_bytes
    M.ranges[M.blocks[b].range].remote_bytes += n_bytes
    if gpu.peer_byte > 0.0 and not M.bits[row(M, CPU, RESIDENT, b), page >> 6] & bit(page):
        f.remote_ns += n_bytes * gpu.peer_byte
        f.peer += n_bytes
    elif write:
        f.stored_ns += n_bytes * gpu.store_byte
        f.written += n_bytes
        if sectors < lines * (LINE // SECTOR):
            f.remote_ns += lines * gpu.remote_store
    else:
        f.remote_ns += n_bytes * gpu.remote_byte + lines * gpu.remote_request
        f.read += n_bytes
    if M.state[0].counters:
        count(M, p, b, page, lines, M.state[0].now + max(f.issued * f.ns, link_ns(f)))


@kernel
def used(M: DriverState, F: Front, b: int, page: int, write: bool, sectors: int, lines: int) -> None:
    """An access went through."""
    W, s, p = M.bits, M.state[0], F.state[0].processor
    n = M.counts[p]
    n.touches += 1
    n.touched_bytes += sectors * SECTOR
    w, m = page >> 6, bit(page)
    if W[row(M, p, RESIDENT, b), w] & m or s.unified:
        W[shared(M, PREFETCHED, b), w] &= ~m
        if write:
            W[shared(M, DIRTY, b), w] |= m
    else:
        from_afar(M, F, b, page, write, sectors, lines)
        if write and not W[row(M, CPU, RESIDENT, b), w] & m:  # in another GPU's memory
            W[shared(M, DIRTY, b), w] |= m
    if s.watches:
        follow(M, p, b, page)


@kernel
def mapped(M: DriverState, F: Front, page: int, write: bool) -> bool:
    s = M.state[0]
    b = page >> s.block_shift
    i = (page & (s.per_block - 1)) - M.blocks[b].offset
    plane = WRITABLE if write else MAPPED
    return bool(M.bits[row(M, F.state[0].processor, plane, b), i >> 6] & bit(i))


@kernel
def miss(F: Front, u: int, slot: int, page: int, write: bool, sectors: int, lines: int) -> bool:
    """The access waits for the page; False if the uTLB can take no more."""
    s, t = F.state[0], F.utlbs[u]
    if t.out >= F.out.shape[1]:
        return False
    known, near, entry = 0, 0, page >> s.entry_shift
    for j in range(t.out):  # to the end: a loop that may stop is not vectorized
        known = max(known, 1 if F.out[u, j] == page else 0)
        near = max(near, 1 if F.out[u, j] >> s.entry_shift == entry else 0)
    if t.pages + 1 - known > s.limit or t.entries + 1 - near > s.entries:
        return False
    F.out[u, t.out] = page
    x = F.misses[u, t.out]
    x.slot, x.write, x.sectors, x.lines, x.page, x.entry = slot, write, sectors, lines, 1 - known, 1 - near
    t.place = x.place = max(t.place, s.before) + 1
    s.last = max(s.last, t.place)
    if t.sent == t.out:
        t.next = t.place
    t.pages += x.page
    t.entries += x.entry
    t.out += 1
    s.outstanding += 1
    F.slots[u, slot].pending += 1
    return True


@kernel
def issue(M: DriverState, F: Front, A: Any, shape: Any, tables: Any, u: int, slot: int) -> bool:
    """The access of the warp in this slot, from where it stopped; False if it has to stop before its end."""
    s, x = M.state[0], F.slots[u, slot]
    a = A[x.access]
    write = a.write != 0
    while x.lane < LANES:
        thread = x.warp * LANES + x.lane
        if thread >= F.state[0].threads:
            break
        room = min(LANES - x.lane, F.state[0].threads - thread)
        first, last, lanes, pitch = segment(a, shape, tables, x.bx, x.by, thread, x.step, room, s.page_bytes)
        page = max(first >> s.page_shift, x.page)
        while page <= last >> s.page_shift:
            begin = page << s.page_shift
            sectors, lines = requests(first, pitch, a.bytes, max(first, begin), min(last, begin + s.page_bytes - 1))
            b = page >> s.block_shift
            i = (page & (s.per_block - 1)) - M.blocks[b].offset
            plane = WRITABLE if write else MAPPED
            if M.bits[row(M, F.state[0].processor, plane, b), i >> 6] & bit(i):
                used(M, F, b, i, write, sectors, lines)
            elif not miss(F, u, slot, page, write, sectors, lines):
                x.page = page
                return False
            page += 1
        x.page = NONE
        x.lane += lanes
    return True


@kernel
def next_access(M: DriverState, F: Front, A: Any, u: int, slot: int) -> None:
    """The access of this slot has been issued: the next one queues, or the warp sleeps until what it waits for is there."""
    s, x = F.state[0], F.slots[u, slot]
    x.lane, x.page = 0, NONE
    x.access += 1
    if x.access == s.accesses:
        x.access = 0
        x.step += 1
    if x.pending and (x.access == 0 or A[x.access].waits):
        x.sleeps = 1
    elif x.access > 0:  # nothing that it waits for: the scheduler stays with this warp
        t = F.utlbs[u]
        t.head = t.head - 1 if t.head > 0 else F.queue.shape[1] - 1
        F.queue[u, t.head] = slot
        t.queued += 1
    elif x.step < s.steps:
        push(F, u, slot)
    else:
        retire(M, F, A, u, slot)


@kernel
def retire(M: DriverState, F: Front, A: Any, u: int, slot: int) -> None:
    """The warp has ended; with the last of its thread block the next one begins."""
    first = slot - F.slots[u, slot].warp
    F.left[u, first] -= 1
    if F.left[u, first] == 0:
        next_block(M, F, A, u, first)


@kernel
def next_block(M: DriverState, F: Front, A: Any, u: int, slot: int) -> None:
    """The next thread block that has something to wait for begins in these slots."""
    s = F.state[0]
    if s.sweeps:
        sweep(M, F, A)
    if s.next_cta < s.ctas:
        launch(F, u, slot, s.next_cta)
        s.next_cta += 1


@kernel
def advance(M: DriverState, F: Front, A: Any, shape: Any, tables: Any) -> None:
    """All uTLBs in turn, one access each, until none can issue, the driver has heard of an access counter, or warps pause."""
    s, m = F.state[0], M.state[0]
    moved = True
    while moved and m.now + max(s.issued * s.ns, link_ns(s)) < (min(m.notice_due, m.pause) if m.notices else m.pause):
        moved = False
        for u in range(s.utlbs):
            t = F.utlbs[u]
            if t.queued:
                slot = F.queue[u, t.head]
                if issue(M, F, A, shape, tables, u, slot):
                    t.head += 1
                    if t.head == F.queue.shape[1]:
                        t.head = 0
                    t.queued -= 1
                    s.issued += 1
                    next_access(M, F, A, u, slot)
                    moved = True
