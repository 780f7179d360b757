"""The parts of training steps: which events each optimizer step has, and which gradients it applies to which parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.roles import BEFORE, GRADIENT, OPTIMIZER, PARAMETER, STEP, lives, phase_kinds, roles
from gpusim.trace.trace import I64, OP, PHASE, Trace


@dataclass(frozen=True)
class Update:
    """One optimizer step: the events [begin, end), the phase mark first; gradients[k] belongs to parameters[k]."""

    begin: int
    end: int
    parameters: I64
    gradients: I64


def updates(trace: Trace, role: npt.NDArray[np.int8] | None = None) -> list[Update]:
    """The optimizer steps in order.  Raises TraceError where there are none, or gradients cannot be told.

    A gradient belongs to the parameter in whose order the steps' operators read them; both must be as large.
    """
    role = roles(trace) if role is None else role
    kinds = phase_kinds(trace)
    marks = np.flatnonzero((trace.kind == PHASE) & (kinds == STEP))
    every = np.append(np.flatnonzero(trace.kind == PHASE), trace.events)
    event_of = np.flatnonzero(trace.kind == OP)
    found = []
    for begin in marks.tolist():
        end = int(every[np.searchsorted(every, begin, "right")])
        first, last = np.searchsorted(event_of, (begin, end))
        read = trace.read_id[trace.read_start[first] : trace.read_start[last]]
        written = trace.write_id[trace.write_start[first] : trace.write_start[last]]
        gradients, parameters = _distinct(read[role[read] == GRADIENT]), _distinct(written[role[written] == PARAMETER])
        if len(gradients) != len(parameters) or (trace.size[gradients] != trace.size[parameters]).any():
            gradients, parameters = _by_size(trace, gradients), _by_size(trace, parameters)
            if len(gradients) != len(parameters) or (trace.size[gradients] != trace.size[parameters]).any():
                raise TraceError(
                    f"{trace.name}: the optimizer step at event {begin} reads {len(gradients)} gradients and writes "
                    f"{len(parameters)} parameters, which do not go together",
                    hint="a gradient has the size of its parameter",
                )
        if len(gradients):
            found.append(Update(begin, end, parameters, gradients))
    if not found:
        raise TraceError(
            f"{trace.name}: no optimizer step reads gradients and writes parameters", hint="phases are named like 'step0.opt'"
        )
    return found


def masters(trace: Trace) -> I64:
    """(T,) the parameter of which each tensor is an fp32 master, which steps write into it; -1 for other tensors."""
    role, kinds = roles(trace), phase_kinds(trace)
    made = kinds[lives(trace)[0]] if trace.tensors else np.zeros(0, np.int8)
    found = np.full(trace.tensors, -1, np.int64)
    for o in np.flatnonzero(kinds[trace.kind == OP] == STEP).tolist():
        read = trace.read_id[trace.read_start[o] : trace.read_start[o + 1]]
        written = trace.write_id[trace.write_start[o] : trace.write_start[o + 1]]
        read, written = read[(role[read] == OPTIMIZER) & (made[read] == BEFORE)], written[role[written] == PARAMETER]
        if len(read) == len(written):
            found[read] = written
    return found


def _distinct(ids: I64) -> I64:
    """In the order of first appearance."""
    found, first = np.unique(ids, return_index=True)
    return found[np.argsort(first)]


def _by_size(trace: Trace, ids: I64) -> I64:
    return ids[np.argsort(trace.size[ids], kind="stable")]
