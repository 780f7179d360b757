"""A trace as a program whose tensors may be recomputed, without changing what it computes.

Each tensor is a storage, its size rounded up as allocators do.  A tensor can be recomputed when one kernel alone makes it, from
data that it does not change, and makes nothing that another operator changes.  Every other tensor is a constant: it is there
from its alloc to its free.  A tensor can be recomputed until an input of its kernel is changed or freed for good; then it is
pinned.  Frees are references given up: what was freed may be recomputed for others, as long as its inputs can be had.

Kernels that draw random numbers (dropout) are taken to draw the same ones again: frameworks keep the state of the generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.policies.plan.parts.recompute.problem import I64, PIN, RELEASE, Builder, RecomputeProgram
from gpusim.trace.edit import issued
from gpusim.trace.trace import ALLOC, FREE, KERNEL, OP
from gpusim.trace.workload import ROUND, Workload

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Traced:
    """A program, and what its parts are in the trace."""

    program: RecomputeProgram
    op: I64     # of each operator: the trace's, -1 for the arrival of a constant
    unit: I64   # of each tensor: the trace's
    event: I64  # of each action: the event that it belongs to
    remade: Mask  # of each tensor of the trace: whether it can ever be recomputed
    ends: I64   # of each tensor of the trace: the event from which on it cannot be recomputed


def read(work: Workload) -> Traced:
    """The program of a trace with accesses; operators take the workload's times."""
    trace = work.trace
    op = np.repeat(np.arange(trace.ops), np.diff(work.acc_start))
    remade = _remade(work, op)
    ends = _expiry(work, op, remade)
    build, number, ops, units, events = Builder(), np.full(trace.tensors, -1, np.int64), [], [], []
    freed = _events_of(work, FREE)
    pinned = np.flatnonzero(remade & (ends < freed))
    pinned = pinned[np.argsort(ends[pinned], kind="stable")]
    pins, acted = iter([*zip(ends[pinned].tolist(), pinned.tolist(), strict=True), (trace.events + 1, -1)]), 0
    due, tensor = next(pins)
    size = (-(-trace.size // ROUND) * ROUND).tolist()
    starts, accessed = work.acc_start.tolist(), work.acc_unit.tolist()
    made = (remade[work.acc_unit] & (work.acc_write == 1)).tolist()
    cost = work.duration.tolist()

    def told(event: int) -> None:
        """What was acted on since is of this event."""
        nonlocal acted
        events.extend([event] * (len(build.verb) - acted))
        acted = len(build.verb)

    for e, (kind, arg) in enumerate(zip(trace.kind.tolist(), trace.arg.tolist(), strict=True)):
        while due <= e:
            build.act(PIN, int(number[tensor]))
            due, tensor = next(pins)
        if kind == ALLOC and not remade[arg]:
            number[arg] = build.bring(size[arg])
            ops.append(-1)
            units.append(arg)
        elif kind == OP:
            rows = range(starts[arg], starts[arg + 1])
            inputs = [int(number[accessed[i]]) for i in rows if not made[i]]
            outputs = [accessed[i] for i in rows if made[i]]
            for t, n in zip(outputs, build.compute(cost[arg], inputs, [(size[t], -1) for t in outputs]), strict=True):
                number[t] = n
            ops.append(arg)
            units += outputs
        elif kind == FREE:
            build.act(RELEASE, int(number[arg]))
        told(e)
    for t in np.flatnonzero(freed > trace.events).tolist():
        build.act(PIN, int(number[t]))
    told(trace.events)
    op_, unit, event = (np.array(values, np.int64) for values in (ops, units, events))
    return Traced(build.finish(frees_constants=True), op_, unit, event, remade, ends)


def _remade(work: Workload, op: I64) -> Mask:
    """(T,) whether one kernel alone makes the tensor, from other data, and changes nothing."""
    trace = work.trace
    writes = work.acc_write == 1
    fresh = (np.bincount(work.acc_unit[writes], minlength=trace.tensors) == 1) & (work.has_data == 0)
    again = trace.activity == KERNEL
    again[op[writes & ~fresh[work.acc_unit]]] = False
    remade = np.zeros(trace.tensors, bool)
    made = writes & again[op]
    remade[work.acc_unit[made]] = True
    return remade


def _events_of(work: Workload, kind: int) -> I64:
    """(T,) the event of this kind of each tensor; beyond all events for none."""
    trace = work.trace
    found = np.full(trace.tensors, trace.events + 1, np.int64)
    events = np.flatnonzero(trace.kind == kind)
    found[trace.arg[events]] = events
    return found


def _expiry(work: Workload, op: I64, remade: Mask) -> I64:
    """(T,) the event from which on a tensor cannot be recomputed."""
    trace = work.trace
    freed, event = _events_of(work, FREE), issued(trace)
    # Until when each access sees the tensor as it is: its next write, or its free.
    until = freed[work.acc_unit]
    order = np.lexsort((op, work.acc_unit))
    latest, whose = trace.events + 1, -1
    units, writes = work.acc_unit.tolist(), work.acc_write.tolist()
    for i in order[::-1].tolist():
        if units[i] != whose:
            latest, whose = int(freed[units[i]]), units[i]
        until[i] = latest
        if writes[i]:
            latest = int(event[op[i]])
    ends = np.full(trace.tensors, trace.events + 1, np.int64)
    starts = work.acc_start.tolist()
    for o in range(trace.ops):
        soonest, made = trace.events + 1, []
        for i in range(starts[o], starts[o + 1]):
            t = units[i]
            if remade[t] and writes[i]:
                made.append(t)
            else:
                soonest = min(soonest, max(int(ends[t]), int(freed[t])) if remade[t] else int(until[i]))
        ends[made] = soonest
    return ends
