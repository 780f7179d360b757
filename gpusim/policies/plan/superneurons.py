"""Outputs of layers that compute long are the checkpoints that may leave, the least recently used first.

fill  share of the memory that the plan may fill; the rest is for what the allocator loses

Only as many leave as the memory is short of (the tensor cache), each right after its last use in the forward pass, and each
comes back with the backward of the checkpoint that is used before it.  Layers that compute long are convolutions, matrix
products and attention.  Departures from the paper: what cheap layers made stays, where it is dropped and computed again; a
tensor that the cache pushes out leaves early, since the plan knows that it will.

Source: L. Wang et al., "SuperNeurons: Dynamic GPU memory management for training deep neural networks", PPoPP 2018.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.planning import Schedule, View
from gpusim.swapping.choice import until_it_fits
from gpusim.swapping.idle import idle, saved, schedule
from gpusim.swapping.layers import made_by, needs_backward, products

PARAMS = {"fill": 1.0}
KNOWS = "future"


def plan(view: View, fill: float = 1.0) -> Schedule:
    trace = view.work.trace
    stretches = idle(view)
    maps = saved(view, stretches)
    needs_backward("superneurons", view, maps)
    checkpoints = stretches.of(maps & made_by(trace, products(trace))[stretches.unit])
    used = np.unique(checkpoints.end)
    before = np.searchsorted(used, checkpoints.end) - 1
    back = np.where(before >= 0, used[before], checkpoints.end) if len(used) else checkpoints.end
    back = np.clip(back, checkpoints.begin + 3, checkpoints.end)
    order = np.argsort(checkpoints.begin, kind="stable")
    rows = until_it_fits(view, checkpoints, back, order, fill * view.capacity)
    return schedule(checkpoints.of(rows), back[rows])
