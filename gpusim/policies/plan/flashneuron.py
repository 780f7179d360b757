"""Activations of the forward pass leave in the order in which they are made, until the rest fits; backward fetches them ahead.

Those that backward reads count; beside what stays of them the memory must hold what lives through the whole program and the
operator that works on most.  Each leaves when forward has used it last.  Backward brings them back in the order of use, each as
soon as there is room for it beside the largest operator.  Departures from the paper: they go to the nearest tier, not to an
SSD of their own; one arena holds all; backward does not wait for what is still on its way out.

Source: J. Bae et al., "FlashNeuron: SSD-enabled large-batch training of very deep neural networks", FAST 2021.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.plan.parts.swap.idle import I64, Idle, idle, resident, saved, schedule
from gpusim.policies.plan.parts.swap.layers import needs_backward
from gpusim.policies.planning import NOTHING, Schedule, View
from gpusim.trace.trace import ALLOC, FREE, OP

KNOWS = "future"


def plan(view: View) -> Schedule:
    stretches = idle(view)
    maps = saved(view, stretches)
    needs_backward("flashneuron", view, maps)
    if not maps.any():
        return NOTHING
    activations = stretches.of(np.flatnonzero(maps))
    activations = activations.of(np.argsort(activations.unit, kind="stable"))  # tensors are numbered as they are made
    widest = view.work.widest_operator[0]
    stays = int(activations.size.sum()) - np.cumsum(activations.size)
    line = view.capacity - lasting(view) - widest
    leave = int(np.searchsorted(-np.append(activations.size.sum(), stays), -line, "right"))
    chosen = activations.of(np.arange(min(leave, len(stays))))
    backward = int(activations.end.min())
    return schedule(chosen, back(view, chosen, view.capacity - widest, backward))


def lasting(view: View) -> int:
    """Bytes of the tensors that are there before the first operator and never freed."""
    t = view.work.trace
    there = np.zeros(t.tensors, bool)
    first = int(np.argmax(t.kind == OP))
    there[t.arg[:first][t.kind[:first] == ALLOC]] = True
    there[t.arg[t.kind == FREE]] = False
    return int(t.size[there].sum())


def back(view: View, chosen: Idle, room: int, backward: int) -> I64:
    """When each comes back, from operator `backward` on: what is needed first has the first claim to the room there is."""
    made = chosen.end.copy()
    here = resident(view, chosen, made)
    for row in np.argsort(chosen.end, kind="stable"):
        size = int(chosen.size[row])
        earliest = max(backward, int(chosen.begin[row]) + 3)
        while made[row] > earliest and here[made[row] - 1] + size <= room:
            made[row] -= 1
            here[made[row]] += size
    return made
