"""What stays idle longest and largest while there is too much leaves, for flash where the way there and back has time for it.

target  share of the memory that the planned program shall take
delta   share of a copy's time by which it is taken to be late

The stretch with the most benefit goes first: its bytes times the time for which they would be in the way.  A stretch must be
longer than both copies, one of them late; the last tier below serves as flash, the first as host memory, one of them alone as
the host.  Copies get what the links can still carry while each kernel runs, and come back as early as there is room.  The tiers
make the paper's variants: `nvme(direct=1)` alone is G10-GDS, `host > nvme(direct=1)` G10-Host, neither with unified memory.

Source: H. Zhang et al., "G10: Enabling an efficient unified GPU memory and storage architecture with smart tensor migrations",
MICRO 2023; the planner is that of `gpusim reproduce g10`.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.plan.parts.migration import BACK, FLASH, Costs, Planner, Stretches
from gpusim.policies.planning import EVICT, NOTHING, PREFETCH, Schedule, View

PARAMS = {"target": 0.99, "delta": 0.5}
KNOWS = "future"


def plan(view: View, target: float = 0.99, delta: float = 0.5) -> Schedule:
    if not view.tiers:
        return NOTHING
    work, near, far = view.work, view.tiers[0], view.tiers[-1]
    costs = Costs(
        min(near.read, near.write), min(far.read, far.write) if len(view.tiers) > 1 else 0.0, near.write_latency,
        max(0.0, far.write_latency - near.write_latency), near.capacity, delta,
    )  # fmt: skip
    time = np.append(work.clock, work.clock[-1] + work.duration[-1]) if len(work.clock) else np.zeros(1)
    gaps = view.gaps
    rows = np.flatnonzero(work.trace.size[gaps.unit] > 0)
    stretches = Stretches(gaps.unit[rows], gaps.begin[rows] + 1, gaps.end[rows])
    planner = Planner(time, view.live, work.trace.size, stretches, costs, view.capacity, int(target * view.capacity))
    tier = {FLASH: len(view.tiers)}
    return Schedule.of(
        (k, PREFETCH, t) if to == BACK else (k, EVICT, t, tier.get(to, 1)) for k, t, to in planner.steps()
    )
