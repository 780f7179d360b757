"""What each copy and each operator that the host submits has to wait for."""

from __future__ import annotations

from gpusim.referee.activities import NEVER
from gpusim.referee.host.memory import give_up
from gpusim.referee.host.tables import (
    AFTER,
    ALLOC_NS,
    COPIED,
    DRAIN,
    EVENT,
    HAD,
    HITS,
    IDLE,
    LATEST,
    NOW,
    OWE,
    PAID,
    PREFETCHES,
    PROMOTED,
    STAGED,
    STIRRED,
    SYNC_NS,
    TRIED,
    UNSURE,
    WAS_IDLE,
    HostCosts,
    HostWalk,
)
from gpusim.referee.host.timeline import between, drain, ends, found, launch, pass_over, pay, streams
from gpusim.referee.world import step
from gpusim.results.log import COPY, REDIRECT, UNPLACE


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
def copy(w: HostWalk, c: HostCosts, i: int) -> None:
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
        give_up(w, u)
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
def issue(w: HostWalk, c: HostCosts, i: int) -> None:
    """The operator is submitted, in the step that has asked for its tensors, or in a later one."""
    s, t = w.now, w.t[i]
    s[TRIED] = -1
    paid = s[PAID] == 1 or (c.operator == 0 and w.call[w.a[i]] == 0)
    same = t == s[NOW] and s[AFTER] == 0 and s[DRAIN] == 0 and s[STAGED] <= t and paid
    if not same:
        ends(w)
        if s[PAID] == 0:
            between(w, c, w.event.size)
            launch(w, c)
            if s[DRAIN]:
                s[TRIED] = s[NOW]
        else:
            s[UNSURE] = 1
        drain(w)
        found(w, i)
    elif s[PAID] == 0:
        pass_over(w, c)
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
def called_back(w: HostWalk, i: int) -> None:
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
    half = (w.role.size - streams(w)) // 2
    for k in (q, q + half if q + half < w.role.size else q - half):
        for j in range(w.turn[k], w.turn[k] + w.count[k]):
            began = w.started[w.order[j]]
            if 0 <= began < i:
                _needs(w, act, k, w.done[w.order[j]])


@step
def regained(w: HostWalk, i: int) -> None:
    """The host has waited until others had left its device's memory: until when, all runs together say."""
    s = w.now
    pay(w)
    if w.t[i] > s[NOW]:
        s[ALLOC_NS] += w.t[i] - s[NOW]
        s[NOW] = w.t[i]
    if s[AFTER] != 2:
        s[UNSURE] = 1
