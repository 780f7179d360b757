"""Which processor maps which pages, with which permission."""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import kernel
from gpusim.engine.pages.bits import WORDS, subtract
from gpusim.engine.pages.driver_tables import ATS, CPU, LOST, MAPPED, RESIDENT, WRITABLE, DriverState, row, shared


@kernel
def unmap(M: DriverState, p: int, b: int, mask: int) -> None:
    subtract(M.bits, row(M, p, MAPPED, b), mask)
    subtract(M.bits, row(M, p, WRITABLE, b), mask)


@kernel
def fast(M: DriverState, p: int, q: int) -> bool:
    """Have two processors direct and fast access to each other's memory?"""
    gpu = M.gpus[max(p, q)]
    return bool(gpu.coherent or (min(p, q) != CPU and gpu.peer_byte > 0.0))


@kernel
def reaches(M: DriverState, p: int, q: int) -> bool:
    """Can processor p access memory of q over a link?  GPUs host memory always."""
    return p == q or q == CPU or fast(M, p, q)


@kernel
def sees(M: DriverState, p: int, b: int, at: int) -> bool:
    """Does processor p map pages of block b that are at processor `at` without having asked for them?"""
    block = M.blocks[b]
    if M.state[0].unified or block.kind == ATS:
        return True
    return bool(block.accessed_by & (1 << p)) and not block.read_mostly and reaches(M, p, at)


@kernel
def grant(M: DriverState, p: int, b: int, mask: int, read_only: bool = False) -> None:
    """Processor p maps the pages of row `mask` that are resident, with the highest permission that copies elsewhere allow.

    read_only: a page of a block that is mostly read came for a read, or ahead of need; its next store faults, even if it is
    the only copy (uvm_va_block.c, compute_new_permission).  What has been discarded is not mapped before its next fault.
    """
    W, s = M.bits, M.state[0]
    mapped, writable, lost = row(M, p, MAPPED, b), row(M, p, WRITABLE, b), shared(M, LOST, b)
    for w in range(WORDS):
        somewhere, twice = np.uint64(0), np.uint64(0)
        for q in range(s.processors):
            here = W[row(M, q, RESIDENT, b), w]
            twice |= somewhere & here
            somewhere |= here
        there = W[mask, w] & somewhere & ~W[lost, w]
        W[mapped, w] |= there
        if not read_only:
            W[writable, w] |= there & ~twice
