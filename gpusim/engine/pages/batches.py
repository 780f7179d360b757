"""The driver's side of a running kernel: fault batches, one after the other, until all warps have ended."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.engine.pages.background import work_ahead
from gpusim.engine.pages.bits import clear, none, put
from gpusim.engine.pages.copies import begin_copies, wait_for_copies
from gpusim.engine.pages.counters import attend
from gpusim.engine.pages.driver_tables import DONE, FAULTED, WRITES, DriverState, scratch
from gpusim.engine.pages.events import note_batch, note_end
from gpusim.engine.pages.fault_replay import replay, reported, send
from gpusim.engine.pages.frontend import Front, advance, mapped, next_block
from gpusim.engine.pages.prefetchers import launched
from gpusim.engine.pages.remapping import map_evicted
from gpusim.engine.pages.service import serve
from gpusim.engine.pages.thrashing import unpin

PER_BLOCK, PER_BATCH, PER_BATCH_FLUSH, WHEN_EMPTY = range(4)  # uvm_perf_fault_replay_policy


@outlined
def sort(F: Front, n: int) -> None:
    """The first n entries of the batch, by digits of eight bits of what is above the least of them."""
    keys, spare, digits = F.batch, F.spare, F.digits
    least, most = keys[0], keys[0]
    for i in range(n):
        least, most = min(least, keys[i]), max(most, keys[i])
    shift = 0
    while (most - least) >> shift > 0:
        for d in range(256):
            digits[d] = 0
        for i in range(n):
            digits[(keys[i] - least) >> shift & 255] += 1
        at = 0
        for d in range(256):
            at, digits[d] = at + digits[d], at
        for i in range(n):
            d = (keys[i] - least) >> shift & 255
            spare[digits[d]] = keys[i]
            digits[d] += 1
        for i in range(n):
            keys[i] = spare[i]
        shift += 8


@kernel
def fetch(M: DriverState, F: Front) -> int:
    """A batch out of the fault buffer, sorted, equal pages merged: how many are left.  Of equal ones a write comes first."""
    s, f, n = M.state[0], F.state[0], M.counts[F.state[0].processor]
    fetched = min(f.buffered, s.batch_count)
    for k in range(fetched):
        F.batch[k] = F.buffer[f.get] ^ 1
        f.get = f.get + 1 if f.get + 1 < len(F.buffer) else 0
    f.buffered -= fetched
    n.batches += 1
    n.fetched += fetched
    n.full_batches += fetched == s.batch_count
    sort(F, fetched)
    kept = 0
    for k in range(fetched):
        if kept == 0 or F.batch[k] >> 1 != F.batch[kept - 1] >> 1:
            F.batch[kept] = F.batch[k]
            kept += 1
    n.duplicates += fetched - kept
    M.sizes[f.processor, fetched] += 1
    note_batch(M, f.processor, fetched)
    return kept


@kernel
def collect(M: DriverState, F: Front, k: int, n: int) -> int:
    """Faults of one block, from the k-th of the batch on: into rows FAULTED and WRITES.  Where the next block's begin."""
    s, W = M.state[0], M.bits
    faulted, writes = scratch(M, FAULTED), scratch(M, WRITES)
    clear(W, faulted)
    clear(W, writes)
    b = (F.batch[k] >> 1) >> s.block_shift
    while k < n and (F.batch[k] >> 1) >> s.block_shift == b:
        page, write = F.batch[k] >> 1, not F.batch[k] & 1
        if mapped(M, F, page, write):
            M.counts[F.state[0].processor].satisfied += 1
            M.blocks[b].served = M.counts[F.state[0].processor].replays + 1  # the replay lets it through
        else:
            i = (page & (s.per_block - 1)) - M.blocks[b].offset
            put(W, faulted, i)
            if write:
                put(W, writes, i)
        k += 1
    return k


@kernel
def spend(M: DriverState, F: Front) -> None:
    """Time for what the warps have issued and for their remote accesses; both go on at once."""
    f, n = F.state[0], M.counts[F.state[0].processor]
    work = f.issued * f.ns
    n.busy += work
    n.remote += f.remote_ns
    n.lagged += max(f.remote_ns - work, 0.0)
    M.state[0].now += max(work, f.remote_ns)
    work_ahead(M, f.processor, work - f.remote_ns)
    f.issued, f.remote_ns = 0, 0.0


@outlined
def proceed(M: DriverState, F: Front, A: Any, shape: Any, tables: Any) -> None:
    """All that the warps can issue; access counters are attended to on the way."""
    s, going = M.state[0], True
    while going:
        advance(M, F, A, shape, tables)
        spend(M, F)
        going = s.notices > 0 and s.now >= s.notice_due
        if going:
            attend(M, F.state[0].processor)


@kernel
def again(M: DriverState, F: Front, A: Any, shape: Any, tables: Any) -> None:
    """A replay, and what the warps issue after it."""
    p = F.state[0].processor
    map_evicted(M)
    M.counts[p].replays += 1
    M.state[0].now += M.gpus[p].replay
    replay(M, F, A)
    proceed(M, F, A, shape, tables)


@kernel
def wait_for_driver(M: DriverState, p: int) -> None:
    """One thread of the driver serves notices and faults: faults wait until no notice is left (uvm_service_access_counters)."""
    s = M.state[0]
    while s.notices > 0:
        s.now = max(s.now, s.notice_due)
        attend(M, p)
    s.now = max(s.now, s.driver_free)
    map_evicted(M)


@entry()
def run_kernel(M: DriverState, F: Front, A: Any, shapes: Any, tables: Any) -> int:
    """One kernel from its first thread block to its last: DONE, or why it cannot go on."""
    s, f, shape, W = M.state[0], F.state[0], shapes[0], M.bits
    p = f.processor
    n, gpu = M.counts[p], M.gpus[p]
    unpin(M)
    if s.now >= s.driver_free:
        map_evicted(M)
    if s.announces:
        launched(M, p)
    slots = f.slots // f.warps
    for k in range(slots * f.utlbs):
        next_block(M, F, A, k % f.utlbs, (k // f.utlbs) * f.warps)
    f.ns = shape.ns
    proceed(M, F, A, shape, tables)
    in_pass, with_throttled = 0, 0
    while f.outstanding > 0 or f.buffered > 0:
        wait_for_driver(M, p)
        if in_pass == 0:
            n.passes, with_throttled = n.passes + 1, 0
            s.now += gpu.pass_ns
        flush = s.replay_policy == PER_BATCH_FLUSH
        if flush:
            send(F, s.batch_count, reported(M, p, in_pass == 0))
        else:
            send(F, len(F.buffer) - f.buffered, len(F.buffer))
        fetched = min(f.buffered, s.batch_count)
        noted = s.logged
        unique = fetch(M, F)
        begin, engaged = s.now, gpu.engaged
        s.now += gpu.batch + gpu.fault * fetched
        throttled = n.throttled
        k = 0
        while k < unique:
            b = (F.batch[k] >> 1) >> s.block_shift
            k = collect(M, F, k, unique)
            if not none(W, scratch(M, FAULTED)):
                s.now += gpu.block
                M.blocks[b].served = n.replays + 1
                s.now += serve(M, p, b, scratch(M, WRITES))
                begin_copies(M, p)
                if s.failed:
                    return int(s.failed)
            if s.replay_policy == PER_BLOCK:
                wait_for_copies(M)
                again(M, F, A, shape, tables)
        wait_for_copies(M)
        s.now += gpu.first_fault
        gpu.first_fault = 0.0
        n.service += s.now - begin
        note_end(M, noted)
        work_ahead(M, p, s.now - begin - (gpu.engaged - engaged))
        if flush:
            n.dropped += f.outstanding - fetched
        if flush or s.replay_policy == PER_BATCH or (s.replay_policy == WHEN_EMPTY and f.buffered == 0):
            again(M, F, A, shape, tables)
        in_pass = (in_pass + 1) % s.max_batches
        with_throttled += n.throttled > throttled
        if with_throttled == s.max_throttled:  # the bottom half gives up the CPU until the processor that waits may proceed
            n.waited += max(s.wake - s.now, 0.0)
            s.now = max(s.now, s.wake)
            in_pass = 0
    ended = s.now
    if s.notices > 0:  # one more; what is left then waits for the next kernel
        s.now = max(s.now, s.notice_due)
        attend(M, p)
    s.now = ended  # the driver is late; the kernel is not
    return DONE
