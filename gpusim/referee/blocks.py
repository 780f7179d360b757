"""The walk's records about blocks: tensors begin and end, get a block and leave it, the allocator takes and gives back."""

from __future__ import annotations

from gpusim.referee import codes as c
from gpusim.referee.codes import DEVICE
from gpusim.referee.ranges import highest, lowest, paint
from gpusim.referee.world import World, say, step


@step
def create(w: World, i: int, u: int, n: int) -> None:
    if w.live[u] != 0:
        say(w, i, c.TWICE_BORN, u, 0)
    if n != w.size[u]:
        say(w, i, c.WRONG_SIZE, n, w.size[u])
    w.live[u] = 1


@step
def destroy(w: World, i: int, u: int, n: int) -> None:
    if w.live[u] != 1:
        say(w, i, c.NOT_LIVE, u, 0)
    if n != w.size[u]:
        say(w, i, c.WRONG_SIZE, n, w.size[u])
    w.live[u] = 2
    for memory in range(w.capacity.size):
        if w.where[memory, u] >= 0:
            say(w, i, c.ENDS_PLACED, u, memory)
    if w.left_at[u] >= 0:
        w.ledger[c.FREED] += w.left_bytes[u]
        w.left_at[u] = -1


@step
def place(w: World, i: int, u: int, m: int, at: int, n: int) -> None:
    if w.live[u] != 1:
        say(w, i, c.NOT_LIVE, u, 0)
    if w.where[m, u] >= 0:
        say(w, i, c.PLACED_TWICE, u, m)
        return
    least = w.size[u] if m == DEVICE else w.stored[u]
    if n < least or n <= 0:
        say(w, i, c.TOO_SMALL, n, least)
        return
    w.block[m, u] = n
    w.holds[m, u] = -1
    w.before[m, u] = 0
    w.written[m, u] = 0
    w.touched[m, u] = 0
    w.ledger[c.BLOCKS] += 1
    if m != DEVICE:
        _place_below(w, i, u, m, n)
    else:
        _place_on_device(w, i, u, at, n)


@step
def _place_below(w: World, i: int, u: int, m: int, n: int) -> None:
    w.where[m, u] = 0
    if m == w.home[u] and w.placed[u] == 0:
        w.placed[u] = 1
        w.holds[m, u] = w.version[u]  # as on the device
    now = w.tier_bytes[m, c.T_NOW] + n
    w.tier_bytes[m, c.T_NOW] = now
    w.tier_bytes[m, c.T_PEAK] = max(w.tier_bytes[m, c.T_PEAK], now)
    if now > w.capacity[m]:
        say(w, i, c.OVER_CAPACITY, m, now)


@step
def _place_on_device(w: World, i: int, u: int, at: int, n: int) -> None:
    w.where[DEVICE, u] = at
    if w.left_at[u] >= 0:
        say(w, i, c.NO_REASON, u, w.left_at[u])
        w.left_at[u] = -1
    w.reason[u] = 0
    w.arrived[u] = 0
    if w.placed[u] == 0:
        w.placed[u] = 1
        w.holds[DEVICE, u] = w.version[u]  # data that the tensor came with stands in its first block
    _take_addresses(w, i, u, at, n)
    ledger = w.ledger
    ledger[c.CREATED] += n
    ledger[c.A_NOW] += n
    ledger[c.A_TOTAL] += n
    ledger[c.Q_NOW] += w.size[u]
    ledger[c.Q_TOTAL] += w.size[u]
    ledger[c.Q_PEAK] = max(ledger[c.Q_PEAK], ledger[c.Q_NOW])
    ledger[c.R_PEAK] = max(ledger[c.R_PEAK], ledger[c.R_NOW])
    if ledger[c.A_NOW] > ledger[c.A_PEAK]:
        ledger[c.A_PEAK] = ledger[c.A_NOW]
        ledger[c.Q_AT_PEAK] = ledger[c.Q_NOW]
    if ledger[c.A_NOW] > w.capacity[DEVICE]:
        say(w, i, c.OVER_CAPACITY, DEVICE, ledger[c.A_NOW])


@step
def _take_addresses(w: World, i: int, u: int, at: int, n: int) -> None:
    """Reserved, and no block's until now."""
    inside = at >= 0 and lowest(w.held, at, at + n) == 1
    if not inside or (w.held.count[0] == 1 and at + n > w.capacity[DEVICE]):
        say(w, i, c.UNRESERVED, at, n)
    if at >= 0:
        owner = highest(w.owner, at, at + n)
        if owner >= 0:
            say(w, i, c.OVERLAP, at, owner)
        w.before[DEVICE, u] = highest(w.used, at, at + n)
        paint(w.owner, at, at + n, u)


@step
def _leave_addresses(w: World, u: int, at: int, n: int) -> None:
    """Free from now on; the next block here must wait for the last use."""
    if at >= 0:
        paint(w.owner, at, at + n, -1)
        if w.touched[DEVICE, u] > 0:
            paint(w.used, at, at + n, max(w.touched[DEVICE, u], w.before[DEVICE, u]))


@step
def _is_there(w: World, u: int, m: int, at: int, n: int) -> bool:
    """The tensor's block in this memory is the one that the record names."""
    return w.where[m, u] >= 0 and w.block[m, u] == n and (m != DEVICE or w.where[m, u] == at)


@step
def _elsewhere(w: World, u: int, m: int) -> bool:
    """The latest version is in another memory than m."""
    others = 0
    for k in range(w.capacity.size):
        if k != m and w.holds[k, u] == w.version[u]:
            others += 1
    return others > 0


@step
def unplace(w: World, i: int, u: int, m: int, at: int, n: int) -> None:
    if not _is_there(w, u, m, at, n):
        say(w, i, c.NO_SUCH_BLOCK, u, m)
        return
    w.where[m, u] = -1
    if w.holds[m, u] == w.version[u] and not _elsewhere(w, u, m):
        w.lost[u] = 1
    w.holds[m, u] = -1
    if m != DEVICE:
        w.tier_bytes[m, c.T_NOW] -= n
        return
    _leave_addresses(w, u, at, n)
    w.ledger[c.A_NOW] -= n
    w.ledger[c.Q_NOW] -= w.size[u]
    if w.reason[u] == 1:
        w.ledger[c.DROPPED] += n
    elif w.reason[u] == 2:
        w.ledger[c.DEPARTED] += n
    else:
        w.left_at[u] = i
        w.left_bytes[u] = n
    w.reason[u] = 0


@step
def move(w: World, i: int, u: int, m: int, at: int, n: int) -> None:
    """The allocator moved a block, with what it holds."""
    old = w.where[DEVICE, u]
    if m != DEVICE or old < 0 or w.block[DEVICE, u] != n:
        say(w, i, c.NO_SUCH_BLOCK, u, m)
        return
    _leave_addresses(w, u, old, n)
    w.where[DEVICE, u] = at
    _take_addresses(w, i, u, at, n)
    w.ledger[c.MOVED] += n


@step
def drop(w: World, i: int, u: int, m: int, at: int, n: int) -> None:
    if not _is_there(w, u, m, at, n):
        say(w, i, c.NO_SUCH_BLOCK, u, m)
    elif m == DEVICE:
        w.reason[u] = 1
        w.ledger[c.DROPS] += 1


@step
def reserve(w: World, i: int, at: int, n: int) -> None:
    if at < 0 or n <= 0 or highest(w.held, at, at + n) != 0:
        say(w, i, c.RESERVED_TWICE, at, 0)
        return
    paint(w.held, at, at + n, 1)
    w.ledger[c.RESERVES] += 1
    w.ledger[c.R_NOW] += n
    if w.ledger[c.R_NOW] > w.capacity[DEVICE]:
        say(w, i, c.OVER_CAPACITY, DEVICE, w.ledger[c.R_NOW])


@step
def release(w: World, i: int, at: int, n: int) -> None:
    if at < 0 or n <= 0 or lowest(w.held, at, at + n) != 1:
        say(w, i, c.NOT_RESERVED, at, 0)
        return
    owner = highest(w.owner, at, at + n)
    if owner >= 0:
        say(w, i, c.UNDER_BLOCK, at, owner)
    paint(w.held, at, at + n, 0)
    w.ledger[c.RELEASES] += 1
    w.ledger[c.R_NOW] -= n


@step
def out_of_memory(w: World, i: int, m: int, largest: int) -> None:
    w.ledger[c.OOMS] += 1
    # Whether the largest block would do is the allocator's to say: pools and streams keep some for themselves.
    free = w.capacity[DEVICE] - w.ledger[c.A_NOW]
    if m == DEVICE and largest > free:
        say(w, i, c.NOT_FULL, largest, free)


@step
def end(w: World, records: int) -> None:
    """What has left device memory had a reason, and what had one has left."""
    for u in range(w.size.size):
        if w.left_at[u] >= 0:
            say(w, w.left_at[u], c.NO_REASON, u, w.left_at[u])
        if w.reason[u] == 1 and w.where[DEVICE, u] >= 0:
            say(w, records - 1, c.STILL_THERE, u, DEVICE)
