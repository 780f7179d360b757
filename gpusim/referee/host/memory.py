"""What records of blocks cost the host, and what the next block at their addresses has to wait for."""

from __future__ import annotations

from gpusim.referee.host.tables import (
    AFTER,
    ALLOC_NS,
    BLUR,
    BLURRED,
    CANCELLED,
    DRAIN,
    EVENT,
    FREED,
    HAD,
    IDLE,
    NOW,
    OWE,
    OWED,
    PAID,
    REARRANGED,
    RECENT,
    UNIT,
    UNSURE,
    WASTED,
    HostCosts,
    HostWalk,
)
from gpusim.referee.host.timeline import between, drain, ends, found, launch, pay, settle, until
from gpusim.referee.world import step
from gpusim.results.log import MOVE, RELEASE, RESERVE


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
def device_calls(w: HostWalk, c: HostCosts, i: int) -> None:
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
        blocks = w.blocks[m, _power(size)]
        blocks[1] += 1
        if blocks[1] > blocks[0]:
            blocks[0] += 1
            _spend(w, int(w.costs[m, 0] + w.costs[m, 1] * (1 << _power(size))))
    else:
        _spend(w, int(w.costs[m, 0] + w.costs[m, 1] * size))


@step
def place(w: HostWalk, c: HostCosts, i: int) -> None:
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
def give_up(w: HostWalk, u: int) -> None:
    """A prefetched tensor leaves or ends that nothing has used."""
    if w.brought[u] >= 0:
        if w.moving[u]:
            w.now[CANCELLED] += 1
        else:
            w.now[WASTED] += 1
        w.brought[u] = -1
        w.moving[u] = 0


@step
def unplace(w: HostWalk, i: int) -> None:
    """The block is free for the next; what the tensor waits for when it comes back is its copy out."""
    u = w.a[i]
    if w.b[i] != 0:
        w.gone[u] = i
        if w.kept[w.b[i]]:
            w.blocks[w.b[i], _power(w.size[i]), 1] -= 1
        else:
            _spend(w, int(w.costs[w.b[i], 2] * w.size[i]))
        return
    give_up(w, u)
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
def cancel(w: HostWalk, i: int) -> None:
    u, q = w.a[i], w.queue[w.addr[i]]
    w.use[u, q] = 0
    w.after[u, q] = w.prior[u]
    w.moving[u] = 1


@step
def defrag(w: HostWalk, c: HostCosts, i: int) -> None:
    """Memory is rearranged while the device is idle, which the host pays for when all is done."""
    s = w.now
    launches = w.b[i] & 1 and s[PAID] == 0
    if s[EVENT] < w.addr[i] or launches:
        ends(w)
        between(w, c, w.addr[i])
        if launches:
            until(w)
            launch(w, c)
    elif w.b[i] & 2:
        pay(w)
    else:
        settle(w)
    if w.t[i] != max(s[NOW], s[IDLE]):
        until(w)
    if s[IDLE] > s[NOW]:
        s[DRAIN] = 1
        drain(w)
    found(w, i)
    last = min(i + w.a[i], w.kind.size - 1)
    spent = 0.0
    for k in range(i + 1, last + 1):
        spent += _cost(w, c, k)
    s[OWE] += int(spent) + s[OWED]
    s[ALLOC_NS] += int(spent) + s[OWED]
    s[OWED], s[DRAIN] = 0, 0
    s[UNSURE] |= w.b[i] == 3
    s[REARRANGED] = last
