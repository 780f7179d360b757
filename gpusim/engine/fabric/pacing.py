"""How fast all goes on that programs on one device have under way, once something there has changed: in one pass.

Mostly nothing but kernels flows there, which pass no link, and the memory's bandwidth suffices for all.  Then a flow's rate is
its own bound, and one pass over the flows does what sharing links and memory would do in half a dozen.
"""

from __future__ import annotations

import math

from gpusim.base.compiled import kernel
from gpusim.engine.clock import sharing
from gpusim.engine.fabric import memory, tenants
from gpusim.engine.fabric.tables import Fabric
from gpusim.engine.host.island import island_at
from gpusim.engine.state import NO_WAY, Processes


@kernel
def pace(fabric: Fabric, many: Processes, now: int) -> None:
    """Kernels that flow are as fast as their programs' parts let them; where links or memory are shared, `reshare` stays."""
    g, rows = fabric.gpu[0], many.rows
    one = island_at(rows[0].island)
    fluid, paced, step = one.fluid[0], g.paced, 0.0
    if paced:
        step = float(now - fluid.base) - fluid.time
        fluid.time = float(now - fluid.base)
        g.paced = 0
    sharing.begin(one, now)
    if g.tight:
        g.tight = 0
        memory.loosen(many)
    total, passes, end = tenants.needs(fabric, many), 0, math.inf
    for f in range(fluid.flows):
        x = one.flow[f]
        if step > 0.0:
            x.remaining = max(0.0, x.remaining - x.rate * step)
        if x.process >= 0:
            if paced and x.way == NO_WAY:
                speed = x.granted * fabric.seats[x.process].part
                x.cap = x.need * speed if x.need > 0.0 else speed
            if rows[x.process].ended == 0:
                total += x.cap * x.passes
        x.rate = x.cap
        passes += x.route != x.route_end
        end = min(end, fluid.time + x.remaining / x.rate)
    device = one.devices[0]
    if passes == 0 and (device.shares_memory == 0 or total <= device.bandwidth):
        fluid.reshare = 0
        sharing.note(fluid, end)
