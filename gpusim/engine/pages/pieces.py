"""GPU memory in big pages of 64 KiB instead of root chunks of 2 MiB: what eviction policies of finer grain find.

A piece is a big page of a block's window; it is held while a page of it is resident.  The pieces of a GPU stand in one list,
refreshed as the driver refreshes chunks.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import clear, count, fill, keep, none
from gpusim.engine.pages.driver_tables import HELD, HERE, NO_MEMORY, NONE, RESIDENT, DriverState, row, scratch
from gpusim.engine.pages.eviction import anew, throw_out
from gpusim.engine.pages.victims import leaving

EACH = 32  # pieces of a window


@kernel
def piece(M: DriverState, g: int, b: int, k: int) -> int:
    return int(((g - 1) * M.state[0].blocks + b) * EACH + k)


@kernel
def extent(M: DriverState, b: int, k: int) -> tuple[int, int]:
    """The pages of block b that lie in the k-th big page of its window."""
    s, block = M.state[0], M.blocks[b]
    return max(k * s.big - block.offset, 0), max(min((k + 1) * s.big - block.offset, block.pages), 0)


@kernel
def touches(M: DriverState, mask: int, b: int, k: int) -> bool:
    first, outer = extent(M, b, k)
    return bool(first < outer and count(M.bits, mask, first, outer) > 0)


@outlined
def unhold(M: DriverState, g: int, i: int) -> None:
    gpu, x = M.gpus[g], M.pieces[i]
    if x.older != NONE:
        M.pieces[x.older].newer = x.newer
    else:
        gpu.oldest_piece = x.newer
    if x.newer != NONE:
        M.pieces[x.newer].older = x.older
    else:
        gpu.newest_piece = x.older
    x.held = 0
    gpu.pieces -= 1


@outlined
def hold(M: DriverState, g: int, i: int) -> None:
    """A piece becomes the newest of its GPU."""
    gpu, x = M.gpus[g], M.pieces[i]
    if x.held:
        unhold(M, g, i)
    x.held, x.older, x.newer = 1, gpu.newest_piece, NONE
    if x.older != NONE:
        M.pieces[x.older].newer = i
    else:
        gpu.oldest_piece = i
    gpu.newest_piece = i
    gpu.pieces += 1


@outlined
def settle(M: DriverState, g: int, b: int) -> None:
    """Pieces of block b without a resident page are free."""
    for k in range(EACH):
        i = piece(M, g, b, k)
        if M.pieces[i].held and not touches(M, row(M, g, RESIDENT, b), b, k):
            unhold(M, g, i)


@outlined
def make_room(M: DriverState, g: int, b: int) -> float:
    """The oldest piece of another block than b leaves, and what the policy sends with it; ns."""
    W, s = M.bits, M.state[0]
    i = M.gpus[g].oldest_piece
    while i != NONE and (i // EACH) % s.blocks == b:
        i = M.pieces[i].newer
    if i == NONE or not s.oversubscription:
        s.failed = NO_MEMORY
        return 0.0
    owner, mask = (i // EACH) % s.blocks, scratch(M, HERE)
    first, outer = extent(M, owner, i % EACH)
    clear(W, mask)
    fill(W, mask, first, outer)
    keep(W, mask, row(M, g, RESIDENT, owner))
    leaving(M, g, owner)
    M.counts[g].evictions += 1
    ns = throw_out(M, g, owner, mask) if not none(W, mask) else 0.0
    settle(M, g, owner)
    return float(ns)


@outlined
def hold_for(M: DriverState, g: int, b: int, mask: int, zeroed: int) -> float:
    """Pieces for the pages of row `mask` of block b; ns.  Row `zeroed`: the pages of those that are new."""
    W, ns = M.bits, 0.0
    room = (M.gpus[g].roots - M.gpus[g].length[HELD]) * EACH
    clear(W, zeroed)
    for k in range(EACH):
        i = piece(M, g, b, k)
        if not M.pieces[i].held and touches(M, mask, b, k):
            while M.gpus[g].pieces >= room and not M.state[0].failed:
                ns += make_room(M, g, b) + anew(M, g)
            if M.state[0].failed:
                return ns
            hold(M, g, i)
            first, outer = extent(M, b, k)
            fill(W, zeroed, first, outer)
    return ns


@outlined
def refresh(M: DriverState, g: int, b: int, mask: int) -> None:
    for k in range(EACH):
        if touches(M, mask, b, k):
            hold(M, g, piece(M, g, b, k))
