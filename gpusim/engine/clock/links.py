"""Links as fluids: flows in service share the links of their routes max-min fairly, each bound by its own rate as well.

Fluid time is continuous: the rates change at the exact moment at which a flow ends; only the tick at which the end is *seen*
is rounded, up ("not at t - 1, yes at t").  A flow is one copy or collective that is past its start-up latency, or the own
work of a kernel that others slow down.

Behind its route each way passes the memory of the device, where that is shared: so often as its flow says, and only while the
memory does not suffice for all (`sharing`).
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.state import Instructions, Island

# Differences below this many nanoseconds are float noise: two flows that end so close together end together.
SAME_INSTANT = 1e-4


@kernel
def share(isl: Island, prog: Instructions) -> None:
    """Rates of all flows by progressive filling (Bertsekas & Gallager, Data Networks, section 6.5.2), own bounds included."""
    n, tight = isl.clock[0].flows, isl.clock[0].tight
    flow, link, ways, route = isl.flow, isl.link, isl.ways, prog.route
    if n == 1 and tight == 0:  # alone: what the narrowest link of its route lets through
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
        for r in range(w.route, w.route_end + tight * flow[f].passes):
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
        level_or_less = level * (1.0 + 1e-12)
        # Decide on this level for all flows before any share is taken, or the order of flows would matter.
        for f in range(n):
            x = flow[f]
            if x.fixed == 0:
                bound = x.cap <= level_or_less
                w = ways[x.way]
                for r in range(w.route, w.route_end + tight * x.passes):
                    k = link[route[r]]
                    bound = bound or k.left <= level_or_less * k.users
                if bound:
                    x.fixed = 2
        for f in range(n):
            x = flow[f]
            if x.fixed == 2:
                x.fixed = 1
                x.rate = level
                open_flows -= 1
                w = ways[x.way]
                for r in range(w.route, w.route_end + tight * x.passes):
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


@outlined
def catch_up(isl: Island) -> None:
    """All flows have run up to now."""
    c = isl.clock[0]
    advance(isl, float(c.now - c.fluid_base))
    c.fluid_time = float(c.now - c.fluid_base)


@kernel
def add(isl: Island, activity: int, way: int, passes: int, size: float, cap: float) -> None:
    """One more flow."""
    c = isl.clock[0]
    x = isl.flow[c.flows]
    c.flows += 1
    x.activity, x.way, x.passes, x.remaining, x.cap, x.rate = activity, way, passes, size, cap, 0.0
    c.reshare = 1


@kernel
def remove(isl: Island, f: int) -> None:
    """Flow f is none any more."""
    c = isl.clock[0]
    c.flows -= 1
    isl.flow[f] = isl.flow[c.flows]
    c.reshare = 1


@kernel
def begin(isl: Island, activity: int, way: int, size: float, cap: float) -> None:
    """An activity starts to move `size` bytes now; the loop reschedules."""
    catch_up(isl)
    add(isl, activity, way, isl.ways[way].passes, size, cap)


@kernel
def take_ended(isl: Island) -> Any:
    """Remove the flow that ends next, at its exact time; returns its activity and its way.

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
    activity, way = isl.flow[ended].activity, isl.flow[ended].way
    remove(isl, ended)
    c.reshare = others <= 1
    return activity, way
