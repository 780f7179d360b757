"""The walk's records about data: copies and kernels, which version they find, and whether they came too early."""

from __future__ import annotations

from gpusim.referee import codes as c
from gpusim.referee.activities import NEVER
from gpusim.referee.codes import DEVICE
from gpusim.referee.world import World, say, step


@step
def _starts_after(w: World, act: int, unit: int, need: int) -> None:
    """The activity started, if it did, when `need` (ns) had passed."""
    if w.start[act] < need:
        if need >= NEVER:
            say(w, w.start_record[act], c.NEVER_DONE, act, unit)
        else:
            say(w, w.start_record[act], c.TOO_EARLY, act, need)


@step
def copy(w: World, i: int, u: int, route: int, act: int, n: int) -> None:
    src, dst = route >> 8 & 255, route & 255
    if src != DEVICE and dst != DEVICE:
        pass  # a lender wants its memory back: counted with the decisions
    elif dst == DEVICE:
        w.ledger[c.INS] += 1
        w.ledger[c.BYTES_IN] += n
        w.tier_bytes[src, c.T_IN] += n
    else:
        w.ledger[c.OUTS] += 1
        w.ledger[c.BYTES_OUT] += n
        w.tier_bytes[dst, c.T_OUT] += n
    if n != w.wire[u]:
        say(w, i, c.WRONG_MOVE, n, w.wire[u])
    if w.where[src, u] < 0 or w.where[dst, u] < 0:
        say(w, i, c.NO_ENDS, u, src if w.where[src, u] < 0 else dst)
        return
    if w.holds[src, u] < 0:
        say(w, i, c.NO_SOURCE, act, u)
    need = max(w.before[src, u], w.written[src, u], w.before[dst, u], w.touched[dst, u])
    _starts_after(w, act, u, need)
    w.holds[dst, u] = w.holds[src, u]
    w.touched[src, u] = max(w.touched[src, u], w.end[act])
    w.touched[dst, u] = max(w.touched[dst, u], w.end[act])
    w.written[dst, u] = w.end[act]
    if src == DEVICE:
        w.reason[u] = 2
    elif dst == DEVICE and w.arrived[u] == 0:
        w.arrived[u] = 1
        w.ledger[c.CREATED] -= w.block[DEVICE, u]
        w.ledger[c.ARRIVED] += w.block[DEVICE, u]


@step
def redirect(w: World, i: int, u: int, route: int, act: int, n: int) -> None:
    """A copy that has not started goes to, or comes from, another memory below than the lent one that holds the tensor."""
    to = max(route >> 8 & 255, route & 255)
    lent = 0
    for m in range(1, w.capacity.size):
        if m != to and w.where[m, u] >= 0:
            lent = m
    if lent == 0 or w.where[to, u] < 0:
        say(w, i, c.NO_ENDS, u, to)
        return
    column = c.T_IN if route & 255 == DEVICE else c.T_OUT
    w.tier_bytes[lent, column] -= n
    w.tier_bytes[to, column] += n
    if column == c.T_IN:
        _starts_after(w, act, u, max(w.before[to, u], w.written[to, u]))
        w.touched[to, u] = max(w.touched[to, u], w.end[act])
    else:
        w.holds[to, u] = w.holds[lent, u]
        w.written[to, u] = w.touched[to, u] = w.end[act]


@step
def issue(w: World, i: int, op: int, act: int) -> None:
    """A kernel finds its tensors, starts after those whose work it needs or undoes, and makes new versions."""
    w.ledger[c.KERNELS] += 1
    need, whose = 0, -1
    for j in range(w.read_start[op], w.read_start[op + 1]):
        t = w.read_id[j]
        w.ledger[c.ACCESSES] += 1
        if w.size[t] == 0:
            continue
        _reads(w, i, act, t)
        m = w.home[t]
        ends = max(w.before[m, t], w.written[m, t])
        if ends > need:
            need, whose = ends, t
    for j in range(w.write_start[op], w.write_start[op + 1]):
        t = w.write_id[j]
        w.ledger[c.ACCESSES] += 1
        if w.size[t] == 0:
            continue
        m = w.home[t]
        if w.where[m, t] < 0:
            say(w, i, c.NOT_RESIDENT, act, t)
        ends = max(w.before[m, t], w.touched[m, t])
        if ends > need:
            need, whose = ends, t
    _starts_after(w, act, whose, need)
    for j in range(w.read_start[op], w.read_start[op + 1]):
        t = w.read_id[j]
        w.touched[w.home[t], t] = max(w.touched[w.home[t], t], w.end[act])
    for j in range(w.write_start[op], w.write_start[op + 1]):
        _writes(w, act, w.write_id[j])


@step
def _reads(w: World, i: int, act: int, t: int) -> None:
    """The latest version is where operators use the tensor."""
    if w.where[w.home[t], t] < 0:
        say(w, i, c.NOT_RESIDENT, act, t)
    elif w.lost[t] != 0:
        say(w, i, c.LOST, act, t)
    elif w.holds[w.home[t], t] != w.version[t]:
        say(w, i, c.STALE, act, t)


@step
def _writes(w: World, act: int, t: int) -> None:
    """A new version, in this one memory alone."""
    m = w.home[t]
    w.touched[m, t] = max(w.touched[m, t], w.end[act])
    w.written[m, t] = w.end[act]
    w.version[t] += 1
    w.holds[m, t] = w.version[t]
    w.lost[t] = 0
    w.reason[t] = 0
