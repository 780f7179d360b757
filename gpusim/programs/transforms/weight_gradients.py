"""Which operators of a backward pass make gradients of weights and nothing else, so that they can come later."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.trace.edit import Mask, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, GRADIENT, phase_kinds, roles
from gpusim.trace.trace import COLLECTIVE, Trace

LEAST = 0.5
"""Share of the gradients' bytes that has to be made by such operators."""


def weight_operators(trace: Trace) -> Mask:
    """(O,) operators whose results are gradients of parameters, or only lead to such.

    What another block, or another stage of a pipeline, reads of a backward pass is a gradient of activations, and so is all of
    the block that leads there: these operators cannot come later.  An operator that makes both, as that of a norm or a
    convolution does, is none.
    Raises TraceError where these make less than half of the gradients: the program has no such split.
    """
    backward = phase_kinds(trace)[issued(trace)] == BACKWARD
    gradient = roles(trace) == GRADIENT
    block = blocks(trace, np.flatnonzero(backward))[trace.module]
    found: Mask = _follow(
        backward, trace.activity == COLLECTIVE, block, trace.read_start, trace.read_id, trace.write_start, trace.write_id,
        gradient,
    )  # fmt: skip
    _demand(trace, found, gradient)
    return found


def _demand(trace: Trace, weights: Mask, gradient: Mask) -> None:
    writer = np.full(trace.tensors, -1, np.int64)
    writer[trace.write_id[::-1]] = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))[::-1]
    made = np.flatnonzero(gradient & (writer >= 0))
    joined = made[~weights[writer[made]]]
    if trace.size[joined].sum() > (1 - LEAST) * trace.size[made].sum() or not len(made):
        largest = int(writer[joined[np.argmax(trace.size[joined])]]) if len(joined) else -1
        why = f": {trace.op_names[trace.op[largest]]} makes them with those of activations" if largest >= 0 else ""
        raise TraceError(f"{trace.name}: gradients of its weights are not computed apart{why}", hint="schedule=1f1b")


@kept()
def _follow(
    backward: Any, exchange: Any, block: Any, read_start: Any, read_id: Any, write_start: Any, write_id: Any, gradient: Any
) -> Any:
    """From the last operator to the first: what leads to gradients alone."""
    found = np.zeros(backward.size, np.bool_)
    flows, waits = np.zeros(gradient.size, np.bool_), np.zeros(gradient.size, np.bool_)
    reader = np.full(gradient.size, -2, np.int64)  # the block that reads a tensor; -3: several
    for o in range(backward.size - 1, -1, -1):
        if not backward[o]:
            continue
        makes, on = False, bool(exchange[o])
        for i in range(write_start[o], write_start[o + 1]):
            t = write_id[i]
            if gradient[t] or waits[t]:
                makes = True
            if not gradient[t] and (flows[t] or (reader[t] != -2 and reader[t] != block[o])):
                on = True
        found[o] = makes and not on
        for i in range(read_start[o], read_start[o + 1]):
            t = read_id[i]
            if found[o]:
                waits[t] = waits[t] or not gradient[t]
            else:
                flows[t] = flows[t] or not gradient[t]
            reader[t] = block[o] if reader[t] == -2 or reader[t] == block[o] else -3
    return found
