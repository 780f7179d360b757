"""Between the uTLBs and the driver: outstanding pages go to the fault buffer, and a replay tries them again."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.engine.pages.driver_tables import NONE, DriverState
from gpusim.engine.pages.frontend import Front, mapped, push, retire, used

NEVER_MIND = 1 << 40


@kernel
def reported(waited: float, interval: float) -> int:
    """How many faults are in the buffer after so many ns: one after the other."""
    return NEVER_MIND if interval <= 0.0 else 1 + int(waited / interval)


@kernel
def send(F: Front, room: int, each: int) -> None:
    """Outstanding pages go to the fault buffer, one of each uTLB in turn, at most so many of each, while there is room."""
    s, size = F.state[0], len(F.buffer)
    put = s.get + s.buffered
    if put >= size:
        put -= size
    more = True
    while more:
        more = False
        u = s.turn
        for _ in range(s.utlbs):
            t = F.utlbs[u]
            if t.sent < min(t.out, each):
                if room == 0:
                    s.turn = u
                    return
                F.buffer[put] = 2 * F.out[u, t.sent] + F.misses[u, t.sent].write
                put = put + 1 if put + 1 < size else 0
                s.buffered += 1
                room -= 1
                t.sent += 1
                more = True
            u = u + 1 if u + 1 < s.utlbs else 0


@kernel
def go(M: DriverState, F: Front, A: Any, u: int, k: int) -> bool:
    """Accesses that wait for the k-th outstanding page of a uTLB go through where it is mapped now; True if none is left.

    A warp whose last one did goes on.
    """
    s, t, x = F.state[0], F.utlbs[u], F.misses[u, k]
    page = F.out[u, k]
    if not mapped(M, F, page, False):
        return False
    writable = x.write == 0 or mapped(M, F, page, True)
    b = page >> M.state[0].block_shift
    at = (page & (M.state[0].per_block - 1)) - M.blocks[b].offset
    i, last = x.first, NONE
    x.first = NONE
    while i != NONE:
        w = F.waits[u, i]
        following, write = w.next, w.slot < 0
        if write and not writable:
            if last == NONE:
                x.first = i
            else:
                F.waits[u, last].next = i
            w.next, last = NONE, i
        else:
            slot = ~w.slot if write else w.slot
            used(M, F, b, at, write, w.sectors, w.lines)
            w.next, t.free = t.free, i
            t.waiting -= 1
            y = F.slots[u, slot]
            y.pending -= 1
            if y.pending == 0 and y.sleeps:
                y.sleeps = 0
                if y.step < s.steps:
                    push(F, u, slot)
                else:
                    retire(M, F, A, u, slot)
        i = following
    x.last = last
    return bool(x.first == NONE)


@kernel
def replay(M: DriverState, F: Front, A: Any) -> None:
    """All outstanding accesses are tried again: those that go through end, the others stay, and will fault again.

    Only what has been served since the last replay, or what the driver found mapped, can get on.
    """
    s, shift = F.state[0], M.state[0].block_shift
    now = M.counts[s.processor].replays
    for u in range(s.utlbs):
        t = F.utlbs[u]
        t.sent = 0
        kept = 0
        for k in range(t.out):
            page = F.out[u, k]
            if M.blocks[page >> shift].served != now or not go(M, F, A, u, k):
                if kept < k:
                    F.out[u, kept] = page
                    x, y = F.misses[u, kept], F.misses[u, k]
                    x.write, x.first, x.last = y.write, y.first, y.last
                kept += 1
        s.outstanding -= t.out - kept
        t.out = kept
