"""What the island calls: a driver and the kernels of a GPU, at whole nanoseconds, behind one address.  Python's orders to the
driver (`aside`) come through the same door: entries of their own would each be compiled with most of the driver once more.

The driver's own times are fractions; an event is seen at the first tick that is not before it.  What happens at that tick goes
on from the exact moment, so that nothing is lost as long as nothing else comes between.
"""

from __future__ import annotations

from numba import types

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.engine.clock.managed import tick
from gpusim.engine.pages import host, server
from gpusim.engine.pages.driver_tables import DONE, DriverState
from gpusim.engine.pages.paging import (
    ASIDE,
    AT_REST,
    CALLED,
    DISCARDS,
    HALF,
    MOVES,
    RELEASES,
    TOUCHES,
    Order,
    PagedKernels,
    driver_at,
    order_at,
    paging_at,
)
from gpusim.engine.state import AHEAD, COPIED, DUE, LAUNCHED, NEVER, OF_STREAM, STOPPED


@kernel
def exact(at: float, now: int) -> float:
    """The moment at which something happens that is seen now, and was to happen at `at`."""
    return at if at < NEVER and tick(at) == now else float(now)


@entry(types.int64(types.int64, types.int64, types.int64, types.int64))
def door(tables: int, told: int, which: int, now: int) -> int:
    """What is told happens now, ns: of a stream, a transfer, or the driver.  When the driver goes on, NEVER if it waits.

    ASIDE: the tables are an Order, which is carried out at once; DONE, or why it cannot be.
    """
    if told == ASIDE:
        return int(carry_out(order_at(tables)))
    P = paging_at(tables)
    M = driver_at(P.driver[0])
    return tell(M, P, told, which, now)


@outlined
def carry_out(order: Order) -> int:
    """What Python orders, while the clock stands."""
    words = order.words
    M, what, first, outer, which = driver_at(words[0]), words[2], words[3], words[4], words[5]
    if what == TOUCHES:
        return int(host.host_touch(M, first, outer, which != 0))
    if what == MOVES:
        return int(host.migrate(M, first, outer, which))
    if what < 0:
        host.advise(M, first, outer, -1 - what, which)
    elif what == DISCARDS:
        host.discard(M, first, outer)
    elif what == RELEASES:
        host.release(M, first, outer)
    else:
        return int(server.run_alone(M, paging_at(words[1]), which))
    return DONE


@outlined
def tell(M: DriverState, P: PagedKernels, told: int, which: int, now: int) -> int:
    s, v, p = M.state[0], P.server[0], P.pager[0]
    s.now = exact(P.transfers[which].at, now) if told == COPIED else float(now)
    if told in (LAUNCHED, STOPPED) or (told == COPIED and which >= OF_STREAM):
        stream = which - OF_STREAM if told == COPIED else which
        operator = P.warps[stream].operator
        account(P, operator, -1)
        if told == LAUNCHED:
            server.launch(M, P, stream, operator)
        elif told == STOPPED:
            s.now = exact(P.warps[stream].stop, now)
            server.stopped(M, P, stream)
        else:
            server.copied(M, P, which)
        account(P, operator, 1)
    elif told == COPIED and which == AHEAD:
        server.copied(M, P, which)
    elif v.process == p.process and v.phase == CALLED:
        s.now, v.phase = exact(v.at, now), AT_REST
    elif v.process == p.process and v.phase != AT_REST:
        operator = P.warps[v.stream].operator
        account(P, operator, -1)
        if told == COPIED:
            server.copied(M, P, which)
        else:
            s.now = exact(v.at, now)
            server.due(M, P)
        account(P, operator, 1)
    if told == DUE and v.phase == AT_REST and s.failed == 0:
        q = server.turn(M, P)
        if q >= 0:
            account(P, P.warps[q].operator, -1)
            server.start(M, P, q)
            account(P, P.warps[q].operator, 1)
    if s.failed:
        p.failed = p.due = 1
    goes_on = v.process == p.process and v.phase != AT_REST and v.phase != HALF and v.phase != CALLED and v.at < NEVER
    return tick(v.at) if goes_on else NEVER


@kernel
def account(P: PagedKernels, operator: int, sign: int) -> None:
    """Before something happens because of an operator (sign -1), and behind it (1): what has been counted is its own."""
    if operator >= P.counted.shape[0]:
        return
    for p in range(P.counts.shape[0]):
        for k in range(P.counts.shape[1]):
            if P.is_ns[k]:
                P.counted_ns[operator, p, k] += sign * P.counts_ns[p, k]
            else:
                P.counted[operator, p, k] += sign * P.counts[p, k]
