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
from gpusim.engine.state import NEVER, Island

# Differences below this many nanoseconds are float noise: two flows that end so close together end together.
SAME_INSTANT = 1e-4


@kernel
def share(isl: Island) -> None:
    """Rates of all flows by progressive filling (Bertsekas & Gallager, Data Networks, section 6.5.2), own bounds included."""
    n = isl.fluid[0].flows
    flow, link, route = isl.flow, isl.link, isl.route
    c = isl.clock[0]
    if n == 1 and c.tight == 0 and c.coupled == 0:  # alone: what the narrowest link of its route lets through
        rate = flow[0].cap
        for r in range(flow[0].route, flow[0].route_end):
            rate = min(rate, link[route[r]].rate)
        flow[0].rate = rate
        return
    open_flows, used = 0, 0
    for f in range(n):
        x = flow[f]
        free = x.route == x.route_end  # it shares nothing
        x.fixed = int(free)
        x.rate = x.cap if free else 0.0
        open_flows += not free
        for r in range(x.route, x.route_end):
            link[route[r]].users = 0
    for f in range(n):
        for r in range(flow[f].route, flow[f].route_end):
            k = link[route[r]]
            if k.users == 0:
                k.left = k.rate
                link[used].used = route[r]
                used += 1
            k.users += 1
    while open_flows > 0:
        level, busy = math.inf, 0
        for i in range(used):
            k = link[link[i].used]
            if k.users > 0:
                level = min(level, k.left / k.users)
                link[busy].used = link[i].used
                busy += 1
        used = busy
        for f in range(n):
            if flow[f].fixed == 0:
                level = min(level, flow[f].cap)
        level_or_less = level * (1.0 + 1e-12)
        # Decide on this level for all flows before any share is taken, or the order of flows would matter.
        for f in range(n):
            x = flow[f]
            if x.fixed == 0:
                bound = x.cap <= level_or_less
                for r in range(x.route, x.route_end):
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
                for r in range(x.route, x.route_end):
                    k = link[route[r]]
                    k.left = max(0.0, k.left - level)
                    k.users -= 1


@kernel
def first_end(isl: Island) -> float:
    """The exact time at which the next flow ends, ns after the fluid's base; infinite without flows."""
    now, end = isl.fluid[0].time, math.inf
    for f in range(isl.fluid[0].flows):
        end = min(end, now + isl.flow[f].remaining / isl.flow[f].rate)
    return end


@kernel
def advance(isl: Island, time: float) -> None:
    """Let all flows run up to `time`, ns after the fluid's base."""
    fluid = isl.fluid[0]
    step = time - fluid.time
    if step > 0.0:
        for f in range(fluid.flows):
            x = isl.flow[f]
            x.remaining = max(0.0, x.remaining - x.rate * step)
        fluid.time = time


@outlined
def catch_up(isl: Island) -> None:
    """All flows have run up to now."""
    catch_up_to(isl, isl.clock[0].now)


@kernel
def catch_up_to(isl: Island, now: int) -> None:
    """All flows have run up to this moment."""
    time = float(now - isl.fluid[0].base)
    advance(isl, time)
    isl.fluid[0].time = time


@kernel
def add(isl: Island, activity: int, way: int, passes: int, size: float, cap: float) -> Any:
    """One more flow of the program, returned."""
    w = isl.ways[way]
    x = put(isl, isl.clock[0].process, activity, way, size, cap)
    x.route, x.route_end, x.passes = w.route, w.route_end, passes
    if isl.traffic.size > 1:
        keep(isl, x)
    return x


@kernel
def put(isl: Island, process: int, activity: int, way: int, size: float, cap: float) -> Any:
    """One more flow, returned: its route is still to be said."""
    fluid = isl.fluid[0]
    x = isl.flow[fluid.flows]
    fluid.flows += 1
    x.process, x.activity, x.way = process, activity, way
    x.remaining, x.cap, x.rate, x.kept = size, cap, 0.0, 0
    fluid.reshare = 1
    return x


@outlined
def keep(isl: Island, x: Any) -> None:
    """A flow that begins now has a row of the traffic, while there is room."""
    fluid = isl.fluid[0]
    if fluid.kept < isl.traffic.size:
        t = isl.traffic[fluid.kept]
        t.begin, t.end, t.process, t.way, t.passes = isl.clock[0].now, NEVER, x.process, x.way, x.passes
        t.size, t.cap, t.left = x.remaining, x.cap, x.remaining
        x.kept = fluid.kept + 1
    fluid.kept += 1


@kernel
def remove(isl: Island, f: int) -> None:
    """Flow f is none any more."""
    fluid, kept = isl.fluid[0], isl.flow[f].kept
    if kept:
        isl.traffic[kept - 1].end, isl.traffic[kept - 1].left = isl.clock[0].now, isl.flow[f].remaining
    fluid.flows -= 1
    isl.flow[f] = isl.flow[fluid.flows]
    fluid.reshare = 1


@kernel
def begin(isl: Island, activity: int, way: int, size: float, cap: float) -> None:
    """An activity starts to move `size` bytes now; the loop reschedules."""
    catch_up(isl)
    add(isl, activity, way, isl.ways[way].passes, size, cap)


@kernel
def take_ended(isl: Island) -> Any:
    """Remove the flow that ends next, at its exact time; returns its process, activity and way.

    The loop reschedules, unless another flow ends at the same instant: then the tick stays for it.
    """
    fluid = isl.fluid[0]
    step = fluid.first - fluid.time
    ended, others, least = -1, 0, math.inf
    for f in range(fluid.flows):
        x = isl.flow[f]
        if step > 0.0:
            x.remaining = max(0.0, x.remaining - x.rate * step)
        left = x.remaining / x.rate
        if left <= SAME_INSTANT:
            others += 1
        if left < least:
            ended, least = f, left
    fluid.time = max(fluid.time, fluid.first)
    process, activity, way, kept = isl.flow[ended].process, isl.flow[ended].activity, isl.flow[ended].way, isl.flow[ended].kept
    remove(isl, ended)
    if kept:
        isl.traffic[kept - 1].end, isl.traffic[kept - 1].left = fluid.tick, 0.0
    fluid.reshare = others <= 1
    if others > 1:
        fluid.first = first_end(isl)
    return process, activity, way
