"""One step for each record of the host."""

from __future__ import annotations

from gpusim.base.compiled import kept
from gpusim.referee.host.memory import cancel, defrag, device_calls, give_up, place, unplace
from gpusim.referee.host.submissions import called_back, copy, issue, regained
from gpusim.referee.host.tables import AFTER, EVENT, NOW, REACHED, REARRANGED, UNIT, WAS_IDLE, HostCosts, HostWalk
from gpusim.referee.host.timeline import between, ends, follow, found, pass_over
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
    OOM,
    PLACE,
    REGAINED,
    RELEASE,
    RELEASED,
    RESERVE,
    STALL,
    START,
    UNPLACE,
    WANTS,
)


@step
def _create(w: HostWalk, c: HostCosts, i: int) -> None:
    s = w.now
    if s[AFTER] or s[REARRANGED] != i - 1 or w.t[i] != s[NOW]:  # else it is of the step in which memory was rearranged
        ends(w)
        between(w, c, w.event.size)
    found(w, i)
    s[EVENT] += 1
    s[UNIT] = w.a[i]
    s[AFTER] = 2 if w.bytes[w.a[i]] > 0 else 1


@step
def _destroy(w: HostWalk, c: HostCosts, i: int) -> None:
    s = w.now
    if w.t[i] != s[NOW] or s[AFTER]:
        ends(w)
        between(w, c, w.event.size)
    else:
        pass_over(w, c)
    found(w, i)
    s[EVENT] += 1
    s[AFTER] = 1


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
            called_back(w, i)
            continue
        if k == DECIDE and w.b[i] == REGAINED:
            regained(w, i)
        elif k == DECIDE and w.b[i] == WANTS:
            follow(w, c, i)
        elif k == CREATE:
            _create(w, c, i)
        elif k == DESTROY:
            give_up(w, w.a[i])
            _destroy(w, c, i)
        elif k == ISSUE:
            issue(w, c, i)
        elif k == DEFRAG:
            defrag(w, c, i)
        elif k != OOM:
            follow(w, c, i)
            if k in (RESERVE, RELEASE):
                device_calls(w, c, i)
            elif k == PLACE:
                place(w, c, i)
            elif k == UNPLACE:
                unplace(w, i)
            elif k == CANCEL:
                cancel(w, i)
            elif k == COPY:
                copy(w, c, i)
            elif k == DECIDE and w.b[i] != RELEASED:  # a plan acts when the next event is its operator
                pass_over(w, c)
                s[REACHED] = s[EVENT] + 1
        s[WAS_IDLE] = -1
    ends(w)
    between(w, c, w.event.size)
    return int(s[NOW])


each_record = kept(_nrt=False)(_each_record)
