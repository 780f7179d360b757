"""Feature maps of the forward pass leave for the host after their last use there; backward brings each back a layer ahead.

what  all: the inputs of all layers; conv: those of convolutions, and where there are none of matrix products; dyn: nothing
      where the program fits, else conv where that fits, else all

When backward comes to a layer, it brings back what the nearest earlier layer swapped out; it looks no further than to the next
convolution (or product).  What no layer has brought back in time comes on demand.  A layer is an operator.  Departures from
the paper: a copy to the host starts when the layer has ended, not with it; the block of a map is free for others at once, which
wait for the copy, where vDNN makes the next layer wait; dyn does not choose among algorithms of cuDNN.

Source: M. Rhu et al., "vDNN: Virtualized deep neural networks for scalable, memory-efficient neural network design", MICRO
2016.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.plan.parts.swap.idle import I64, Idle, Mask, fits, idle, saved, schedule
from gpusim.policies.plan.parts.swap.layers import convolutions_or_products, needs_backward, reads
from gpusim.policies.planning import NOTHING, Schedule, View

PARAMS = {"what": "all"}
KNOWS = "future"
WHAT = ("all", "conv", "dyn")


def plan(view: View, what: str = "all") -> Schedule:
    if what not in WHAT:
        hint = suggest(what, WHAT) or "known: " + ", ".join(WHAT)
        raise PolicyError(f"parameter 'what' of policy 'vdnn' is '{what}'", hint=hint)
    trace = view.work.trace
    stretches = idle(view)
    maps = saved(view, stretches)
    needs_backward("vdnn", view, maps)
    stretches = stretches.of(maps & reads(trace, stretches.begin, stretches.unit))
    heavy = convolutions_or_products(trace)
    inputs = np.zeros(trace.tensors, bool)
    inputs[trace.read_id[np.repeat(heavy, np.diff(trace.read_start))]] = True
    of_heavy = inputs[stretches.unit]
    if what == "dyn":
        if view.live.max(initial=0) <= view.capacity:
            return NOTHING
        chosen = stretches.of(of_heavy)
        back = _nearest_layer(stretches, of_heavy, heavy)[of_heavy]
        what = "conv" if fits(view, chosen, back, view.capacity) else "all"
    offloaded = of_heavy if what == "conv" else np.ones(len(of_heavy), bool)
    return schedule(stretches.of(offloaded), _nearest_layer(stretches, offloaded, heavy)[offloaded])


def _nearest_layer(stretches: Idle, offloaded: Mask, heavy: Mask) -> I64:
    """(G,) when what each layer swapped out comes back: with the backward of the layer that finds it."""
    back = stretches.end.copy()
    waiting: dict[int, list[int]] = {}  # layer -> rows that are still to be brought back
    for row in np.flatnonzero(offloaded):
        waiting.setdefault(int(stretches.begin[row]), []).append(int(row))
    layers, first = np.unique(stretches.begin, return_inverse=True)
    begins = np.full(len(layers), np.iinfo(np.int64).max)  # backward of each layer
    np.minimum.at(begins, first, stretches.end)
    for i in np.argsort(begins, kind="stable"):
        waiting.pop(int(layers[i]), None)
        for layer in range(int(layers[i]) - 1, -1, -1):
            if layer in waiting:
                found = waiting.pop(layer)
                back[found] = np.maximum(np.minimum(begins[i], back[found]), layer + 3)
                break
            if heavy[layer]:
                break
    return back
