"""Between the uTLBs and the driver: accesses that wait are reported in the fault buffer, and a replay tries them again."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.engine.pages.driver_tables import DriverState
from gpusim.engine.pages.frontend import NO_PLACE, Front, mapped, push, retire, used

NEVER_MIND = 1 << 40
LATER = 32  # reports of its own by which the last uTLB begins after the first
SPREAD = 40_503  # odd, near the golden section of 1 << 16: from the order after a replay to that after the next


@kernel
def reported(waited: float, interval: float) -> int:
    """How many faults are in the buffer after so many ns: one after the other."""
    return NEVER_MIND if interval <= 0.0 else 1 + int(waited / interval)


@kernel
def next_of(F: Front, gpc: int, each: int) -> int:
    """The uTLB of a GPC whose access has the first place of those to report, at most so many of each; -1: none."""
    s = F.state[0]
    place, found = NO_PLACE, -1
    for u in range(gpc * s.utlbs // s.gpcs, (gpc + 1) * s.utlbs // s.gpcs):
        t = F.utlbs[u]
        if t.next < place and t.sent < each:
            place, found = t.next, u
    return found


@kernel
def send(F: Front, reports: int, room: int, each: int) -> None:
    """Accesses that wait go to the fault buffer: so many reports, one of each GPC in turn, at most so many of a uTLB.

    Those beyond the room are not looked at again: the next flush drops them.
    """
    s, size = F.state[0], len(F.buffer)
    put = s.get + s.buffered
    if put >= size:
        put -= size
    idle = 0
    while reports > 0 and idle < s.gpcs:
        u = next_of(F, s.gpc, each)
        s.gpc = s.gpc + 1 if s.gpc + 1 < s.gpcs else 0
        if u < 0:
            idle += 1
            continue
        idle = 0
        t = F.utlbs[u]
        if room > 0:
            F.buffer[put] = 2 * F.out[u, t.sent] + F.misses[u, t.sent].write
            put = put + 1 if put + 1 < size else 0
            s.buffered += 1
            room -= 1
        reports -= 1
        t.sent += 1
        t.next = F.misses[u, t.sent].place if t.sent < t.out else NO_PLACE


@kernel
def go(M: DriverState, F: Front, A: Any, u: int, k: int) -> None:
    """The k-th access that waits at a uTLB goes through; its warp goes on with the last of its own."""
    s, x, page = F.state[0], F.misses[u, k], F.out[u, k]
    b = page >> M.state[0].block_shift
    at = (page & (M.state[0].per_block - 1)) - M.blocks[b].offset
    used(M, F, b, at, x.write != 0, x.sectors, x.lines)
    F.utlbs[u].pages -= x.page
    F.utlbs[u].entries -= x.entry
    y = F.slots[u, x.slot]
    y.pending -= 1
    if y.pending == 0 and y.sleeps:
        y.sleeps = 0
        if y.step < s.steps:
            push(F, u, x.slot)
        else:
            retire(M, F, A, u, x.slot)


@kernel
def replay(M: DriverState, F: Front, A: Any) -> None:
    """All accesses that wait are tried again: those that go through end, the others stay, and will fault again.

    Only what has been served since the last replay, or what the driver found mapped, can get on.  uTLBs begin to report one
    after the other, those of which nothing goes through first; what misses anew comes behind.
    """
    s, shift = F.state[0], M.state[0].block_shift
    now = M.counts[s.processor].replays
    behind = F.out.shape[1] + LATER
    begin = s.last + 1
    s.last = s.before = s.last + 2 * behind
    for u in range(s.utlbs):
        t = F.utlbs[u]
        t.sent = 0
        kept = 0
        for k in range(t.out):
            page = F.out[u, k]
            if M.blocks[page >> shift].served == now and mapped(M, F, page, F.misses[u, k].write != 0):
                go(M, F, A, u, k)
                continue
            if kept < k:
                F.out[u, kept] = page
                x, y = F.misses[u, kept], F.misses[u, k]
                x.slot, x.write, x.sectors, x.lines, x.page, x.entry = y.slot, y.write, y.sectors, y.lines, y.page, y.entry
            kept += 1
        first = begin + LATER * ((u * s.stride + now * SPREAD) % s.utlbs) // s.utlbs + (behind if kept < t.out else 0)
        for k in range(kept):
            F.misses[u, k].place = first + k
        t.next = first if kept else NO_PLACE
        s.outstanding -= t.out - kept
        t.out = kept
