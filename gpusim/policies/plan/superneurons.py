"""Outputs of layers that compute long are checkpoints, which may leave; what other layers made is recomputed from them.

recompute  1: of a program that does not fit, what cheap layers saved for backward is dropped after its last use in the
           forward pass, and recomputed when backward needs it; 0: it stays
fill       share of the memory that the plan may fill; the rest is for what the allocator loses

Checkpoints leave only as the memory is short (the tensor cache), the least recently used first, each right after its last use
in the forward pass; each comes back with the backward of the checkpoint that is used before it.  Layers that compute long are
convolutions, matrix products and attention: these are never run again.  Departures from the paper: what is recomputed is kept
until it is used, whatever its layer needs (the paper drops it again where that is more); a tensor that the cache pushes out
leaves early, since the plan knows that it will.

Source: L. Wang et al., "SuperNeurons: Dynamic GPU memory management for training deep neural networks", PPoPP 2018.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.plan.parts.swap.idle import idle, saved, schedule
from gpusim.policies.plan.parts.swap.layers import made_by, needs_backward, products
from gpusim.policies.plan.parts.swap.recompute import Recompute
from gpusim.policies.plan.parts.swap.stretches import until_it_fits
from gpusim.policies.planning import Schedule, View
from gpusim.trace.trace import Trace

PARAMS = {"recompute": 1, "fill": 1.0}
LIMITS = {"recompute": 1}
KNOWS = "future"


def rewrite(view: View, recompute: int = 1, fill: float = 1.0) -> Trace:
    stretches = idle(view)
    maps = stretches.of(saved(view, stretches))
    if not recompute or not len(maps.unit) or view.live.max() <= fill * view.capacity:
        return view.work.trace
    again = Recompute(view.work)
    cheap = np.isfinite(again.cost(maps, products(view.work.trace)))
    return again.instead_of(maps.of(cheap)) if cheap.any() else view.work.trace


def plan(view: View, recompute: int = 1, fill: float = 1.0) -> Schedule:
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
