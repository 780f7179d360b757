"""The GPU's side of faults: warps issue accesses in turn, misses wait in the uTLBs, and those fill the fault buffer.

    thread blocks ─▶ slots of warps ─▶ a queue of accesses per uTLB ─┬─ mapped: done
                                                                    └─ not: outstanding, at most 56 pages a uTLB

A uTLB serves its accesses in order, and stands still when its outstanding pages are full: a store that a warp issues after its
loads queues behind the loads of all other warps.  A warp goes on page by page: what was served once need not be there at the
end.  What two accesses of one uTLB miss is one fault.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusim.uvm.bits import bit
from gpusim.uvm.compiled import kernel, outlined
from gpusim.uvm.pattern import LANES, SECTOR, segment
from gpusim.uvm.tables import DIRTY, MAPPED, NONE, PREFETCHED, RESIDENT, WRITABLE, Memory, f8, i8, record, row, shared

SLOT = record(
    [("bx", i8), ("by", i8), ("warp", i8), ("step", i8), ("access", i8), ("lane", i8), ("page", i8), ("pending", i8),
     ("sleeps", i8)]
)
UTLB = record([("head", i8), ("queued", i8), ("out", i8), ("sent", i8), ("waiting", i8)])
FRONT = record(
    [("processor", i8), ("utlbs", i8), ("limit", i8), ("wait_limit", i8),
     ("slots", i8),  # of a uTLB, that this kernel uses
     ("warps", i8), ("ctas", i8), ("grid_x", i8), ("next_cta", i8), ("threads", i8), ("steps", i8), ("accesses", i8),
     ("issued", i8), ("remote_ns", f8), ("outstanding", i8), ("turn", i8),
     ("buffered", i8), ("get", i8)]
)  # fmt: skip


class Front(NamedTuple):
    """The warps of a running kernel, and the fault buffer."""

    state: Any       # FRONT[1]
    slots: Any       # SLOT[U, slots]
    utlbs: Any       # UTLB[U]
    queue: Any       # int64[U, slots] ring of slots that have an access to issue
    left: Any        # int64[U, slots] warps that are left of the thread block whose first warp has this slot
    out_page: Any    # int64[U, limit] outstanding pages
    out_write: Any   # int64[U, limit]
    fate: Any        # int64[limit] what becomes of the outstanding pages of a uTLB in a replay
    wait_for: Any    # int64[U, wait_limit] accesses that wait for one of them: which, and its page
    wait_page: Any   # int64[U, wait_limit]
    wait_slot: Any   # int64[U, wait_limit]; negative (~slot) for a write
    wait_bytes: Any  # int64[U, wait_limit]
    buffer: Any      # int64[entries] ring: 2 * page + write
    batch: Any       # int64[entries]


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
        push(F, u, slot + w)
    F.left[u, slot] = s.warps


@kernel
def used(M: Memory, F: Front, b: int, page: int, write: bool, n_bytes: int) -> None:
    """An access went through."""
    W, s, p = M.bits, M.state[0], F.state[0].processor
    n = M.counts[p]
    n.touches += 1
    n.touched_bytes += n_bytes
    w, m = page >> 6, bit(page)
    if W[row(M, p, RESIDENT, b), w] & m:
        W[shared(M, PREFETCHED, b), w] &= ~m
        if write:
            W[shared(M, DIRTY, b), w] |= m
        if s.evict:
            s.clock += 1
            M.blocks[b].last_use = s.clock
            M.blocks[b].uses += 1
    else:
        n.remote_bytes += n_bytes
        M.ranges[M.blocks[b].range].remote_bytes += n_bytes
        gpu = M.gpus[p]
        F.state[0].remote_ns += n_bytes * gpu.remote_byte + ((n_bytes + 127) >> 7) * gpu.remote_request


@kernel
def mapped(M: Memory, F: Front, page: int, write: bool) -> bool:
    s = M.state[0]
    b = page >> s.block_shift
    i = (page & (s.per_block - 1)) - M.blocks[b].offset
    plane = WRITABLE if write else MAPPED
    return bool(M.bits[row(M, F.state[0].processor, plane, b), i >> 6] & bit(i))


@outlined
def miss(F: Front, u: int, slot: int, page: int, write: bool, n_bytes: int) -> bool:
    """The access waits for the page; False if the uTLB can take no more."""
    s, t = F.state[0], F.utlbs[u]
    if t.waiting >= s.wait_limit:
        return False
    k = t.out - 1
    while k >= 0 and F.out_page[u, k] != page:
        k -= 1
    if k < 0:
        if t.out >= s.limit:
            return False
        k = t.out
        F.out_page[u, k], F.out_write[u, k] = page, 0
        t.out += 1
        s.outstanding += 1
    if write:
        F.out_write[u, k] = 1
    F.wait_for[u, t.waiting], F.wait_page[u, t.waiting], F.wait_bytes[u, t.waiting] = k, page, n_bytes
    F.wait_slot[u, t.waiting] = ~slot if write else slot
    t.waiting += 1
    F.slots[u, slot].pending += 1
    return True


@kernel
def issue(M: Memory, F: Front, A: Any, shape: Any, tables: Any, u: int, slot: int) -> bool:
    """The access of the warp in this slot, from where it stopped; False if it has to stop before its end."""
    s, x = M.state[0], F.slots[u, slot]
    a = A[x.access]
    write = a.write != 0
    while x.lane < LANES:
        thread = x.warp * LANES + x.lane
        if thread >= F.state[0].threads:
            break
        room = min(LANES - x.lane, F.state[0].threads - thread)
        first, last, lanes = segment(a, shape, tables, x.bx, x.by, thread, x.step, room, s.page_bytes)
        page = max(first >> s.page_shift, x.page)
        while page <= last >> s.page_shift:
            begin = max(first, page << s.page_shift)
            n_bytes = max(min(last + 1, (page + 1) << s.page_shift) - begin, SECTOR)
            b = page >> s.block_shift
            i = (page & (s.per_block - 1)) - M.blocks[b].offset
            plane = WRITABLE if write else MAPPED
            if M.bits[row(M, F.state[0].processor, plane, b), i >> 6] & bit(i):
                used(M, F, b, i, write, n_bytes)
            elif not miss(F, u, slot, page, write, n_bytes):
                x.page = page
                return False
            page += 1
        x.page = NONE
        x.lane += lanes
    return True


@kernel
def next_access(F: Front, A: Any, u: int, slot: int) -> None:
    """The access of this slot has been issued: the next one queues, or the warp sleeps until what it waits for is there."""
    s, x = F.state[0], F.slots[u, slot]
    x.lane, x.page = 0, NONE
    x.access += 1
    if x.access == s.accesses:
        x.access = 0
        x.step += 1
    if x.pending and (x.access == 0 or A[x.access].waits):
        x.sleeps = 1
    elif x.step < s.steps:
        push(F, u, slot)
    else:
        retire(F, u, slot)


@kernel
def retire(F: Front, u: int, slot: int) -> None:
    """The warp has ended; with the last of its thread block the next one begins."""
    s = F.state[0]
    first = slot - F.slots[u, slot].warp
    F.left[u, first] -= 1
    if F.left[u, first] == 0 and s.next_cta < s.ctas:
        launch(F, u, first, s.next_cta)
        s.next_cta += 1


@kernel
def advance(M: Memory, F: Front, A: Any, shape: Any, tables: Any) -> None:
    """All uTLBs in turn, one access each, until none can issue."""
    s = F.state[0]
    moved = True
    while moved:
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
                    next_access(F, A, u, slot)
                    moved = True


@kernel
def send(F: Front, room: int) -> None:
    """Outstanding pages go to the fault buffer, one of each uTLB in turn, while there is room."""
    s = F.state[0]
    more = True
    while more:
        more = False
        begin = s.turn
        for v in range(s.utlbs):
            u = (v + begin) % s.utlbs
            t = F.utlbs[u]
            if t.sent < t.out:
                if room == 0:
                    s.turn = u
                    return
                F.buffer[(s.get + s.buffered) % len(F.buffer)] = 2 * F.out_page[u, t.sent] + F.out_write[u, t.sent]
                s.buffered += 1
                room -= 1
                t.sent += 1
                more = True


@kernel
def replay(M: Memory, F: Front, A: Any) -> None:
    """All outstanding accesses are tried again: those that go through end, the others stay, and will fault again."""
    s = F.state[0]
    for u in range(s.utlbs):
        t = F.utlbs[u]
        t.sent = 0
        if t.out == 0:
            continue
        kept, news = 0, False
        for k in range(t.out):
            page, write = F.out_page[u, k], F.out_write[u, k] != 0
            readable = mapped(M, F, page, False)
            news = news or readable
            if readable and (not write or mapped(M, F, page, True)):
                F.fate[k] = NONE
            else:
                F.fate[k] = 2 * kept + readable
                F.out_page[u, kept], F.out_write[u, kept] = page, F.out_write[u, k]
                kept += 1
        if news:
            s.outstanding -= t.out - kept
            t.out = kept
            wake(M, F, u)


@kernel
def wake(M: Memory, F: Front, u: int) -> None:
    """Accesses of a uTLB go through where the fate of their page allows it; warps whose last one did go on."""
    s, t = F.state[0], F.utlbs[u]
    kept = 0
    for k in range(t.waiting):
        slot, fate = F.wait_slot[u, k], F.fate[F.wait_for[u, k]]
        write = slot < 0
        page, n_bytes = F.wait_page[u, k], F.wait_bytes[u, k]
        if fate == NONE or (fate & 1 and not write):
            b = page >> M.state[0].block_shift
            slot = ~slot if write else slot
            used(M, F, b, (page & (M.state[0].per_block - 1)) - M.blocks[b].offset, write, n_bytes)
            x = F.slots[u, slot]
            x.pending -= 1
            if x.pending == 0 and x.sleeps:
                x.sleeps = 0
                if x.step < s.steps:
                    push(F, u, slot)
                else:
                    retire(F, u, slot)
        else:
            F.wait_for[u, kept], F.wait_page[u, kept] = fate >> 1, page
            F.wait_slot[u, kept], F.wait_bytes[u, kept] = slot, n_bytes
            kept += 1
    t.waiting = kept
