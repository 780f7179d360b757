"""What a program does on a stream without a kernel: memory is hinted about and freed, contents discarded, pages brought."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages import host
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.paging import DISCARD, MIGRATE, RELEASE, PagedKernels


@kernel
def acts_before(P: PagedKernels, launch: int) -> bool:
    """Whether the program does something before this launch without a kernel."""
    p = P.pager[0]
    return bool(p.acted < P.acts.size and P.acts[p.acted].launch <= launch)


@outlined
def act(M: DriverState, P: PagedKernels, launch: int) -> int:
    """It does that.  How many of these move pages."""
    p, moves = P.pager[0], 0
    while acts_before(P, launch):
        moves += carry_out(M, P, p.acted)
        p.acted += 1
    return moves


@outlined
def carry_out(M: DriverState, P: PagedKernels, act: int) -> int:
    """One of these; 1: it moves pages."""
    x = P.acts[act]
    if x.kind < 0:
        host.advise(M, x.first, x.outer, -1 - x.kind, x.to)
    elif x.kind == RELEASE:
        host.release(M, x.first, x.outer)
    elif x.kind == DISCARD:
        host.discard(M, x.first, x.outer)
    elif host.prefetch(M, x.first, x.outer, x.to):
        P.pager[0].failed = 1
    return int(x.kind == MIGRATE)
