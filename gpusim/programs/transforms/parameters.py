"""When parameters are used: block by block.  What keeps them (or inputs) elsewhere brings them in before, and lets go after."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import PARAMETER, STEP, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COLLECTIVE, FREE, I64, OP, Trace

SMALL = 512  # bytes: counters and the like stay whole


@dataclass(frozen=True)
class Uses:
    """Stretches of operators that use the parameters of one block or the inputs of a step, in order; a CSR table of those."""

    first: I64   # operators
    last: I64
    start: I64   # (stretches + 1,)
    tensor: I64
    row: I64     # of each access of a parameter: where it stands in `tensor`
    at: I64      # ... and its row in read_id


def parameters(trace: Trace) -> Mask:
    """(T,) the parameters that only optimizer steps write; buffers are none."""
    found: Mask = roles(trace) == PARAMETER
    if "buffer" in trace.categories:
        found &= trace.category != trace.categories.index("buffer")
    kinds = phase_kinds(trace)[issued(trace)]
    op = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))
    found[trace.write_id[kinds[op] != STEP]] = False
    if not found.any():
        raise TraceError(f"{trace.name}: there are no parameters", hint="tensors of the category 'param' are parameters")
    return found


def uses(trace: Trace, wanted: Mask) -> Uses:
    """The stretches in which the wanted parameters are used."""
    kinds = phase_kinds(trace)[issued(trace)]
    op = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    at = np.flatnonzero(wanted[trace.read_id] & (kinds[op] != STEP))
    op, tensor = op[at], trace.read_id[at]
    block = _block_of(trace, op, tensor)[tensor]
    # Another block, or a step in between.
    steps = np.cumsum(kinds == STEP)
    begins = (np.diff(block, prepend=-2) != 0) | (np.diff(steps[op], prepend=-1) != 0)
    begins[1:] &= np.diff(op) != 0  # one operator needs all of its own at once
    return stretches(trace, op, at, begins)


def stretches(trace: Trace, op: I64, at: I64, begins: Mask) -> Uses:
    """From reads (their operators, in order, and rows of read_id) and the first of each stretch."""
    tensor = trace.read_id[at]
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(op)) - 1
    start, used, row = _distinct(np.cumsum(begins) - 1, tensor, len(starts), trace.tensors)
    return Uses(op[starts], op[ends[: len(starts)]], start, used, row, at)


@kept()
def _distinct(stretch: Any, tensor: Any, stretches: int, tensors: int) -> Any:
    """CSR table of the tensors of each stretch, in the order of their first use, and the row of each access in it."""
    start, used, row = np.zeros(stretches + 1, np.int64), np.empty(tensor.size, np.int64), np.empty(tensor.size, np.int64)
    last, at = np.full(tensors, -1, np.int64), np.empty(tensors, np.int64)
    n = 0
    for i in range(tensor.size):
        t = tensor[i]
        if last[t] != stretch[i]:
            last[t], at[t], used[n] = stretch[i], n, t
            n += 1
        row[i] = at[t]
        start[stretch[i] + 1] = n
    return start, used[:n], row


def _block_of(trace: Trace, op: I64, tensor: I64) -> I64:
    """(T,) the block whose operators use a parameter first; one outside of all blocks is a block of its own."""
    module = np.full(trace.ops, -1, np.int64)
    with suppress(TraceError):  # no numbered layers: each parameter for itself
        module = blocks(trace, op[np.diff(op, prepend=-1) > 0])[trace.module]  # each once, in their order
    found = np.full(trace.tensors, -1, np.int64)
    found[tensor[::-1]] = module[op[::-1]]  # the first wins
    alone = found < 0
    found[alone] = trace.ops + np.flatnonzero(alone)
    return found


def place_of(trace: Trace, u: Uses, overlap: bool) -> I64:
    """The event with which each stretch begins; to overlap, the one before it, unless an optimizer step lies between."""
    place = begun(trace)[u.first]
    if overlap:
        done = np.cumsum(phase_kinds(trace)[issued(trace)] == STEP)
        same = done[u.first[1:]] == done[u.first[:-1]]
        place[1:] = np.where(same, place[:-1], place[1:])
    return place


def bring_in(edit: Edit, u: Uses, steps: list[tuple[str, int]], share: float, stream: int, place: I64) -> None:
    """For each stretch a tensor for each of what it uses, filled by the last of these operators; after it they are freed.

    steps    names and activities of operators that move the bytes in turn: from disk to host, from host to device
    share    of the bytes that each moves
    place    (stretches,) the event before which they are issued
    """
    trace = edit.trace
    count = np.diff(u.start)
    full = edit.add_tensors(trace.size[u.tensor], trace.category[u.tensor])
    edit["read_id"][u.at] = full[u.row]
    stretch = np.repeat(np.arange(len(count)), count)
    whole = np.bincount(stretch, trace.size[u.tensor].astype(float), len(count)).astype(np.int64)
    moved = np.rint(whole * share).astype(np.int64)
    of, kinds, args, streams = [stretch], [np.full(len(full), ALLOC)], [full], [np.zeros(len(full), np.int64)]
    for name, activity in steps:
        written = (count, full) if name == steps[-1][0] else (0 * count, full[:0])
        exchanged = {"exchange": edit.exchanges("all_gather", "data", whole)} if activity == COLLECTIVE else {}
        operators = edit.add_operators(
            (count, u.tensor), written, op=edit.name("op_names", name), activity=activity, read_bytes=moved, **exchanged
        )
        of.append(np.arange(len(count)))
        kinds.append(np.full(len(count), OP))
        args.append(operators)
        streams.append(np.full(len(count), stream))
    order = np.argsort(np.concatenate(of), kind="stable")
    at, kind, arg, on = (np.concatenate(x)[order] for x in ([place[o] for o in of], kinds, args, streams))
    edit.insert(at, kind, arg, on)
    edit.insert((issued(trace)[u.last] + 1)[stretch], FREE, full)


def step_rows(trace: Trace) -> tuple[I64, I64]:
    """(first, last) operator of each optimizer step."""
    at = np.flatnonzero(phase_kinds(trace)[issued(trace)] == STEP)
    if not len(at):
        raise TraceError(f"{trace.name}: there is no optimizer step", hint="a phase named like 'step0.opt' is needed")
    cut = np.flatnonzero(np.diff(at) > 1)
    return at[np.append(0, cut + 1)], at[np.append(cut, len(at) - 1)]


def side_stream(trace: Trace) -> int:
    """A stream that no operator uses."""
    return int(trace.stream.max(initial=0)) + 1
