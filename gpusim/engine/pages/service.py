"""One fault service of one block: where its faulted pages go, what comes with them, and what is mapped afterwards."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages import system
from gpusim.engine.pages.bits import PAGES, add, clear, copy, has, keep, next_set, none, put, subtract, total
from gpusim.engine.pages.driver_tables import (
    ASKED,
    ATS,
    COPIED,
    CPU,
    DEMAND,
    EVICTED,
    FAULTED,
    FROM,
    GUESS,
    HMM,
    MANAGED,
    MAPPED,
    NONE,
    RESIDENT,
    STORES,
    THRASHING,
    WRITABLE,
    DriverState,
    row,
    scratch,
    shared,
)  # fmt: skip
from gpusim.engine.pages.events import note
from gpusim.engine.pages.mapping import grant, reaches, sees
from gpusim.engine.pages.page_policy import belongs
from gpusim.engine.pages.prefetchers import propose
from gpusim.engine.pages.residency import bring
from gpusim.engine.pages.thrashing import happened, mitigate
from gpusim.results.page_log import READ, WRITE


@kernel
def holder(M: DriverState, b: int, page: int, reader: int) -> int:
    """The processor that has the page, the reader first; NONE if it is nowhere."""
    W = M.bits
    if has(W, row(M, reader, RESIDENT, b), page):
        return reader
    for q in range(M.state[0].processors):
        if has(W, row(M, q, RESIDENT, b), page):
            return q
    return NONE


@outlined
def destination(M: DriverState, p: int, b: int, page: int, write: bool, counted: bool) -> int:
    """Where the page shall be after processor p has faulted on it: the driver's rules in their order.

    counted: an access counter asks, not a fault.
    """
    s, block = M.state[0], M.blocks[b]
    if s.force_sysmem or s.unified:
        return CPU
    if block.read_mostly and not write:
        return p
    if block.preferred == p or (p == CPU and block.kind == HMM):
        return p
    if has(M.bits, shared(M, THRASHING, b), page) and M.watched[b * PAGES + page].home != NONE:
        return int(M.watched[b * PAGES + page].home)
    at = holder(M, b, page, p)
    if s.migrates and p != CPU and at != NONE and at != p and reaches(M, p, at):
        return p if belongs(M, p, b, write) else int(at)
    if at == NONE:
        return int(block.preferred) if block.preferred != NONE and reaches(M, p, block.preferred) else p
    if at != p and not counted and block.accessed_by & (1 << p) and reaches(M, p, at):
        return int(at)
    if block.preferred != NONE and reaches(M, p, block.preferred):
        return int(block.preferred)
    return p


@kernel
def plain(M: DriverState, b: int) -> bool:
    """Is the processor that faults the destination of every page?"""
    block = M.blocks[b]
    hinted = block.preferred != NONE or block.accessed_by or block.read_mostly
    return not (hinted or block.tracked or block.kind != MANAGED or M.state[0].force_sysmem or M.state[0].unified
                or M.state[0].migrates)  # fmt: skip


@outlined
def place(M: DriverState, p: int, b: int, to: int, mask: int, demanded: int, cause: int, writes: int) -> float:
    """The pages of row `mask` come to processor `to`, because p asked, and p maps them; ns.

    Of a block that is mostly read only those of row `writes` (NONE: of none) leave where they were, the others are duplicated.
    """
    W, block = M.bits, M.blocks[b]
    if block.kind == ATS and to != CPU and not system.fits(M, to, b, mask):
        to, mask = CPU, demanded
    if not block.read_mostly:
        return float(move(M, p, b, to, mask, demanded, cause, False))
    took, stores = 0.0, scratch(M, STORES)
    if writes != NONE:
        copy(W, stores, mask)
        keep(W, stores, writes)
        if not none(W, stores):
            subtract(W, mask, stores)
            took += move(M, p, b, to, stores, demanded, cause, False)
    if not M.state[0].failed and not none(W, mask):
        took += move(M, p, b, to, mask, demanded, cause, True)
    return took


@kernel
def kept(M: DriverState, to: int, b: int, mask: int) -> float:
    """What the pages of row `mask` take that are at processor `to` already, ns.

    What comes along with a fault is worked through page by page, there or not (uvm_va_block.c, uvm_va_block_get_prefetch_hint,
    uvm_va_block_service_finish).
    """
    there = scratch(M, COPIED)
    copy(M.bits, there, mask)
    keep(M.bits, there, row(M, to, RESIDENT, b))
    return float(total(M.bits, there) * M.gpus[max(to, 1)].page_kept)


@outlined
def move(M: DriverState, p: int, b: int, to: int, mask: int, demanded: int, cause: int, duplicate: bool) -> float:
    W, block = M.bits, M.blocks[b]
    took = kept(M, to, b, mask) if duplicate else 0.0
    took += bring(M, to, b, mask, demanded, cause, duplicate)
    if M.state[0].failed:
        return float(took)
    if duplicate:
        for q in range(M.state[0].processors):  # a copy may be read only
            subtract(W, row(M, q, WRITABLE, b), mask)
    else:
        moved = scratch(M, COPIED)
        if block.kind != ATS and not none(W, moved):
            happened(M, p, b, moved)
    grant(M, p, b, mask, duplicate)
    for q in range(M.state[0].processors):
        if q != p and sees(M, q, b, to):
            grant(M, q, b, mask)
    return float(took)


@outlined
def record(M: DriverState, p: int, b: int, faulted: int, writes: int) -> None:
    """Count the faults of a block for its allocation, by cause."""
    W, seen, rest = M.bits, M.ranges[M.blocks[b].range], scratch(M, FROM)
    copy(W, rest, faulted)
    subtract(W, rest, writes)
    reads = total(W, rest)
    if reads > 0:
        note(M, READ, DEMAND, p, NONE, b, rest)
    copy(W, rest, faulted)
    keep(W, rest, writes)
    stores = total(W, rest)
    if stores > 0:
        note(M, WRITE, DEMAND, p, NONE, b, rest)
        keep(W, rest, row(M, p, MAPPED, b))
        seen.faults_permission += total(W, rest)
    if p == CPU:
        seen.cpu_reads += reads
        seen.cpu_writes += stores
        return
    seen.gpu_reads += reads
    seen.gpu_writes += stores
    copy(W, rest, faulted)
    keep(W, rest, shared(M, EVICTED, b))
    seen.faults_again += total(W, rest)
    copy(W, rest, faulted)
    for q in range(M.state[0].processors):
        subtract(W, rest, row(M, q, RESIDENT, b))
    seen.faults_new += total(W, rest)


@outlined
def serve(M: DriverState, p: int, b: int, writes: int) -> float:
    """Processor p has faulted on the pages of row FAULTED of block b, on those of row `writes` to write them; ns."""
    W, s, n = M.bits, M.state[0], M.counts[p]
    faulted, asked, guess = scratch(M, FAULTED), scratch(M, ASKED), scratch(M, GUESS)
    if M.blocks[b].tracked:
        mitigate(M, p, b, faulted)
        if none(W, faulted):
            return 0.0
    n_faulted = total(W, faulted)
    n.faults += n_faulted
    n.block_services += 1
    record(M, p, b, faulted, writes)
    took = 0.0
    if plain(M, b):
        copy(W, asked, faulted)
        if propose(M, p, b, faulted, n_faulted):
            add(W, asked, guess)
        took += place(M, p, b, p, asked, faulted, DEMAND, writes)
    else:
        first = next_set(W, faulted, 0, PAGES)
        to = destination(M, p, b, first, has(W, writes, first), False)
        same = True
        page = next_set(W, faulted, first + 1, PAGES)
        while page < PAGES:
            same = same and destination(M, p, b, page, has(W, writes, page), False) == to
            page = next_set(W, faulted, page + 1, PAGES)
        if same:
            copy(W, asked, faulted)
            # A page that stays where it is brings no others along.
            if propose(M, to, b, faulted, n_faulted):
                add(W, asked, guess)
            took += place(M, p, b, to, asked, faulted, DEMAND, writes)
        else:
            for to in range(s.processors):
                clear(W, asked)
                page = next_set(W, faulted, 0, PAGES)
                while page < PAGES:
                    if destination(M, p, b, page, has(W, writes, page), False) == to:
                        put(W, asked, page)
                    page = next_set(W, faulted, page + 1, PAGES)
                if not none(W, asked):
                    took += place(M, p, b, to, asked, faulted, DEMAND, writes)
    if p == CPU:
        M.ranges[M.blocks[b].range].cpu_service += M.gpus[1].cpu_fault + took
    else:
        M.ranges[M.blocks[b].range].service += took + M.gpus[p].block + M.gpus[p].queued
    return took
