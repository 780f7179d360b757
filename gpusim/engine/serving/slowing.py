"""Copies and steps that share links: the memory of the devices, and wires over which both copies and collectives go.

While a step is under way, its kernels follow each other many times over, layer by layer, so its parts are taken as mixed evenly
in time.  A part needs so many bytes/ns of a link.  It shares the link max-min fairly with the copies that flow, each one
sharer for each time that it passes:

    copies       have of a link, on average over the step, what is left when each part takes its need or its fair share, the
                 lesser of both
    a part       of a step has what the copies leave, and its fair share at least; where that is less than its need it takes
                 longer in proportion
    a step       that takes longer is a flow from that moment on, of its own time in ns

A step of which no part needs more than copies leave ends at the time that was known when it began.
"""

from __future__ import annotations

from gpusim.base.compiled import function_at, kernel, outlined
from gpusim.engine.clock import links
from gpusim.engine.serving.tables import NEEDS, PARTS, SLOWED, Service
from gpusim.policies.schedule.parts.tables import NEVER

as_needs = function_at(NEEDS)
OWN = -1  # the way of a flow that is a step of engine `process`


@kernel
def changed(s: Service) -> None:
    """A step begins or ends beside copies, if there are any: what flows is shared anew."""
    if s.course[0].shares and s.fluid[0].flows > 0:
        links.catch_up_to(s, s.clock[0].now)
        s.fluid[0].reshare = 1


@kernel
def runs(s: Service, e: int) -> bool:
    """A step of the engine is under way on GPUs of its own, and it is known what it needs."""
    return bool(s.engine[e].ends != NEVER and s.engine[e].device < 0 and s.need[e, 0] != 0)


@outlined
def share(s: Service) -> None:
    """Rates of all copies, and how fast the steps go on beside them."""
    copies = 0
    for f in range(s.fluid[0].flows):
        copies += s.flow[f].way != OWN
    if copies:
        leave_to_copies(s)
        links.share(s)
        for i in range(s.link.size):
            s.link[i].left = 0.0
        for f in range(s.fluid[0].flows):
            x = s.flow[f]
            if x.way != OWN:
                for r in range(x.route, x.route_end):
                    s.link[s.route[r]].left += x.rate
    for e in range(s.engine.size):
        if runs(s, e) and (copies or s.engine[e].ends == SLOWED):
            pace(s, e, copies)


@kernel
def leave_to_copies(s: Service) -> None:
    """The rate of each link for copies: what is left by steps that share it."""
    for i in range(s.link.size):
        s.link[i].rate, s.sharers[i] = s.full[i], 0
    for f in range(s.fluid[0].flows):
        if s.flow[f].way != OWN:
            for r in range(s.flow[f].route, s.flow[f].route_end):
                s.sharers[s.route[r]] += 1
    for k in range(s.shared.size):
        if runs(s, s.shared[k].engine) and s.sharers[s.shared[k].link] > 0:
            s.sharers[s.shared[k].link] += 1
    for k in range(s.shared.size):
        e, link = s.shared[k].engine, s.shared[k].link
        if runs(s, e) and s.sharers[link] > 0:
            find_needs(s, e)
            fair = s.full[link] / s.sharers[link]
            for part in range(PARTS):
                time = s.needs[e, 2 * part] / s.engine[e].took
                s.link[link].rate -= time * min(needed(s, k, part), fair)


@kernel
def find_needs(s: Service, e: int) -> None:
    """What the step under way needs, worked out when it is asked for."""
    x = s.engine[e]
    if not x.known:
        x.known = 1
        as_needs(s.need[e, 0], s.need[e, 1])(x.cost, x.step, s.needs[e])


@kernel
def foresee_needs(s: Service, e: int) -> None:
    """What the step that has just been composed needs, while the one before is under way."""
    if s.course[0].shares and s.need[e, 0] != 0:
        as_needs(s.need[e, 0], s.need[e, 1])(s.engine[e].cost, s.engine[e].step, s.needs_next[e])


@kernel
def take_needs(s: Service, e: int) -> None:
    """The step that was composed ahead is under way."""
    if s.course[0].shares and s.need[e, 0] != 0:
        s.engine[e].known = 1
        for i in range(2 * PARTS):
            s.needs[e, i] = s.needs_next[e, i]


@kernel
def needed(s: Service, k: int, part: int) -> float:
    """What a part of the step needs of its engine's k-th link, bytes/ns, no more than that has."""
    return min(s.needs[s.shared[k].engine, 2 * part + 1] * s.times[k, part], s.full[s.shared[k].link])


@kernel
def pace(s: Service, e: int, copies: int) -> None:
    """How fast the step of the engine goes on beside the copies that flow."""
    x, longer = s.engine[e], 0.0
    if copies:
        for part in range(PARTS):
            worst = 1.0
            for k in range(s.shared.size):
                link = s.shared[k].link
                if s.shared[k].engine == e and s.times[k, part] > 0 and s.sharers[link] > 0:
                    left = max(s.full[link] - s.link[link].left, s.full[link] / s.sharers[link])
                    worst = max(worst, needed(s, k, part) / left)
            longer += s.needs[e, 2 * part] * (worst - 1.0) if worst > 1.0 else 0.0
    speed = x.took / (x.took + longer)
    if x.ends == SLOWED:
        f = 0
        while s.flow[f].way != OWN or s.flow[f].process != e:
            f += 1
        s.flow[f].rate = s.flow[f].cap = speed
    elif longer > 0.0 and x.ends > s.clock[0].now:
        links.put(s, e, 0, OWN, float(x.ends - s.fluid[0].base) - s.fluid[0].time, speed)
        flow = s.flow[s.fluid[0].flows - 1]
        flow.route, flow.route_end, flow.passes, flow.rate = 0, 0, 0, speed
        x.ends = SLOWED
