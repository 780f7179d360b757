"""Which idle stretches to use, taken in some order until what is left on the device fits."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.policies.plan.parts.swap.idle import I64, Idle
from gpusim.policies.planning import View


def until_it_fits(view: View, stretches: Idle, back: I64, order: I64, room: float) -> I64:
    """The rows, in this order, that are each gone at some operator at which more than `room` bytes would still be there."""
    return _until_it_fits(view.live.copy(), stretches.begin, back, stretches.size, order, room)


@kept()
def _until_it_fits(here: Any, begin: Any, back: Any, size: Any, order: Any, room: float) -> Any:
    over = 0  # operators at which too much is there
    for o in range(here.size):
        over += here[o] > room
    chosen, n = np.empty(order.size, np.int64), 0
    for row in order:
        if over == 0:
            break
        helps = False
        for o in range(begin[row] + 2, back[row]):
            if here[o] > room:
                helps = True
                break
        if not helps:
            continue
        for o in range(begin[row] + 2, back[row]):
            over -= here[o] > room
            here[o] -= size[row]
            over += here[o] > room
        chosen[n] = row
        n += 1
    return chosen[:n]
