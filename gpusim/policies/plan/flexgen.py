"""Weights, KV cache and activations are split between device and host by percentages, and streamed layer by layer.

weights      percent of each layer's weights that stay on the device
cache        percent of what a layer keeps from one step (prompt, decoded token) to the next that stays
activations  percent of what a layer leaves for a later one, other than the next, that stays

What does not stay leaves after its layer has used it, and comes back while the layer before the one that needs it computes.
Within a layer the first bytes leave: a tensor whose middle lies below the share that leaves goes whole.  Operators outside of
the numbered layers are layers between them.  Departures: one batch at a time, so no block schedule over several; percentages
are given, not found by a linear program; attention is not computed on the CPU; nothing is compressed.

Source: Y. Sheng et al., "FlexGen: High-throughput generative inference of large language models with a single GPU", ICML 2023
(the defaults are its policy for OPT-30B on one GPU: weights on the host, cache and activations on the GPU).
"""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.policies.plan.parts.swap.idle import I64, Mask, idle, schedule
from gpusim.policies.planning import Gaps, Schedule, View
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import PARAMETER, roles
from gpusim.trace.trace import Trace

PARAMS = {"weights": 0.0, "cache": 100.0, "activations": 100.0}
LIMITS = {"weights": 100, "cache": 100, "activations": 100}
KNOWS = "future"


def plan(view: View, weights: float = 0.0, cache: float = 100.0, activations: float = 100.0) -> Schedule:
    for name, value in (("weights", weights), ("cache", cache), ("activations", activations)):
        if not 0 <= value <= 100:
            raise PolicyError(f"parameter '{name}' of policy 'flexgen' is {value:g}, not a percentage")
    work, trace = view.work, view.work.trace
    visit = visits(trace)
    opens = np.flatnonzero(np.diff(visit, prepend=-1))  # the first operator of each visit
    stretches = idle(view, _with_first(view))
    # Before its first use a weight waits outside, as if a visit long ago had used it.
    left = np.where(stretches.begin < 0, -2, visit[stretches.begin])
    stretches = stretches.of(visit[stretches.end] >= left + 2)
    back = np.maximum(opens[np.maximum(visit[stretches.end] - 1, 0)], stretches.begin + 3)

    weight = (roles(trace) == PARAMETER)[stretches.unit]
    ordered, at = np.unique(work.acc_unit, return_index=True)
    layer = np.zeros(trace.tensors, np.int64)
    layer[ordered] = visit[np.searchsorted(work.acc_start, at, "right") - 1]  # where it is used first
    of_weights = _leave(layer, trace.size * (roles(trace) == PARAMETER), np.full(trace.tensors, weights))
    kept = ~weight & (trace.phase[stretches.begin] != trace.phase[stretches.end])
    rows = weight & of_weights[stretches.unit]
    rows |= kept & _leave(visit[stretches.begin], stretches.size * kept, np.full(len(kept), cache))
    passed = ~weight & ~kept
    rows |= passed & _leave(visit[stretches.begin], stretches.size * passed, np.full(len(kept), activations))
    rows &= back <= stretches.end
    return schedule(stretches.of(rows), back[rows])


def visits(trace: Trace) -> I64:
    """(O,) counts up where a new layer, or a new phase outside of layers, begins."""
    layer = blocks(trace, np.arange(trace.ops))[trace.module]
    step = np.where(layer < 0, trace.phase, -1)
    return np.cumsum((np.diff(layer, prepend=-2) != 0) | (np.diff(step, prepend=-2) != 0)) - 1


def _with_first(view: View) -> Gaps:
    """The gaps, and before the first use of what came with data one that begins at -1."""
    w, gaps = view.work, view.gaps
    unit, at = np.unique(w.acc_unit, return_index=True)
    first = np.searchsorted(w.acc_start, at, "right") - 1
    there = w.has_data[unit] > 0
    join = np.concatenate
    begins = join([gaps.begin, np.full(there.sum(), -1)])
    return Gaps(join([gaps.unit, unit[there]]), begins, join([gaps.end, first[there]]))


def _leave(group: I64, size: I64, stays: np.ndarray) -> Mask:
    """(N,) of each group's rows in their order, those whose middle lies in the first part, 100 less `stays` percent."""
    order = np.argsort(group, kind="stable")
    total = np.cumsum(size[order])
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    before = np.repeat(total[first] - size[order][first], np.diff(np.append(first, len(order))))
    whole = np.repeat(np.add.reduceat(size[order], first) if len(first) else size[order], np.diff(np.append(first, len(order))))
    found = np.zeros(len(group), bool)
    middle = total - before - size[order] / 2
    found[order] = (size[order] > 0) & (middle * 100 < (100 - stays[order]) * whole)
    return found
