"""Copies run behind the driver's back: it pushes them and serves the next block, the GPU keeps their order.

What leaves is pushed when the driver has evicted it, what comes when the driver has done its part of the service; either begins
when what was pushed before is over.  A replay waits for all of them, and so does the program.  Both directions are one queue:
what comes into a chunk waits for what leaves it, and the next victim's page tables are changed behind those of what has come,
since all changes go through one channel (uvm_channel.c, channel_reserve_in_ce_pool; uvm_va_block.c, block_unmap_gpu).
Copies of a service follow each other without a gap: together they start once.  (A profiler shows each from its own start.)
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.engine.pages.bits import PAGES, next_set, total
from gpusim.engine.pages.driver_tables import MANAGED, DriverState
from gpusim.engine.pages.events import note_copies
from gpusim.engine.state import FILLS, LEGS


@kernel
def adds(gpu: Any, leg: int, size: int, byte: float) -> None:
    """The next transfer of the GPU has so many bytes more, at so many ns each."""
    gpu.moves[leg] += size
    gpu.takes[leg] += size * byte


@kernel
def zero(gpu: Any, size: int) -> None:
    """So many bytes of its memory are zeroed."""
    gpu.queued += size * gpu.zero_byte
    adds(gpu, FILLS, size, gpu.zero_byte)


@kernel
def push(gpu: Any, ns: float, at: float) -> None:
    """So many ns of the GPU's go before what comes, and the driver asks for them at this moment, before its service ends."""
    if gpu.leaving == 0.0:
        gpu.pushed = at
    gpu.leaving += ns
    gpu.queued += ns


@kernel
def take_queued(gpu: Any) -> float:
    """The ns that services have queued, which are queued no more."""
    ns = gpu.queued
    gpu.queued = gpu.leaving = 0.0
    return float(ns)


@kernel
def begin_copies(M: DriverState, g: int) -> None:
    """What the service that just ended has queued on GPU g begins; page tables come before, and wait for no copy.

    What leaves has begun when it was pushed, and what comes waits for it.
    """
    gpu, now = M.gpus[g], M.state[0].now
    leaving, setting_up = gpu.leaving, gpu.setting_up
    takes = take_queued(gpu)
    start = max(gpu.copied, now + setting_up)
    begin = max(gpu.copied, min(gpu.pushed, now)) if leaving > 0.0 else start
    end = begin + leaving
    if takes > leaving or setting_up > 0.0:
        end = max(end, start) + takes - leaving
    if takes > 0.0 and gpu.begun == 0:
        gpu.begun, gpu.first_copy = 1, begin
    if takes > 0.0 or setting_up > 0.0:
        gpu.copied = end
    note_copies(M, g, begin, end)
    gpu.engaged += takes
    gpu.setting_up = 0.0


@kernel
def wait_for_copies(M: DriverState) -> None:
    s = M.state[0]
    for g in range(1, s.processors):
        begin_copies(M, g)
        if M.gpus[g].copied > s.now:
            M.counts[g].copy_wait += M.gpus[g].copied - s.now
            s.now = M.gpus[g].copied


@kernel
def do_not_flow(M: DriverState, but: int) -> None:
    """What GPUs other than this one move has had its time: it is no transfer any more."""
    for g in range(1, M.state[0].processors):
        for leg in range(LEGS):
            if g != but:
                M.gpus[g].moves[leg] = M.gpus[g].takes[leg] = 0.0


@kernel
def chunks_of(M: DriverState, b: int, mask: int) -> int:
    """Pieces of host memory, contiguous each, that hold the pages of row `mask`: unmapped and found for the GPU one by one."""
    size, offset = M.blocks[b].host_chunk, M.blocks[b].offset
    if size <= 1:
        return int(total(M.bits, mask))
    n = 0
    page = next_set(M.bits, mask, 0, PAGES)
    while page < PAGES:
        n += 1
        page = next_set(M.bits, mask, page - (page + offset) % size + size, PAGES)
    return n


@kernel
def host_chunks(M: DriverState, b: int, pages: int) -> None:
    """Host memory is taken for `pages` pages of a block at once: in the largest pieces that they fill, which stay.

    System memory comes page by page.
    """
    s, block = M.state[0], M.blocks[b]
    if block.host_chunk:
        return
    block.host_chunk = 1
    if block.kind != MANAGED:
        return
    for size in (s.big, s.per_block):
        if size > 1 and pages >= size and s.host_chunks & (size * s.page_bytes):
            block.host_chunk = size
