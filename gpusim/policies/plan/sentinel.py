"""Tensors that are used seldom leave, those used often stay; what comes back does so an interval ahead.

interval  operators between two migrations to the device; 0: the power of two that is estimated fastest (test and trial)
fill      share of the memory that the plan may fill; the rest is for what the allocator loses

A tensor may leave when it is used neither in the rest of this interval nor in the next one, and comes back at the start of
the interval before that of its next use; what is used within one interval only (short-lived) never leaves.  The fewest
accesses in the whole program leave first, the larger of equals, until the rest fits.  Departures: tensors move whole, where
the paper groups them on pages by accesses; intervals are counted in operators, not in layers.

Source: J. Ren et al., "Sentinel: Efficient tensor migration and allocation on heterogeneous memory systems for deep
learning", HPCA 2021.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.plan.parts.swap.estimate import estimate
from gpusim.policies.plan.parts.swap.idle import idle, schedule
from gpusim.policies.plan.parts.swap.stretches import until_it_fits
from gpusim.policies.planning import Schedule, View

PARAMS = {"interval": 0, "fill": 1.0}
KNOWS = "future"


def plan(view: View, interval: int = 0, fill: float = 1.0) -> Schedule:
    stretches = idle(view)
    accesses = np.bincount(view.work.acc_unit, minlength=view.work.trace.tensors)
    order = np.lexsort((stretches.begin, -stretches.size, accesses[stretches.unit]))

    def with_interval(length: int) -> Schedule:
        back = (stretches.end // length - 1) * length
        may = stretches.end // length >= stretches.begin // length + 2
        rows = order[may[order] & (back[order] > stretches.begin[order] + 2)]
        rows = until_it_fits(view, stretches, back, rows, fill * view.capacity)
        return schedule(stretches.of(rows), back[rows])

    if interval:
        return with_interval(interval)
    longest = max(1, len(view.work.duration) // 4).bit_length()
    return min((with_interval(1 << power) for power in range(longest)), key=lambda made: estimate(view, made))
