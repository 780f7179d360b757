"""What operators are to a network: which compute long, and what they read."""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.machine.kernels.operators import is_product
from gpusim.policies.plan.parts.swap.idle import I64, Mask
from gpusim.policies.planning import View
from gpusim.trace.trace import Trace


def products(trace: Trace) -> Mask:
    """(O,) whether the operator is a convolution, a matrix product or an attention: what computes long for its bytes."""
    named = np.array([is_product(name) for name in trace.op_names], bool)
    return np.asarray(named[trace.op])


def convolutions_or_products(trace: Trace) -> Mask:
    """(O,) the convolutions; of a program without any its matrix products."""
    named = np.array(["conv" in name for name in trace.op_names], bool)
    found = np.asarray(named[trace.op])
    return found if found.any() else products(trace)


def reads(trace: Trace, op: I64, unit: I64) -> Mask:
    """(N,) whether the operator reads the tensor, of pairs."""
    pairs = np.repeat(np.arange(trace.ops), np.diff(trace.read_start)) * trace.tensors + trace.read_id
    return np.isin(op * trace.tensors + unit, pairs)


def made_by(trace: Trace, operators: Mask) -> Mask:
    """(T,) whether one of these operators writes the tensor."""
    found = np.zeros(trace.tensors, bool)
    found[trace.write_id[np.repeat(operators, np.diff(trace.write_start))]] = True
    return found


def needs_backward(policy: str, view: View, maps: Mask) -> None:
    """TraceError where backward uses nothing again of what forward made, on a machine on which that could leave."""
    if view.tiers and not maps.any():
        hint = "phases are named like 'step0.fwd' and 'step0.bwd'"
        raise TraceError(f"{view.work.trace.name}: plan policy '{policy}' needs a forward and a backward phase", hint=hint)
