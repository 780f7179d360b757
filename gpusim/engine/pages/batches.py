"""A fault batch: what the driver fetches out of the buffer, block by block; and how far the warps of a kernel get."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.background import work_ahead
from gpusim.engine.pages.bits import clear, put
from gpusim.engine.pages.counters import attend
from gpusim.engine.pages.driver_tables import FAULTED, WRITES, DriverState, scratch
from gpusim.engine.pages.events import note_batch
from gpusim.engine.pages.frontend import Front, advance, link_ns, mapped


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
        n.heads += F.batch[k] >> 1 == F.batch[0] >> 1
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
            p = F.state[0].processor
            M.blocks[b].served, M.blocks[b].served_by = M.counts[p].replays + 1, p  # the replay lets it through
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
    work, remote = f.issued * f.ns, link_ns(f)
    n.busy += work
    n.remote += remote
    n.lagged += max(remote - work, 0.0)
    M.state[0].now += max(work, remote)
    work_ahead(M, f.processor, work - remote)
    f.issued, f.remote_ns, f.stored_ns = 0, 0.0, 0.0


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
