"""What has most time to spare between two accesses leaves first, until the program fits; or it is recomputed.

recompute  1: what the link cannot bring back in time is recomputed where that costs less than waiting; 0: tensors only move
fill       share of the memory that the plan may fill; the rest is for what the allocator loses

Accesses are those of the program without a limit, at its own pace.  The spare time of an idle stretch is its length less the
times of both copies.  Chosen are stretches during which too much would be there, most spare time first; where time runs out,
those that cost least.  The copies back take turns on the link: from the last on each ends when it is needed or when the next
one begins, and the operator at which it begins is its trigger, or a later one where there is no room yet.  A copy that would
have to begin before the tensor is out is late by so much; recomputation costs the operators that make the tensor again, and
what they need. Departures: triggers are not moved while the program runs; what is too late is compared tensor by tensor, not
in the order of memory saved per second.

Source: X. Peng et al., "Capuchin: Tensor-based GPU memory management for deep learning", ASPLOS 2020.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.plan.parts.swap.idle import F64, Idle, idle, in_time, in_turns, schedule
from gpusim.policies.plan.parts.swap.recompute import Recompute
from gpusim.policies.plan.parts.swap.stretches import until_it_fits
from gpusim.policies.planning import Schedule, View
from gpusim.trace.trace import Trace

PARAMS = {"recompute": 1, "fill": 1.0}
LIMITS = {"recompute": 1}
KNOWS = "future"


def rewrite(view: View, recompute: int = 1, fill: float = 1.0) -> Trace:
    chosen = _chosen(view, fill)
    if not recompute or not len(chosen.unit):
        return view.work.trace
    again = Recompute(view.work)
    rows = _too_late(chosen, again.cost(chosen))
    return again.instead_of(chosen.of(rows)) if rows else view.work.trace


def _too_late(chosen: Idle, cost: F64) -> list[int]:
    """The rows that the link, one copy at a time in each direction, brings back later than making them again takes."""
    out, link = np.empty(len(cost)), 0.0
    for row in np.argsort(chosen.starts, kind="stable"):
        link = out[row] = max(link, chosen.starts[row]) + chosen.out_ns[row]
    rows, link = [], np.inf
    for row in np.argsort(-chosen.ends, kind="stable"):
        begins = min(link, chosen.ends[row]) - chosen.in_ns[row]
        if out[row] - begins > cost[row]:
            rows.append(int(row))
        else:
            link = begins
    return rows


def plan(view: View, recompute: int = 1, fill: float = 1.0) -> Schedule:
    chosen = _chosen(view, fill)
    return schedule(chosen, in_turns(view, chosen, fill * view.capacity))


def _chosen(view: View, fill: float) -> Idle:
    stretches = idle(view)
    order = np.lexsort((stretches.begin, -stretches.size, -stretches.spare_ns))
    return stretches.of(until_it_fits(view, stretches, in_time(view, stretches), order, fill * view.capacity))
