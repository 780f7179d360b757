"""When the host is through with a step, and what it waits for before the next."""

from __future__ import annotations

from gpusim.referee.host.tables import (
    AFTER,
    ALLOC_NS,
    BLUR,
    CALLS,
    COPIED,
    COPIES,
    DRAIN,
    EVENT,
    HAD,
    IDLE,
    IDLES,
    NOW,
    OWE,
    OWED,
    PAID,
    PHASE,
    REACHED,
    RECORDED,
    ROOM,
    SAID,
    STAGED,
    STIRRED,
    SYNC_NS,
    UNSURE,
    WAS_IDLE,
    HostCosts,
    HostWalk,
)
from gpusim.referee.world import step
from gpusim.trace.trace import ALLOC, FREE, OP, RECORD, SYNC, WAIT


@step
def settle(w: HostWalk) -> None:
    """The present step is over: its calls are paid, its copies are there."""
    s = w.now
    s[NOW] += s[OWE]
    s[PHASE] = CALLS
    s[OWE] = s[HAD] = 0
    if s[STAGED] > s[NOW] and s[AFTER]:
        s[AFTER] = 3
    if s[STAGED] > s[NOW]:
        s[SYNC_NS] += s[STAGED] - s[NOW]
        s[NOW] = s[STAGED]
        s[PHASE] = COPIES
    s[STAGED] = 0
    if s[AFTER] == 1:
        drain(w)
        s[AFTER] = 0


@step
def pay(w: HostWalk) -> None:
    """What the calls before this one of the same step take."""
    w.now[NOW] += w.now[OWE]
    w.now[OWE] = w.now[HAD] = 0


@step
def ends(w: HostWalk) -> None:
    """The present step is over, and so is its event, which it may have had to try again when its copies were there."""
    settle(w)
    if w.now[AFTER]:
        drain(w)
        w.now[AFTER] = 0


@step
def drain(w: HostWalk) -> None:
    """Memory was given back: the device runs dry first."""
    s = w.now
    if s[DRAIN]:
        if _idle(w) > s[NOW]:
            s[ALLOC_NS] += _idle(w) - s[NOW]
            s[NOW] = _idle(w)
            s[PHASE] = IDLES
        s[NOW] += s[OWED]
        s[ALLOC_NS] += s[OWED]
        s[DRAIN], s[OWED] = 0, 0


@step
def _idle(w: HostWalk) -> int:
    """When the device has nothing to do any more, as the host sees it: others may have given it something later."""
    s = w.now
    return int(s[WAS_IDLE] if s[WAS_IDLE] >= 0 and s[NOW] <= s[STIRRED] else s[IDLE])


@step
def until(w: HostWalk) -> None:
    """The next event has a recorded time."""
    s = w.now
    e = s[EVENT]
    if e < w.event.size and w.time[e] >= 0 and s[REACHED] != e + 1:
        if w.time[e] > s[NOW]:
            s[NOW] = w.time[e]
            s[PHASE] = RECORDED
        drain(w)


@step
def between(w: HostWalk, c: HostCosts, end: int) -> None:
    """Events that leave no record: up to event `end` or the next that does."""
    s, marks = w.now, w.marks
    while s[EVENT] < end:
        until(w)
        e = s[EVENT]
        kind, q = w.event[e], w.stream[e]
        if kind in (ALLOC, FREE, OP):
            break
        s[EVENT] += 1
        if kind == SYNC:
            waited = _idle(w) > s[NOW]
            if s[DRAIN]:
                drain(w)
            elif waited:
                s[SYNC_NS] += _idle(w) - s[NOW]
                s[NOW] = _idle(w)
                s[PHASE] = IDLES
            if s[COPIED] and waited:
                s[NOW] += c.wait
                s[SYNC_NS] += c.wait
            s[COPIED] = 0
        elif kind == RECORD:
            at = streams(w) + w.arg[e]
            for k in range(w.role.size):
                marks[at, k] = marks[q, k]
            if w.count[q] > 0:
                marks[at, q] = w.done[w.order[w.turn[q] + w.count[q] - 1]]
            else:
                marks[at, q] = 0
        elif kind == WAIT:
            at = streams(w) + w.arg[e]
            for k in range(w.role.size):
                marks[q, k] = max(marks[q, k], marks[at, k])
        drain(w)


@step
def pass_over(w: HostWalk, c: HostCosts) -> None:
    """Events that leave no record are over, since something after them is done already: they have taken no time."""
    s = w.now
    t, dry, alloc, sync = s[NOW], s[DRAIN], s[ALLOC_NS], s[SYNC_NS]
    s[DRAIN] = 0
    between(w, c, w.event.size)
    s[NOW], s[DRAIN], s[ALLOC_NS], s[SYNC_NS] = t, dry, alloc, sync


@step
def streams(w: HostWalk) -> int:
    n = 0
    while n < w.role.size and w.role[n] == 0:
        n += 1
    return n


@step
def _room(w: HostWalk, q: int, limit: int) -> None:
    """Queue q holds fewer activities than it may."""
    s = w.now
    n = w.count[q]
    if n >= limit:
        free = w.done[w.order[w.turn[q] + n - limit]]
        if free > s[NOW]:
            s[NOW] = free
            s[PHASE] = ROOM


@step
def _room_for_copies(w: HostWalk, c: HostCosts) -> None:
    for q in range(streams(w), w.role.size):
        _room(w, q, c.copies)


@step
def launch(w: HostWalk, c: HostCosts) -> None:
    """The next event is an operator: there is room for it, and its launch is paid."""
    s = w.now
    _room(w, w.stream[s[EVENT]], c.queue)
    _room_for_copies(w, c)
    call = w.call[w.arg[s[EVENT]]]
    s[NOW] += c.operator + max(0, call)
    s[ALLOC_NS] += max(0, call)
    if call < 0:  # the operator is tried again when the device is idle
        s[DRAIN] = 1
        s[OWED] -= call
        s[UNSURE] = 1
    s[PAID] = 1


@step
def _is_at(w: HostWalk, t: int) -> bool:
    """The host is at this time, but for what rounding device calls one by one takes away."""
    s = w.now
    if 0 < s[NOW] - t <= s[BLUR]:
        s[ALLOC_NS] -= s[NOW] - t
        s[BLUR] -= s[NOW] - t
        s[NOW] = t
    return bool(s[NOW] == t)


@step
def found(w: HostWalk, i: int) -> None:
    """Record i is where the host is; if not, say so, and go on from where the log has it."""
    s = w.now
    right = _is_at(w, w.t[i])
    if s[DRAIN] == 0 and s[OWE] == 0:
        s[BLUR] = 0
    if not right:
        if s[SAID] < w.said.shape[0]:
            row = w.said[s[SAID]]
            row[0], row[1], row[2], row[3] = i, s[NOW], w.t[i], s[PHASE]
            s[SAID] += 1
        s[NOW] = w.t[i]


@step
def follow(w: HostWalk, c: HostCosts, i: int) -> None:
    """A record that says not which event it belongs to: this step's, the next one's, or that of the next event."""
    s, t = w.now, w.t[i]
    if s[AFTER] == 1:
        settle(w)
    if t == s[NOW]:
        return
    if s[AFTER] == 2:  # evictions, device calls, until the tensor has its block
        pay(w)
    else:
        settle(w)
    if s[AFTER] == 2 or _is_at(w, t):
        found(w, i)
        return
    ends(w)
    if _is_at(w, t):
        return
    between(w, c, w.event.size)
    if _is_at(w, t):
        return
    if s[PAID] == 0 and s[EVENT] < w.event.size and w.event[s[EVENT]] == OP:
        _room_for_copies(w, c)  # a plan's come before the operator
        if _is_at(w, t):
            return
        launch(w, c)
    if s[PAID] and t != s[NOW]:  # the operator is submitted in a second try, and its old copies below are given up first
        s[UNSURE] = 1
        drain(w)
    found(w, i)
