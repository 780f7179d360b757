"""Gradient accumulation: forward and backward run several times before each optimizer step."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.trace.edit import Edit, issued
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, OTHER, STEP, WORKSPACE, phase_kinds, roles
from gpusim.trace.trace import ALLOC, FREE, I64, KERNEL, OP, PHASE, Trace


def accumulate(trace: Trace, steps: int = 2) -> Trace:
    """Run forward and backward several times, each on a batch as recorded, and add up the gradients before a step.

    steps   batches for one optimizer step

    From the second batch on each gradient is made, added to the first one's in place, and freed.  The same batch in smaller
    pieces is "batch(factor=0.25) | accumulate(steps=4)".
    """
    role = roles(trace)
    begin, end = passes(trace)
    edit = Edit(trace)
    event = issued(trace)
    final = _final_writer(trace.write_start, trace.write_id, role == GRADIENT, event, begin, end, trace.tensors)
    tensors, ops = _inside(trace.kind, trace.arg, begin, end)
    tensors = tensors[role[tensors] != WORKSPACE]  # a library takes its own once
    gradients = tensors[(role[tensors] == GRADIENT) & (final[tensors] >= 0)]
    summand = np.isin(tensors, gradients)  # of a later batch it is no gradient, but what is added to one
    for _ in range(1, steps):
        copy = np.full(trace.tensors, -1, np.int64)
        category = np.where(summand, edit.name("categories", "bwd"), trace.category[tensors])
        copy[tensors] = edit.add_tensors(trace.size[tensors], category)
        sides = []
        for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
            count, used = _copied(start, ids, ops, copy)
            sides.append((count, used))
        operator = np.full(trace.ops, -1, np.int64)
        operator[ops] = edit.add_operators(sides[0], sides[1], like=ops)
        sums = np.full(trace.tensors, -1, np.int64)
        pairs = np.stack([gradients, copy[gradients]], 1)
        two = np.full(len(gradients), 2)
        sums[gradients] = edit.add_operators(
            (two, pairs.ravel()), (two // 2, gradients), like=final[gradients], flops=0.0,
            op=edit.name("op_names", "aten.add_.Tensor"), read_bytes=2 * trace.size[gradients],
            written_bytes=trace.size[gradients], duration=-1, activity=KERNEL,
        )  # fmt: skip
        edit.insert(*_events(trace.kind, trace.arg, trace.stream, begin, end, copy, operator, sums, final))
    _keep_inputs(edit, tensors, begin, end)
    return edit.finish()


def _keep_inputs(edit: Edit, made: I64, begin: I64, end: I64) -> None:
    """What a pass frees but has not made itself, such as its input, is there for the last one too."""
    trace = edit.trace
    own = np.zeros(trace.tensors, bool)
    own[made] = True
    frees = np.flatnonzero(trace.kind == FREE)
    p = np.searchsorted(begin, frees, "right") - 1
    late = (p >= 0) & (frees < end[np.maximum(p, 0)]) & ~own[trace.arg[frees]]
    gone = np.zeros(trace.events, bool)
    gone[frees[late]] = True
    edit.drop_events(gone)
    edit.insert(end[p[late]], FREE, trace.arg[frees[late]], trace.stream[frees[late]])


def passes(trace: Trace) -> tuple[I64, I64]:
    """The events [begin, end) of each forward with its backward: from a forward's mark to the next mark of a step."""
    kinds, marks = phase_kinds(trace), np.flatnonzero(trace.kind == PHASE)
    of_marks = kinds[marks]
    if not (of_marks == BACKWARD).any():
        raise TraceError(f"{trace.name}: accumulation needs a backward phase", hint="phases are named like 'step0.bwd'")
    begin, end = [], []
    start = -1 if (of_marks[:1] == FORWARD).all() else _first_forward(kinds)
    for mark, kind in zip(marks.tolist(), of_marks.tolist(), strict=True):
        if kind == FORWARD and start < 0:
            start = mark
        elif kind in (STEP, OTHER) and start >= 0:
            begin.append(start)
            end.append(mark)
            start = -1
    if start >= 0:
        raise TraceError(f"{trace.name}: its last backward is not followed by an optimizer step")
    return np.array(begin, np.int64), np.array(end, np.int64)


def _first_forward(kinds: Any) -> int:
    found = np.flatnonzero(kinds == FORWARD)
    return int(found[0]) if len(found) else -1


@kept()
def _final_writer(start: Any, ids: Any, gradient: Any, event: Any, begin: Any, end: Any, tensors: int) -> Any:
    """(T,) the last operator of the forward and backward passes that writes each gradient, or -1."""
    found = np.full(tensors, -1, np.int64)
    p = 0
    for o in range(start.size - 1):
        while p < end.size and end[p] <= event[o]:
            p += 1
        if p < begin.size and begin[p] <= event[o]:
            for i in range(start[o], start[o + 1]):
                if gradient[ids[i]]:
                    found[ids[i]] = o
    return found


@kept()
def _inside(kind: Any, arg: Any, begin: Any, end: Any) -> Any:
    """The tensors that the passes allocate, and their operators."""
    count = (end - begin).sum()
    tensors, ops = np.empty(count, np.int64), np.empty(count, np.int64)
    t, o = 0, 0
    for p in range(begin.size):
        for e in range(begin[p], end[p]):
            if kind[e] == ALLOC:
                tensors[t] = arg[e]
                t += 1
            elif kind[e] == OP:
                ops[o] = arg[e]
                o += 1
    return tensors[:t].copy(), ops[:o].copy()


@kept()
def _copied(start: Any, ids: Any, ops: Any, copy: Any) -> Any:
    """What copies of these operators access: of what the passes allocate the copies."""
    counts, total = np.empty(ops.size, np.int64), 0
    for n in range(ops.size):
        counts[n] = start[ops[n] + 1] - start[ops[n]]
        total += counts[n]
    found = np.empty(total, np.int64)
    n = 0
    for o in ops:
        for i in range(start[o], start[o + 1]):
            found[n] = copy[ids[i]] if copy[ids[i]] >= 0 else ids[i]
            n += 1
    return counts, found


@kept()
def _events(kind: Any, arg: Any, stream: Any, begin: Any, end: Any, copy: Any, operator: Any, sums: Any, final: Any) -> Any:
    """The events of one more pass after each: (before which event, kind, arg, stream)."""
    most = 3 * (end - begin).sum()
    at, kinds, args, streams = (
        np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    )  # fmt: skip
    alive = np.zeros(copy.size, np.bool_)
    due = np.full(operator.size, -1, np.int64)  # gradients that the operator writes last, as a list
    following = np.full(copy.size, -1, np.int64)
    for t in range(copy.size):
        if sums[t] >= 0:
            following[t] = due[final[t]]
            due[final[t]] = t
    n = 0
    for p in range(begin.size):
        for e in range(begin[p], end[p]):
            k, a = np.int64(kind[e]), arg[e]
            gradient = np.int64(-1)
            if k == ALLOC:
                if copy[a] < 0:
                    continue
                alive[a] = True
                new = copy[a]
            elif k == FREE:
                if copy[a] < 0 or not alive[a]:
                    continue
                alive[a] = False
                new = copy[a]
            elif k == OP:
                new = operator[a]
                gradient = due[a]
            else:
                new = a
            at[n], kinds[n], args[n], streams[n] = end[p], k, new, stream[e]
            n += 1
            while gradient >= 0:
                at[n], kinds[n], args[n], streams[n] = end[p], OP, sums[gradient], stream[e]
                at[n + 1], kinds[n + 1], args[n + 1], streams[n + 1] = end[p], FREE, copy[gradient], stream[e]
                alive[gradient] = False
                n += 2
                gradient = following[gradient]
        for e in range(begin[p], end[p]):  # what outlives the pass has been replaced by the next one's
            if kind[e] == ALLOC and alive[arg[e]]:
                at[n], kinds[n], args[n], streams[n] = end[p], FREE, copy[arg[e]], stream[e]
                alive[arg[e]] = False
                n += 1
    return at[:n], kinds[:n], args[:n], streams[:n]
