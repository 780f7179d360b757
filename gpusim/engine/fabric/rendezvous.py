"""Where activities of several programs meet: the last to start begins what they do together."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.clock import links
from gpusim.engine.fabric.tables import Fabric
from gpusim.engine.host.island import island_at, program_at
from gpusim.engine.state import MEETS, NEVER, Processes


@kernel
def gather(fabric: Fabric, many: Processes, now: int) -> None:
    """Activities have started that meet others; those that are the last have their bytes flow when the latency is over."""
    one = island_at(many.rows[0].island)
    for i in range(one.fluid[0].arrivals):
        came = one.arrived[i]
        row = many.rows[came.process]
        a = island_at(row.island).activities[came.activity]
        meets = program_at(row.program).meets
        first, end = meets[a.arg], meets[a.arg + 1]
        a.parts = end - first - 1
        for m in range(first, end):
            k = fabric.meetings[m]
            met = fabric.rendezvous[k]
            fabric.members[met.first + met.arrived] = came
            met.arrived += 1
            if met.arrived == met.expected:
                met.begins = now + met.latency
                fabric.beginning[0] += 1
                fabric.beginning[fabric.beginning[0]] = k
    one.fluid[0].arrivals = 0


@kernel
def next_to_begin(fabric: Fabric) -> int:
    """When the next of those begins whose members are all there, ns; NEVER without any."""
    time = NEVER
    for i in range(1, fabric.beginning[0] + 1):
        time = min(time, fabric.rendezvous[fabric.beginning[i]].begins)
    return time


@kernel
def begin(fabric: Fabric, many: Processes, now: int) -> None:
    """The first of those that begin now does: its bytes flow, and its members' waiting is booked, of a batch the longest."""
    i = 1
    while fabric.rendezvous[fabric.beginning[i]].begins != now:
        i += 1
    k = fabric.beginning[i]
    while i < fabric.beginning[0]:
        fabric.beginning[i] = fabric.beginning[i + 1]
        i += 1
    fabric.beginning[0] -= 1
    met = fabric.rendezvous[k]
    for member in range(met.first, met.first + met.expected):
        row = many.rows[fabric.members[member].process]
        if row.ended:
            continue
        isl = island_at(row.island)
        a = isl.activities[fabric.members[member].activity]
        longer = max(0, now - met.latency - a.start - a.waited)
        isl.counts[0].collective_wait += longer
        a.waited += longer
    one = island_at(many.rows[0].island)
    links.catch_up_to(one, now)
    x = links.put(one, -1, k, MEETS, met.size, met.cap)
    x.route, x.route_end, x.passes = met.route, met.route_end, 0
