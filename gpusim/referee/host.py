"""The host's timeline, recomputed: when each of its records is made, and what each activity has to wait for.

The host carries out the trace's events one after another; each of its calls takes the time that the profile gives.  It waits

    for the device      at a sync, before it pays for memory given back, and before blocks are moved
    for a queue         that holds as many activities as it may
    for copies          to or from memory that is not pinned
    for a recorded time of the trace

and for nothing else: a record at any other time than these make it is a wait without a cause.  Where the log leaves open
whether a record belongs to one step or to the next (an evicted block may make room for a prefetch or for the next operator),
both are tried, in the order in which the host takes them.

What an activity waits for is in time what `memory.walk` checks as order: former users of the block at its addresses, the last
copy or write of its data, for a write and a copy out also the last uses.  Copies of an engine count as done in order, and the
users of blocks that were given back more than RECENT blocks ago count for all addresses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusim.base.compiled import kept
from gpusim.referee.activities import NEVER
from gpusim.referee.world import step
from gpusim.results.log import (
    CALLED_BACK,
    CANCEL,
    COPY,
    CREATE,
    DECIDE,
    DEFRAG,
    DESTROY,
    END,
    ISSUE,
    MOVE,
    OOM,
    PLACE,
    REDIRECT,
    REGAINED,
    RELEASE,
    RELEASED,
    RESERVE,
    STALL,
    START,
    UNPLACE,
    WANTS,
)
from gpusim.trace.trace import ALLOC, FREE, OP, RECORD, SYNC, WAIT

RECENT = 32  # blocks given back whose addresses are compared one by one with those of a new one

# The host's state: one row of numbers.
(
    NOW,        # when its present step began, ns
    OWE,        # what the calls of this step take
    STAGED,     # when the copies that it takes part in are there
    DRAIN,      # 1: it has given memory back, and waits for the device before it goes on
    OWED,       # what that costs then
    EVENT,      # the next event of the trace
    PAID,       # 1: the launch of the operator at hand is paid
    AFTER,      # 1: the present step has carried out an event; 2: the tensor has begun and has no block yet;
                # 3: the event is tried again, since its copies are there, and other steps may come before that
    UNIT,       # that tensor
    IDLE,       # when all that was submitted has ended
    COPIED,     # 1: the operator submitted last is a copy between host and device
    ALLOC_NS,   # of the time since the last operator: in the allocator,
    SYNC_NS,    # and in waits for the device
    FREED,      # blocks given back so far
    PHASE,      # why the host goes on when it does: an index into CAUSES
    REARRANGED, # the last record of the latest defragmentation, which has paid for all of them
    BLUR,       # ns that rounding the costs of device calls one by one may take away
    BLURRED,    # the same, of the whole run
    UNSURE,     # 1: the log does not tell whether a prefetch was still waiting when an operator asked for its tensor
    REACHED,    # one more than the event whose recorded time has come already
    TRIED,      # when the operator asked for its tensors, before it waited for the device; -1: as it is submitted
    LATEST,     # the operator submitted last
    HITS, WASTED, CANCELLED, PROMOTED, PREFETCHES,
    HAD,        # of OWE: for host memory, before which nothing of this step is submitted
    WAS_IDLE,   # since when the device was idle as others had it copy something, -1: they did not since the last record
    STIRRED,    # when they did
    SAID,
) = range(31)  # fmt: skip
STATE = SAID + 1

CAUSES = (
    "when its calls before that are done", "when the device is idle", "when there is room in the queue",
    "when its copies are there", "at the recorded time",
)  # fmt: skip
CALLS, IDLES, ROOM, COPIES, RECORDED = range(len(CAUSES))
MOST = 100


class HostCosts(NamedTuple):
    """ns, but for the limits, which count activities."""

    operator: int
    submit: int
    wait: int
    cached: int
    malloc: int
    malloc_per_byte: float
    free: int
    free_per_byte: float
    move_per_byte: float
    queue: int    # kernels that a stream's queue holds
    copies: int   # copies that an engine's queue holds


class HostWalk(NamedTuple):
    """Q queues, streams first; T tensors, A activities, E events, R records."""

    kind: Any      # int64[R] columns of the log
    a: Any
    b: Any
    addr: Any
    size: Any
    t: Any

    event: Any     # int64[E] columns of the trace
    arg: Any
    stream: Any
    time: Any
    read_start: Any
    read_id: Any
    write_start: Any
    write_id: Any
    bytes: Any     # int64[T]
    home: Any      # int64[T]
    program: Any   # uint8[O] 1: the operator copies between host and device
    call: Any      # int64[O] what the host's thread carries out itself, ns; below 0: when the device is idle

    queue: Any     # int64[A] its queue, streams first
    done: Any      # int64[A] when it and all before it in its queue have ended
    cancelled: Any
    started: Any   # int64[A] the record of its start
    submitted: Any # int64[A] the record of its submission
    turn: Any      # int64[Q + 1] activities of queue q are order[turn[q]:turn[q + 1]]
    order: Any     # int64[A]
    role: Any      # int64[Q] 0 stream, 1 to the device, 2 from it
    waits: Any     # uint8[memories] 1: the host waits for copies of this memory
    costs: Any     # float64[memories, 3] of a block of this memory, ns: by call, by byte, and by byte given back
    kept: Any      # uint8[memories] 1: a block that is given back is used again, and has a power of two as its size

    now: Any       # int64[24] the host's state
    count: Any     # int64[Q] submitted so far
    after: Any     # int64[T, Q] when an access may begin
    use: Any       # int64[T, Q] when the last uses end
    prior: Any     # int64[T] of a prefetch that has not begun: what it waits for in its own queue
    out: Any       # int64[T] the copy out of a tensor that leaves, -1 none
    moving: Any    # uint8[T] 1: its prefetch was called off because an operator wants it now
    sent: Any      # int64[T] its latest copy from the device, or from a lent memory to another tier; -1 none
    fetched: Any   # int64[T] its latest copy to the device, -1 none
    gone: Any      # int64[T] the record with which its copy below was given up, -1 none was
    brought: Any   # int64[T] the prefetch that nothing has used yet, -1 none
    wanted: Any    # int64[A] the operator that wants the copy, as the engine has it: the last one submitted before it,
                   # or the next where that has called a prefetch off; NEVER of an early one
    marks: Any     # int64[streams + stream events, Q]
    freed: Any     # int64[RECENT, 2] addresses
    freed_use: Any # int64[RECENT + 1, Q]

    blocks: Any    # int64[memories, 64, 2] of each power of two: blocks that there are, and that hold something
    submit: Any    # int64[A] when the host submits it, ns
    need: Any      # int64[A, 3] what the activity waits for: other streams, copies to the device, copies from it
    alloc_ns: Any  # int64[A] of the host's time before it
    sync_ns: Any
    late: Any      # int64[A] the latest prefetch that an operator uses, -1 none
    said: Any      # int64[MOST, 4] record, expected, found, cause


@step
def _settle(w: HostWalk) -> None:
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
        _drain(w)
        s[AFTER] = 0


@step
def _pay(w: HostWalk) -> None:
    """What the calls before this one of the same step take."""
    w.now[NOW] += w.now[OWE]
    w.now[OWE] = w.now[HAD] = 0


@step
def _ends(w: HostWalk) -> None:
    """The present step is over, and so is its event, which it may have had to try again when its copies were there."""
    _settle(w)
    if w.now[AFTER]:
        _drain(w)
        w.now[AFTER] = 0


@step
def _drain(w: HostWalk) -> None:
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
def _until(w: HostWalk) -> None:
    """The next event has a recorded time."""
    s = w.now
    e = s[EVENT]
    if e < w.event.size and w.time[e] >= 0 and s[REACHED] != e + 1:
        if w.time[e] > s[NOW]:
            s[NOW] = w.time[e]
            s[PHASE] = RECORDED
        _drain(w)


@step
def _between(w: HostWalk, c: HostCosts, end: int) -> None:
    """Events that leave no record: up to event `end` or the next that does."""
    s, streams = w.now, w.marks
    while s[EVENT] < end:
        _until(w)
        e = s[EVENT]
        kind, q = w.event[e], w.stream[e]
        if kind in (ALLOC, FREE, OP):
            break
        s[EVENT] += 1
        if kind == SYNC:
            waited = _idle(w) > s[NOW]
            if s[DRAIN]:
                _drain(w)
            elif waited:
                s[SYNC_NS] += _idle(w) - s[NOW]
                s[NOW] = _idle(w)
                s[PHASE] = IDLES
            if s[COPIED] and waited:
                s[NOW] += c.wait
                s[SYNC_NS] += c.wait
            s[COPIED] = 0
        elif kind == RECORD:
            at = _streams(w) + w.arg[e]
            for k in range(w.role.size):
                streams[at, k] = streams[q, k]
            if w.count[q] > 0:
                streams[at, q] = w.done[w.order[w.turn[q] + w.count[q] - 1]]
            else:
                streams[at, q] = 0
        elif kind == WAIT:
            at = _streams(w) + w.arg[e]
            for k in range(w.role.size):
                streams[q, k] = max(streams[q, k], streams[at, k])
        _drain(w)


@step
def _pass_over(w: HostWalk, c: HostCosts) -> None:
    """Events that leave no record are over, since something after them is done already: they have taken no time."""
    s = w.now
    t, drain, alloc, sync = s[NOW], s[DRAIN], s[ALLOC_NS], s[SYNC_NS]
    s[DRAIN] = 0
    _between(w, c, w.event.size)
    s[NOW], s[DRAIN], s[ALLOC_NS], s[SYNC_NS] = t, drain, alloc, sync


@step
def _streams(w: HostWalk) -> int:
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
    for q in range(_streams(w), w.role.size):
        _room(w, q, c.copies)


@step
def _launch(w: HostWalk, c: HostCosts) -> None:
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
def _found(w: HostWalk, i: int) -> None:
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
def _follow(w: HostWalk, c: HostCosts, i: int) -> None:
    """A record that says not which event it belongs to: this step's, the next one's, or that of the next event."""
    s, t = w.now, w.t[i]
    if s[AFTER] == 1:
        _settle(w)
    if t == s[NOW]:
        return
    if s[AFTER] == 2:  # evictions, device calls, until the tensor has its block
        _pay(w)
    else:
        _settle(w)
    if s[AFTER] == 2 or _is_at(w, t):
        _found(w, i)
        return
    _ends(w)
    if _is_at(w, t):
        return
    _between(w, c, w.event.size)
    if _is_at(w, t):
        return
    if s[PAID] == 0 and s[EVENT] < w.event.size and w.event[s[EVENT]] == OP:
        _room_for_copies(w, c)  # a plan's come before the operator
        if _is_at(w, t):
            return
        _launch(w, c)
    if s[PAID] and t != s[NOW]:  # the operator is submitted in a second try, and its old copies below are given up first
        s[UNSURE] = 1
        _drain(w)
    _found(w, i)


@step
def _create(w: HostWalk, c: HostCosts, i: int) -> None:
    s = w.now
    if s[AFTER] or s[REARRANGED] != i - 1 or w.t[i] != s[NOW]:  # else it is of the step in which memory was rearranged
        _ends(w)
        _between(w, c, w.event.size)
    _found(w, i)
    s[EVENT] += 1
    s[UNIT] = w.a[i]
    s[AFTER] = 2 if w.bytes[w.a[i]] > 0 else 1


@step
def _destroy(w: HostWalk, c: HostCosts, i: int) -> None:
    s = w.now
    if w.t[i] != s[NOW] or s[AFTER]:
        _ends(w)
        _between(w, c, w.event.size)
    else:
        _pass_over(w, c)
    _found(w, i)
    s[EVENT] += 1
    s[AFTER] = 1


@step
def _cost(w: HostWalk, c: HostCosts, i: int) -> float:
    """What the host pays for the device call, or the move of a block, of record i."""
    if w.kind[i] == MOVE:
        return float(c.submit + c.move_per_byte * w.size[i])
    if w.a[i]:
        return 0.0
    if w.kind[i] == RESERVE:
        return float(c.malloc + c.malloc_per_byte * w.size[i])
    return float(c.free + c.free_per_byte * w.size[i])


@step
def _device_calls(w: HostWalk, c: HostCosts, i: int) -> None:
    """The allocator's calls of the device from record i on, which end with the next other record: made and paid as one."""
    s = w.now
    if i <= s[REARRANGED]:
        return
    if i > s[REARRANGED] + 1 and (w.kind[i - 1] == RESERVE or w.kind[i - 1] == RELEASE) and w.t[i - 1] == w.t[i]:
        return
    spent = 0.0
    k = i
    while k < w.kind.size and (w.kind[k] == RESERVE or w.kind[k] == RELEASE) and w.t[k] == w.t[i]:
        spent += _cost(w, c, k)
        if w.a[k] == 0 and w.kind[k] == RELEASE:
            s[DRAIN] = 1
        s[BLUR] += k > i
        s[BLURRED] += k > i
        k += 1
    if s[DRAIN]:
        s[OWED] += int(spent)
    else:
        s[OWE] += int(spent)
        s[ALLOC_NS] += int(spent)


@step
def _spend(w: HostWalk, spent: int) -> None:
    """A call for host memory: what is submitted in this step comes after it."""
    s = w.now
    s[OWE] += spent
    s[HAD] += spent
    s[ALLOC_NS] += spent


@step
def _power(size: int) -> int:
    k = 0
    while 1 << k < size:
        k += 1
    return k


@step
def _take(w: HostWalk, m: int, size: int) -> None:
    """Memory m takes a copy in: in a block that is there, or in a new one."""
    if w.kept[m]:
        found = w.blocks[m, _power(size)]
        found[1] += 1
        if found[1] > found[0]:
            found[0] += 1
            _spend(w, int(w.costs[m, 0] + w.costs[m, 1] * (1 << _power(size))))
    else:
        _spend(w, int(w.costs[m, 0] + w.costs[m, 1] * size))


@step
def _place(w: HostWalk, c: HostCosts, i: int) -> None:
    s, u = w.now, w.a[i]
    if w.b[i] == 0:
        start, end = w.addr[i], w.addr[i] + w.size[i]
        for k in range(w.role.size):
            w.after[u, k] = max(w.after[u, k], w.freed_use[RECENT, k])
        for f in range(RECENT):
            if w.freed[f, 0] < end and start < w.freed[f, 1]:
                for k in range(w.role.size):
                    w.after[u, k] = max(w.after[u, k], w.freed_use[f, k])
    else:
        _take(w, w.b[i], w.size[i])
    if s[AFTER] == 2 and u == s[UNIT] and w.b[i] == w.home[u]:
        s[AFTER] = 1
        s[OWE] += c.cached
        s[ALLOC_NS] += c.cached


@step
def _give_up(w: HostWalk, u: int) -> None:
    """A prefetched tensor leaves or ends that nothing has used."""
    if w.brought[u] >= 0:
        if w.moving[u]:
            w.now[CANCELLED] += 1
        else:
            w.now[WASTED] += 1
        w.brought[u] = -1
        w.moving[u] = 0


@step
def _unplace(w: HostWalk, i: int) -> None:
    """The block is free for the next; what the tensor waits for when it comes back is its copy out."""
    u = w.a[i]
    if w.b[i] != 0:
        w.gone[u] = i
        if w.kept[w.b[i]]:
            w.blocks[w.b[i], _power(w.size[i]), 1] -= 1
        else:
            _spend(w, int(w.costs[w.b[i], 2] * w.size[i]))
        return
    _give_up(w, u)
    f = w.now[FREED] % RECENT
    w.now[FREED] += 1
    for k in range(w.role.size):
        w.freed_use[RECENT, k] = max(w.freed_use[RECENT, k], w.freed_use[f, k])
        w.freed_use[f, k] = w.use[u, k]
        w.use[u, k] = 0
        if w.role[k] != 2:
            w.after[u, k] = 0
    w.freed[f, 0], w.freed[f, 1] = w.addr[i], w.addr[i] + w.size[i]
    if w.out[u] >= 0:
        w.after[u, w.queue[w.out[u]]] = w.done[w.out[u]]
        w.out[u] = -1


@step
def _cancel(w: HostWalk, i: int) -> None:
    u, q = w.a[i], w.queue[w.addr[i]]
    w.use[u, q] = 0
    w.after[u, q] = w.prior[u]
    w.moving[u] = 1


@step
def _submitted(w: HostWalk, i: int, act: int) -> None:
    """Record i submits the activity."""
    w.submit[act] = w.t[i] + w.now[HAD]
    w.count[w.queue[act]] += 1
    if w.cancelled[act] == 0:
        w.now[IDLE] = max(w.now[IDLE], w.done[act])


@step
def _needs(w: HostWalk, act: int, k: int, time: int) -> None:
    """Activity `act` waits until `time` for something of queue k."""
    w.need[act, w.role[k]] = max(w.need[act, w.role[k]], time)


@step
def _copy(w: HostWalk, c: HostCosts, i: int) -> None:
    s, u, act = w.now, w.a[i], w.addr[i]
    q, into = w.queue[act], w.b[i] & 255 == 0
    for k in range(w.role.size):
        _needs(w, act, k, w.after[u, k])
        if not into:
            _needs(w, act, k, w.use[u, k])
    _submitted(w, i, act)
    w.wanted[act] = NEVER if w.b[i] >> 16 else s[LATEST] + w.moving[u]
    if into:
        w.fetched[u] = act
    else:
        w.sent[u] = act
    if into:
        w.prior[u] = w.after[u, q]
        w.after[u, q] = w.done[act]
        if w.b[i] >> 16:
            s[PREFETCHES] += 1
            w.brought[u] = act
    else:
        w.out[u] = act
        _give_up(w, u)
    w.use[u, q] = w.done[act]
    if w.moving[u]:
        w.moving[u] = 0  # it was paid for when it was prefetched
        w.brought[u] = act
        s[PROMOTED] += 1
    else:
        s[OWE] += c.submit
    if w.waits[max(w.b[i] >> 8 & 255, w.b[i] & 255)]:
        s[STAGED] = max(s[STAGED], w.done[act])


@step
def _issue(w: HostWalk, c: HostCosts, i: int) -> None:
    """The operator is submitted, in the step that has asked for its tensors, or in a later one."""
    s, t = w.now, w.t[i]
    s[TRIED] = -1
    paid = s[PAID] == 1 or (c.operator == 0 and w.call[w.a[i]] == 0)
    same = t == s[NOW] and s[AFTER] == 0 and s[DRAIN] == 0 and s[STAGED] <= t and paid
    if not same:
        _ends(w)
        if s[PAID] == 0:
            _between(w, c, w.event.size)
            _launch(w, c)
            if s[DRAIN]:
                s[TRIED] = s[NOW]
        else:
            s[UNSURE] = 1
        _drain(w)
        _found(w, i)
    elif s[PAID] == 0:
        _pass_over(w, c)
    s[EVENT] += 1
    s[PAID] = 0
    _operator(w, i, w.a[i], w.addr[i])


@step
def _operator(w: HostWalk, i: int, op: int, act: int) -> None:
    s, q = w.now, w.queue[act]
    s[LATEST] = op
    for k in range(w.role.size):
        if k != q:
            _needs(w, act, k, w.marks[q, k])
    _submitted(w, i, act)
    for j in range(w.read_start[op], w.read_start[op + 1]):
        _uses(w, i, act, w.read_id[j], False)
    for j in range(w.write_start[op], w.write_start[op + 1]):
        _uses(w, i, act, w.write_id[j], True)
    for j in range(w.read_start[op], w.read_start[op + 1]):
        w.use[w.read_id[j], q] = w.done[act]
    for j in range(w.write_start[op], w.write_start[op + 1]):
        w.use[w.write_id[j], q] = w.done[act]
        w.after[w.write_id[j], q] = w.done[act]
    w.alloc_ns[act], w.sync_ns[act] = s[ALLOC_NS], s[SYNC_NS]
    s[ALLOC_NS], s[SYNC_NS] = 0, 0
    s[COPIED] = w.program[op]


@step
def _promote(w: HostWalk, i: int, u: int, b: int) -> None:
    """The operator of record i wants the tensor of a prefetch that waits: it counts while the copy below is there, which a
    writing operator gives up last of all."""
    given_up = w.gone[u]
    if given_up > w.submitted[b]:
        k = i
        while w.kind[k - 1] == UNPLACE and w.b[k - 1] != 0:
            k -= 1
        if given_up < k:
            if w.t[given_up] == w.t[i]:
                w.now[UNSURE] = 1
            return
    w.now[PROMOTED] += 1
    w.wanted[b] = w.a[i]


@step
def _uses(w: HostWalk, i: int, act: int, u: int, writes: bool) -> None:
    """What the operator waits for because it accesses this tensor."""
    if w.bytes[u] == 0:
        return
    for k in range(w.role.size):
        if k != w.queue[act]:
            _needs(w, act, k, w.after[u, k])
            if writes:
                _needs(w, act, k, w.use[u, k])
    b = w.brought[u]
    if b >= 0:
        w.now[HITS] += 1
        if w.late[act] < 0 or w.queue[w.late[act]] != w.queue[b] or w.late[act] < b:
            w.late[act] = b
        began = w.started[b]
        waits = began < 0 or began > i or (w.now[TRIED] >= 0 and w.t[began] > w.now[TRIED])
        if w.b[w.submitted[b]] >> 16 and waits:
            _promote(w, i, u, b)
        w.brought[u] = -1


@step
def _defrag(w: HostWalk, c: HostCosts, i: int) -> None:
    """Memory is rearranged while the device is idle, which the host pays for when all is done."""
    s = w.now
    launches = w.b[i] & 1 and s[PAID] == 0
    if s[EVENT] < w.addr[i] or launches:
        _ends(w)
        _between(w, c, w.addr[i])
        if launches:
            _until(w)
            _launch(w, c)
    elif w.b[i] & 2:
        _pay(w)
    else:
        _settle(w)
    if w.t[i] != max(s[NOW], s[IDLE]):
        _until(w)
    if s[IDLE] > s[NOW]:
        s[DRAIN] = 1
        _drain(w)
    _found(w, i)
    last = min(i + w.a[i], w.kind.size - 1)
    spent = 0.0
    for k in range(i + 1, last + 1):
        spent += _cost(w, c, k)
    s[OWE] += int(spent) + s[OWED]
    s[ALLOC_NS] += int(spent) + s[OWED]
    s[OWED], s[DRAIN] = 0, 0
    s[UNSURE] |= w.b[i] == 3
    s[REARRANGED] = last


@step
def _called_back(w: HostWalk, i: int) -> None:
    """A record of a unit that leaves a lent memory, at a time that is not this host's."""
    u, act = w.a[i], w.addr[i]
    if w.kind[i] == UNPLACE:
        w.gone[u] = i
    elif w.kind[i] == COPY:
        q, sent, fetched = w.queue[act], w.sent[u], w.fetched[u]
        if sent >= 0:
            _needs(w, act, w.queue[sent], w.done[sent])
        if fetched >= 0 and (w.started[fetched] < 0 or w.started[fetched] > i or w.done[fetched] > w.t[i]):
            _moves(w, act, w.queue[fetched], i)
        w.submit[act] = w.t[i]
        w.count[q] += 1
        if w.now[WAS_IDLE] < 0 and w.now[IDLE] <= w.t[i]:
            w.now[WAS_IDLE], w.now[STIRRED] = w.now[IDLE], w.t[i]
        w.now[IDLE] = max(w.now[IDLE], w.done[act])
        w.after[u, q] = w.done[act]
        w.sent[u] = act
    elif w.kind[i] == REDIRECT and w.b[i] & 255 == 0:
        _needs(w, act, w.queue[w.sent[u]], w.done[w.sent[u]])


@step
def _moves(w: HostWalk, act: int, q: int, i: int) -> None:
    """The activity waits for the copies of queue q, due or not, that have started before record i."""
    half = (w.role.size - _streams(w)) // 2
    for k in (q, q + half if q + half < w.role.size else q - half):
        for j in range(w.turn[k], w.turn[k] + w.count[k]):
            began = w.started[w.order[j]]
            if 0 <= began < i:
                _needs(w, act, k, w.done[w.order[j]])


@step
def _regained(w: HostWalk, i: int) -> None:
    """The host has waited until others had left its device's memory: until when, all runs together say."""
    s = w.now
    _pay(w)
    if w.t[i] > s[NOW]:
        s[ALLOC_NS] += w.t[i] - s[NOW]
        s[NOW] = w.t[i]
    if s[AFTER] != 2:
        s[UNSURE] = 1


def _each_record(w: HostWalk, c: HostCosts) -> int:
    """One step per record of the host; returns when it is through with the program, ns."""
    s = w.now
    s[REARRANGED], s[WAS_IDLE] = -2, -1
    others = -1  # the last record of a unit that leaves a lent memory
    for i in range(w.kind.size):
        k = w.kind[i]
        if k in (START, END, STALL):
            continue
        if k == DECIDE and w.b[i] == CALLED_BACK:
            others = i + w.addr[i]
            continue
        if i <= others:
            _called_back(w, i)
            continue
        if k == DECIDE and w.b[i] == REGAINED:
            _regained(w, i)
        elif k == DECIDE and w.b[i] == WANTS:
            _follow(w, c, i)
        elif k == CREATE:
            _create(w, c, i)
        elif k == DESTROY:
            _give_up(w, w.a[i])
            _destroy(w, c, i)
        elif k == ISSUE:
            _issue(w, c, i)
        elif k == DEFRAG:
            _defrag(w, c, i)
        elif k != OOM:
            _follow(w, c, i)
            if k in (RESERVE, RELEASE):
                _device_calls(w, c, i)
            elif k == PLACE:
                _place(w, c, i)
            elif k == UNPLACE:
                _unplace(w, i)
            elif k == CANCEL:
                _cancel(w, i)
            elif k == COPY:
                _copy(w, c, i)
            elif k == DECIDE and w.b[i] != RELEASED:  # a plan acts when the next event is its operator
                _pass_over(w, c)
                s[REACHED] = s[EVENT] + 1
        s[WAS_IDLE] = -1
    _ends(w)
    _between(w, c, w.event.size)
    return int(s[NOW])


each_record = kept(_nrt=False)(_each_record)
