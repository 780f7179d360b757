"""The loop: ticks, and launches between them."""

from __future__ import annotations

from gpusim.base.compiled import entry, kernel
from gpusim.studies.g10.extent_tables import DONE, GROW, QUEUES, RUNNING, STUCK, WAITING, KernelWork, PagedState
from gpusim.studies.g10.launch import launch
from gpusim.studies.g10.service import force, open_faults, serve
from gpusim.studies.g10.steady import repeat, repeats

SPARE = 512     # extents that must be free before a tick; it moves some hundred pages and splits no more often
FOREVER = 2**40


@kernel
def idle(M: PagedState) -> bool:
    """Are all queues empty?"""
    pages = 0
    for q in range(QUEUES):
        pages += M.queues[q].pages
    return bool(pages == 0)


@kernel
def complete(M: PagedState) -> bool:
    """Has all come that the kernel waits for?"""
    return bool(M.state[0].mode == WAITING and M.state[0].awaited == 0 and open_faults(M) == 0)


@kernel
def ticks_before_launch(M: PagedState) -> int:
    """Of equal times, what was scheduled first goes first: a tick when its predecessor is done, a launch when its is."""
    s = M.state[0]
    if s.mode == WAITING:
        return FOREVER
    n = max(0, (s.next - s.now + s.tick - 1) // s.tick)
    if s.now + n * s.tick == s.next and s.seen == s.next:
        n += 1
    return int(n)


@kernel
def advance(M: PagedState) -> bool:
    """On to the next kernel; False when there is none."""
    s = M.state[0]
    s.kernel += 1
    if s.kernel == s.kernels:
        s.kernel = 0
        s.iteration += 1
    return bool(s.iteration < s.iterations)


@entry()
def run(M: PagedState, W: KernelWork) -> int:
    """Until the end, or until more room for extents is needed: DONE, GROW, STUCK."""
    s = M.state[0]
    while True:
        if s.spares < SPARE:
            return GROW
        ticks = ticks_before_launch(M)
        if ticks == 0 or (s.mode == RUNNING and idle(M)):
            s.now += ticks * s.tick
            if not advance(M):
                return DONE
            launch(M, W, s.next, False)
            continue
        free, host_used = s.free, s.host_used
        serve(M)
        done = 1
        if s.degree > 0 and s.mode == WAITING and s.awaited > 0 and s.came + s.went == 0:
            force(M)
        elif s.steady and ticks > 1 and not complete(M):
            k = repeats(M, free, host_used, ticks - 1)
            if k > 0:
                repeat(M, k)
                done += k
        if s.came + s.made + s.went + s.dropped == 0:
            if s.mode == WAITING and not complete(M):
                return STUCK
            if s.mode == RUNNING:
                done = ticks
        s.now += done * s.tick
        if complete(M) and not launch(M, W, s.now - s.tick, True):
            return STUCK
