"""One fault service of one block: where its faulted pages go, what comes with them, and what is mapped afterwards."""

from __future__ import annotations

from gpusim.uvm.bits import PAGES, add, clear, copy, has, next_set, none, put, subtract, total
from gpusim.uvm.compiled import kernel, outlined
from gpusim.uvm.prefetchers import propose
from gpusim.uvm.residency import bring, grant, reaches
from gpusim.uvm.tables import (
    ASKED,
    COPIED,
    CPU,
    DEMAND,
    FAULTED,
    GUESS,
    NONE,
    RESIDENT,
    THRASHING,
    WRITABLE,
    Memory,
    note,
    row,
    scratch,
    shared,
)  # fmt: skip
from gpusim.uvm.thrashing import THROTTLE, happened, mitigate


@kernel
def holder(M: Memory, b: int, page: int, reader: int) -> int:
    """Who has the page, the reader first; NONE if it is nowhere."""
    W = M.bits
    if has(W, row(M, reader, RESIDENT, b), page):
        return reader
    for q in range(M.state[0].processors):
        if has(W, row(M, q, RESIDENT, b), page):
            return q
    return NONE


@outlined
def destination(M: Memory, p: int, b: int, page: int, write: bool) -> int:
    """Where the page shall be after processor p has faulted on it: the driver's rules in their order."""
    s, block = M.state[0], M.blocks[b]
    if s.force_sysmem:
        return CPU
    if block.read_mostly and not write:
        return p
    if block.preferred == p:
        return p
    if has(M.bits, shared(M, THRASHING, b), page) and M.watched[b * PAGES + page].home != NONE:
        return int(M.watched[b * PAGES + page].home)
    at = holder(M, b, page, p)
    if at == NONE:
        return int(block.preferred) if block.preferred != NONE and reaches(M, p, block.preferred) else p
    if at != p and block.accessed_by & (1 << p) and reaches(M, p, at):
        return int(at)
    if block.preferred != NONE and reaches(M, p, block.preferred):
        return int(block.preferred)
    return p


@kernel
def plain(M: Memory, b: int) -> bool:
    """Is the processor that faults the destination of every page?"""
    block = M.blocks[b]
    hinted = block.preferred != NONE or block.accessed_by or block.read_mostly
    return not (hinted or block.tracked or M.state[0].force_sysmem)


@outlined
def place(M: Memory, p: int, b: int, to: int, mask: int, demanded: int, cause: int, write: bool) -> float:
    """The pages of row `mask` come to processor `to`, because p asked, and p maps them; ns."""
    W, block = M.bits, M.blocks[b]
    duplicate = bool(block.read_mostly) and not write
    took = bring(M, to, b, mask, demanded, cause, duplicate)
    if M.state[0].failed:
        return float(took)
    if duplicate:
        for q in range(M.state[0].processors):  # a copy may be read only
            subtract(W, row(M, q, WRITABLE, b), mask)
    else:
        moved = scratch(M, COPIED)
        if not none(W, moved):
            happened(M, p, b, moved)
    grant(M, p, b, mask)
    for q in range(M.state[0].processors):
        if q != p and block.accessed_by & (1 << q) and reaches(M, q, to):
            grant(M, q, b, mask)
    return float(took)


@outlined
def serve(M: Memory, p: int, b: int, writes: int) -> float:
    """Processor p has faulted on the pages of row FAULTED of block b, on those of row `writes` to write them; ns."""
    W, s, n = M.bits, M.state[0], M.counts[p]
    faulted, asked, guess = scratch(M, FAULTED), scratch(M, ASKED), scratch(M, GUESS)
    if M.blocks[b].tracked and mitigate(M, p, b, faulted) == THROTTLE and none(W, faulted):
        return 0.0
    write = not none(W, writes)
    n_faulted = total(W, faulted)
    n.faults += n_faulted
    n.block_services += 1
    came = n.came[DEMAND] + n.came[1]
    took = 0.0
    if plain(M, b):
        copy(W, asked, faulted)
        if propose(M, p, b, faulted, n_faulted):
            add(W, asked, guess)
        took += place(M, p, b, p, asked, faulted, DEMAND, write)
    else:
        first = next_set(W, faulted, 0, PAGES)
        to = destination(M, p, b, first, has(W, writes, first))
        same = True
        page = next_set(W, faulted, first + 1, PAGES)
        while page < PAGES:
            same = same and destination(M, p, b, page, has(W, writes, page)) == to
            page = next_set(W, faulted, page + 1, PAGES)
        if same:
            copy(W, asked, faulted)
            # A page that stays where it is brings nobody along.
            if propose(M, to, b, faulted, n_faulted):
                add(W, asked, guess)
            took += place(M, p, b, to, asked, faulted, DEMAND, write)
        else:
            for to in range(s.processors):
                clear(W, asked)
                page = next_set(W, faulted, 0, PAGES)
                while page < PAGES:
                    if destination(M, p, b, page, has(W, writes, page)) == to:
                        put(W, asked, page)
                    page = next_set(W, faulted, page + 1, PAGES)
                if not none(W, asked):
                    took += place(M, p, b, to, asked, faulted, DEMAND, write)
    note(M, DEMAND, b, n_faulted, int(n.came[DEMAND] + n.came[1] - came))
    return took
