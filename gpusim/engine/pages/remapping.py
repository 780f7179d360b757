"""Remote mappings of what was evicted: a work queue of the driver makes them, behind the back of what evicted.

Until then an access to an evicted page faults, and waits for the thread that serves faults (uvm_va_block.c,
block_add_eviction_mappings).  The queue is done before that thread begins its next batch, of faults or of notices.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import copy, keep
from gpusim.engine.pages.driver_tables import CPU, EVICTED, HERE, HMM, RESIDENT, DriverState, row, scratch, shared
from gpusim.engine.pages.mapping import grant, sees


@kernel
def defer(M: DriverState, g: int, b: int) -> None:
    """Block b has left GPU g: does a processor map it where it is now?"""
    s, block = M.state[0], M.blocks[b]
    mask = 1 << g if s.map_evicted and s.counters and block.kind != HMM else 0
    for p in range(1, s.processors):
        if sees(M, p, b, CPU):
            mask |= 1 << p
    if mask == 0:
        return
    if block.evicted_from == 0:
        M.deferred[s.deferred] = b
        s.deferred += 1
    block.evicted_from |= mask


@outlined
def map_evicted(M: DriverState) -> None:
    """The work queue does all that it has been given."""
    W, s, mask = M.bits, M.state[0], scratch(M, HERE)
    for k in range(s.deferred):
        b = M.deferred[k]
        for p in range(1, s.processors):
            if M.blocks[b].evicted_from >> p & 1:
                copy(W, mask, row(M, CPU, RESIDENT, b))
                if not sees(M, p, b, CPU):
                    keep(W, mask, shared(M, EVICTED, b))
                grant(M, p, b, mask)
        M.blocks[b].evicted_from = 0
    s.deferred = 0
