"""Pages that two processors take from each other: found by events that follow closely, then throttled, then pinned.

A single GPU that faults on what was evicted is no case of this: a block is watched only once two processors move its pages
within one lapse.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import PAGES, clear, drop, has, next_set, put, subtract, total
from gpusim.engine.pages.driver_tables import (
    CPU,
    GOING,
    HERE,
    NONE,
    RESIDENT,
    REST,
    THRASHING,
    DriverState,
    row,
    scratch,
    shared,
)
from gpusim.engine.pages.events import note
from gpusim.engine.pages.mapping import fast, reaches, unmap
from gpusim.results.page_log import PIN, THROTTLE, UNPIN

CALM, THROTTLED, PINNED = range(3)
SHORTEST_LAPSE, LONGEST_LAPSE = 5e3, 5e8  # ns


@outlined
def calm_down(M: DriverState, b: int) -> None:
    """Nothing is known of the block any more."""
    for page in range(M.blocks[b].pages):
        release(M, b, page)
    M.blocks[b].tracked = 0
    M.state[0].tracked -= 1
    M.blocks[b].last_processor = NONE


@outlined
def release(M: DriverState, b: int, page: int) -> None:
    """The page is an ordinary one again; processors that mapped it remotely have to fault on it."""
    W, x = M.bits, M.watched[b * PAGES + page]
    if x.state == PINNED:
        only = scratch(M, REST)
        clear(W, only)
        put(W, only, page)
        note(M, UNPIN, NONE, NONE, NONE, b, only)
        for p in range(M.state[0].processors):
            if not has(W, row(M, p, RESIDENT, b), page):
                unmap(M, p, b, only)
    x.events, x.throttles, x.state, x.home, x.chosen = 0, 0, CALM, NONE, NONE
    drop(W, shared(M, THRASHING, b), page)


@outlined
def happened(M: DriverState, p: int, b: int, mask: int) -> None:
    """The pages of row `mask` came to processor p, or p took a permission from others."""
    s, block = M.state[0], M.blocks[b]
    if not s.thrash_enable:
        return
    if not block.tracked:
        if block.last_processor == NONE or block.last_processor == p or s.now - block.last_event > s.lapse:
            block.last_processor, block.last_event = p, s.now
            return
        block.tracked, block.rivals = 1, 1 << block.last_processor
        s.tracked += 1
        for page in range(block.pages):
            release(M, b, page)
            M.watched[b * PAGES + page].last = -1e30
    vote(M, s.now - block.last_event)
    block.rivals |= 1 << p
    block.last_processor, block.last_event = p, s.now
    page = next_set(M.bits, mask, 0, PAGES)
    while page < PAGES:
        x = M.watched[b * PAGES + page]
        last = max(x.last, x.until) if x.state == THROTTLED else x.last  # a wait that was imposed is no quiet time
        if s.now - last <= s.lapse:
            x.events += 1
        elif x.state != PINNED:
            release(M, b, page)
            x.events = 1
        x.last = s.now
        if x.events >= s.thrash_threshold:
            put(M.bits, shared(M, THRASHING, b), page)
        page = next_set(M.bits, mask, page + 1, PAGES)


@kernel
def home(M: DriverState, p: int, b: int) -> int:
    """Where a page is pinned: the preferred location if all rivals can access it, else p likewise, else the CPU."""
    s, block = M.state[0], M.blocks[b]
    for place in (block.preferred, p):
        good = place != NONE
        for q in range(s.processors):
            good = good and (not block.rivals >> q & 1 or reaches(M, q, place))
        if good:
            return int(place)
    return CPU


@kernel
def close(M: DriverState, b: int) -> bool:
    """Do all rivals for a block have fast access to each other?  Then none is throttled."""
    s, rivals, good = M.state[0], M.blocks[b].rivals, True
    for p in range(s.processors):
        for q in range(p):
            good = good and (not (rivals >> p & 1 and rivals >> q & 1) or fast(M, p, q))
    return good


@kernel
def vote(M: DriverState, interval: float) -> None:
    """The lapse adapts to the intervals between events (since release 590).

    A short one raises it by an eighth at once, since a negative count is compared as an unsigned number; to lower it takes as
    many long ones as uvm_perf_lapse_vote_threshold.  What nap, epoch and pin are was decided before.
    """
    s = M.state[0]
    if interval <= s.lapse:
        s.lapse, s.votes = min(s.lapse * 1.125, LONGEST_LAPSE), 0
    else:
        s.votes += 1
        if s.votes >= s.lapse_votes:
            s.lapse, s.votes = max(s.lapse / 1.125, SHORTEST_LAPSE), 0


@outlined
def mitigate(M: DriverState, p: int, b: int, faulted: int) -> None:
    """Take from row `faulted` what processor p has to wait for; pin what was throttled often enough."""
    W, s, block = M.bits, M.state[0], M.blocks[b]
    if s.now - block.last_event > s.epoch and block.resets < s.max_resets:
        block.resets += 1
        calm_down(M, b)
        return
    block.rivals |= 1 << p
    throttled, pinned, place, no_need = scratch(M, GOING), scratch(M, HERE), home(M, p, b), close(M, b)
    clear(W, throttled)
    clear(W, pinned)
    page = next_set(W, faulted, 0, PAGES)
    while page < PAGES:
        x = M.watched[b * PAGES + page]
        if has(W, shared(M, THRASHING, b), page):
            if x.state == THROTTLED and x.chosen != p and s.now < x.until:
                put(W, throttled, page)
                s.wake = max(s.wake, x.until)
            elif x.state != PINNED:
                if no_need or x.throttles >= s.pin_threshold:
                    x.state, x.home, x.until = PINNED, place, s.now + s.pin
                    put(W, pinned, page)
                else:
                    x.throttles += 1
                    x.state, x.chosen, x.until = THROTTLED, p, s.now + s.nap
        page = next_set(W, faulted, page + 1, PAGES)
    tell(M, THROTTLE, p, NONE, b, throttled)
    tell(M, PIN, p, place, b, pinned)
    subtract(W, faulted, throttled)


@outlined
def tell(M: DriverState, kind: int, p: int, place: int, b: int, mask: int) -> None:
    n = total(M.bits, mask)
    if n == 0:
        return
    note(M, kind, NONE, p, place, b, mask)
    if kind == PIN:
        M.counts[p].pinned += n
        M.ranges[M.blocks[b].range].pinned += n
    else:
        M.counts[p].throttled += n
        M.ranges[M.blocks[b].range].throttled += n


@outlined
def unpin(M: DriverState) -> None:
    """Pages whose time is over are ordinary again.  A pin time of 0 is for ever."""
    s = M.state[0]
    if s.tracked == 0 or s.pin == 0.0:
        return
    for b in range(s.blocks):
        if M.blocks[b].tracked:
            for page in range(M.blocks[b].pages):
                x = M.watched[b * PAGES + page]
                if x.state == PINNED and s.now >= x.until:
                    release(M, b, page)
