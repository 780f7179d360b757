"""What has most time to spare between two accesses leaves first, until the program fits; in time it comes back.

fill  share of the memory that the plan may fill; the rest is for what the allocator loses

Accesses are those of the program without a limit, at its own pace.  The spare time of an idle stretch is its length less the
times of both copies.  Chosen are stretches during which too much would be there, most spare time first; where time runs out,
those that cost least.  The copies back take turns on the link: from the last on each ends when it is needed or when the next
one begins, and the operator at which it begins is its trigger, or a later one where there is no room yet.  Departures: no
recomputation, which the paper weighs against copies that cannot be hidden; triggers are not moved while the program runs.

Source: X. Peng et al., "Capuchin: Tensor-based GPU memory management for deep learning", ASPLOS 2020.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.planning import Schedule, View
from gpusim.swapping.choice import until_it_fits
from gpusim.swapping.idle import idle, in_time, in_turns, schedule

PARAMS = {"fill": 1.0}
KNOWS = "future"


def plan(view: View, fill: float = 1.0) -> Schedule:
    stretches = idle(view)
    order = np.lexsort((stretches.begin, -stretches.size, -stretches.spare_ns))
    room = fill * view.capacity
    chosen = stretches.of(until_it_fits(view, stretches, in_time(view, stretches), order, room))
    return schedule(chosen, in_turns(view, chosen, room))
