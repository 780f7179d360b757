"""The memories of devices whose programs share links: all flows are passed once, however many programs there are."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.engine.clock import sharing
from gpusim.engine.host.island import island_at
from gpusim.engine.state import MEETS, Processes


@kernel
def loosen(many: Processes) -> None:
    """The bandwidth of each memory is taken to suffice."""
    tight = 0
    for p in range(many.rows.size):
        c = island_at(many.rows[p].island).clock[0]
        tight += c.tight
        c.tight = 0
    if tight:
        pass_memory(many)


@kernel
def tighten(many: Processes) -> None:
    """Where it does not, all has to be shared once more."""
    rows, short = many.rows, 0
    one = island_at(rows[0].island)
    for p in range(rows.size):
        island_at(rows[p].island).clock[0].demand = 0.0
    for f in range(one.fluid[0].flows):
        x = one.flow[f]
        if x.process >= 0:
            island_at(rows[x.process].island).clock[0].demand += x.rate * x.passes
    for p in range(rows.size):
        if rows[p].ended == 0 and sharing.is_short(island_at(rows[p].island)):
            sharing.slow_down(island_at(rows[p].island))
            short = 1
    if short:
        pass_memory(many)
        one.fluid[0].reshare = 1


@kernel
def pass_memory(many: Processes) -> None:
    """The routes of all flows, through the memories as well that are tight."""
    one = island_at(many.rows[0].island)
    for f in range(one.fluid[0].flows):
        x = one.flow[f]
        if x.process >= 0 and x.way != MEETS:
            isl = island_at(many.rows[x.process].island)
            x.route_end = isl.ways[x.way].route_end + isl.clock[0].tight * x.passes
