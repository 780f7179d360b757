"""Links as fluids: flows in service share the links of their routes max-min fairly, each bound by its own rate as well.

Fluid time is continuous: the rates change at the exact moment at which a flow ends; only the tick at which the end is *seen*
is rounded, up ("not at t - 1, yes at t").  A flow is one copy or collective that is past its start-up latency.
"""

from __future__ import annotations

import math

from gpusim.base.compiled import kernel
from gpusim.engine.state import NEVER, Instructions, Island

# Differences below this many nanoseconds are float noise: two flows that end so close together end together.
SAME_INSTANT = 1e-4


@kernel
def share(isl: Island, prog: Instructions) -> None:
    """Rates of all flows by progressive filling (Bertsekas & Gallager, Data Networks, section 6.5.2), own bounds included."""
    n = isl.clock[0].flows
    flow, link, ways, route = isl.flow, isl.link, isl.ways, prog.route
    if n == 1:  # alone: what the narrowest link of its route lets through
        rate = flow[0].cap
        w = ways[flow[0].way]
        for r in range(w.route, w.route_end):
            rate = min(rate, link[route[r]].rate)
        flow[0].rate = rate
        return
    for i in range(link.size):
        link[i].left = link[i].rate
        link[i].users = 0
    for f in range(n):
        flow[f].fixed = 0
        w = ways[flow[f].way]
        for r in range(w.route, w.route_end):
            link[route[r]].users += 1
    open_flows = n
    while open_flows > 0:
        level = math.inf
        for i in range(link.size):
            if link[i].users > 0:
                level = min(level, link[i].left / link[i].users)
        for f in range(n):
            if flow[f].fixed == 0:
                level = min(level, flow[f].cap)
        tight = level * (1.0 + 1e-12)
        # Decide on this level for all flows before any share is taken, or the order of flows would matter.
        for f in range(n):
            x = flow[f]
            if x.fixed == 0:
                bound = x.cap <= tight
                w = ways[x.way]
                for r in range(w.route, w.route_end):
                    k = link[route[r]]
                    bound = bound or k.left <= tight * k.users
                if bound:
                    x.fixed = 2
        for f in range(n):
            x = flow[f]
            if x.fixed == 2:
                x.fixed = 1
                x.rate = level
                open_flows -= 1
                w = ways[x.way]
                for r in range(w.route, w.route_end):
                    k = link[route[r]]
                    k.left = max(0.0, k.left - level)
                    k.users -= 1


@kernel
def first_end(isl: Island) -> float:
    """The exact time at which the next flow ends, ns after fluid_base; infinite without flows."""
    c = isl.clock[0]
    end = math.inf
    for f in range(c.flows):
        end = min(end, c.fluid_time + isl.flow[f].remaining / isl.flow[f].rate)
    return end


@kernel
def advance(isl: Island, time: float) -> None:
    """Let all flows run up to `time`, ns after fluid_base."""
    c = isl.clock[0]
    step = time - c.fluid_time
    if step > 0.0:
        for f in range(c.flows):
            x = isl.flow[f]
            x.remaining = max(0.0, x.remaining - x.rate * step)
        c.fluid_time = time


@kernel
def reschedule(isl: Island, prog: Instructions) -> None:
    """Share the links anew and note the tick that will see the next end."""
    c = isl.clock[0]
    c.reshare = 0
    # Count from the present tick: a float of all the time so far would lose its digits within the hour.
    c.fluid_time -= c.now - c.fluid_base
    c.fluid_base = c.now
    c.fluid_tick = NEVER
    if c.flows > 0:
        share(isl, prog)
        c.fluid_tick = c.now + max(math.ceil(first_end(isl) - SAME_INSTANT), 0)


@kernel
def begin(isl: Island, activity: int, way: int, size: float, cap: float) -> None:
    """An activity starts to move `size` bytes now; the loop reschedules."""
    c = isl.clock[0]
    advance(isl, float(c.now - c.fluid_base))
    c.fluid_time = float(c.now - c.fluid_base)
    x = isl.flow[c.flows]
    c.flows += 1
    x.activity, x.way, x.remaining, x.cap = activity, way, size, cap
    c.reshare = 1


@kernel
def take_ended(isl: Island) -> int:
    """Remove the flow that ends next, at its exact time; returns its activity.

    The loop reschedules, unless another flow ends at the same instant: then the tick stays for it.
    """
    c = isl.clock[0]
    advance(isl, first_end(isl))
    ended, others, least = -1, 0, math.inf
    for f in range(c.flows):
        x = isl.flow[f]
        left = x.remaining / x.rate
        if left <= SAME_INSTANT:
            others += 1
        if left < least:
            ended, least = f, left
    activity = isl.flow[ended].activity
    c.flows -= 1
    isl.flow[ended] = isl.flow[c.flows]
    c.reshare = others <= 1
    return activity
