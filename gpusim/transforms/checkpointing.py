"""Activation checkpointing: what a segment of the model made is dropped after forward and made again in backward."""

from __future__ import annotations

import math

import numpy as np

from gpusim.errors import GpusimError, TraceError
from gpusim.trace.blocks import blocks
from gpusim.trace.edit import Edit, begun, issued, spread
from gpusim.trace.roles import BACKWARD, FORWARD, lives, phase_kinds
from gpusim.trace.trace import ALLOC, FREE, I64, OP, Trace


def checkpointing(trace: Trace, every: str = "1", modules: str = "") -> Trace:
    """Drop the activations of each segment after forward, and run the segment again in backward just before their first use.

    every    blocks of the model in one segment, or sqrt: the square root of their number
    modules  what is a block, by the end of its module path: "h.*", "mlp"; empty: the numbered layers

    As `torch.utils.checkpoint` with use_reentrant=False: what other segments read is kept, and a segment is run again up to
    the last tensor that backward needs.  Its operators, their arithmetic and their bytes are in the trace once more.
    Source: Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016.
    """
    segment, first, last = _segments(trace, every, modules)
    count = len(first)
    op_event, op_begin = issued(trace), begun(trace)
    born, died = lives(trace)
    backward = phase_kinds(trace)[op_event] == BACKWARD

    # Of which segment each tensor is: the one in whose events it is allocated.
    at = np.searchsorted(op_begin[first], born, "right") - 1
    owner = np.where((at >= 0) & (born < op_event[last[at]]), at, -1)

    # Who touches them: in which segment, or after it.
    ops = np.arange(trace.ops)
    op = np.concatenate([np.repeat(ops, np.diff(trace.read_start)), np.repeat(ops, np.diff(trace.write_start))])
    tensor = np.concatenate([trace.read_id, trace.write_id])
    inside = (owner[tensor] >= 0) & (segment[op] == owner[tensor])
    outside = (owner[tensor] >= 0) & ~inside
    saved, shared = np.zeros(trace.tensors, bool), np.zeros(trace.tensors, bool)
    saved[tensor[outside & backward[op]]] = True
    shared[tensor[outside & ~backward[op]]] = True
    saved &= ~shared
    again = outside & saved[tensor]  # accesses of what is made again
    if not again.any():
        raise TraceError(f"{trace.name}: backward reads nothing that a single segment has made", hint="try a larger `every`")
    final_use, made_by = np.full((2, trace.tensors), -1, np.int64)
    np.maximum.at(final_use, tensor[inside], op[inside])
    writes = inside & (np.arange(len(op)) >= len(trace.read_id))
    np.maximum.at(made_by, tensor[writes], op[writes])

    # Each segment is run again up to the last that is needed, before the operator that needs the first.
    until, needed = np.full(count, -1, np.int64), np.full(count, trace.ops, np.int64)
    np.maximum.at(until, owner[saved], np.maximum(made_by, first[owner])[saved])
    np.minimum.at(needed, owner[tensor[again]], op[again])
    segments = np.flatnonzero(needed < trace.ops)
    place = np.full(count, -1, np.int64)
    place[segments] = op_begin[needed[segments]]

    edit = Edit(trace)
    event, row = spread(op_begin[first], op_event[until] + 1 - op_begin[first], segments)
    of, kind, arg = segments[row], trace.kind[event], trace.arg[event]
    copied = kind == ALLOC
    copy = np.full(trace.tensors, -1, np.int64)
    copy[arg[copied]] = edit.add_tensors(trace.size[arg[copied]], edit.name("categories", "bwd"))
    run = kind == OP
    reads, writes_ = (_mapped(trace, side, arg[run], of[run], owner, copy) for side in ("read", "write"))
    operator = np.full(trace.ops, -1, np.int64)
    operator[arg[run]] = edit.add_operators(reads, writes_, like=arg[run])
    freed = kind == FREE
    freed[freed] = (copy[arg[freed]] >= 0) & ~saved[arg[freed]]
    left = (copy >= 0) & ~saved
    left[arg[freed]] = False
    chosen = copied | run | freed
    new = np.where(run, operator[np.where(run, arg, 0)], copy[np.where(run, 0, arg)])
    edit.insert(place[of[chosen]], kind[chosen], new[chosen], trace.stream[event[chosen]])
    left_over = np.flatnonzero(left)
    edit.insert(place[owner[left_over]], FREE, copy[left_over], trace.stream[born[left_over]])

    # What is made again dies after its last use in forward; its copy takes its place from then on.
    which = np.flatnonzero(saved)
    edit.insert(op_event[final_use[which]] + 1, FREE, which, trace.stream[born[which]])
    ends = which[died[which] < trace.events]
    edit["arg"][died[ends]] = copy[ends]
    for side, part in (("read", slice(None, len(trace.read_id))), ("write", slice(len(trace.read_id), None))):
        edit[f"{side}_id"][again[part]] = copy[tensor[part][again[part]]]
    _keep_inputs(edit, died, np.concatenate([reads[1], writes_[1]]), np.concatenate([
        np.repeat(place[of[run]], reads[0]), np.repeat(place[of[run]], writes_[0])]))
    return edit.finish()


def _segments(trace: Trace, every: str, modules: str) -> tuple[I64, I64, I64]:
    """((O,) the segment of each operator or -1; the first and the last operator of each segment)."""
    kinds = phase_kinds(trace)[issued(trace)]
    for kind, word in ((FORWARD, "forward"), (BACKWARD, "backward")):
        if not (kinds == kind).any():
            raise TraceError(
                f"{trace.name}: checkpointing needs operators of a {word} phase, and there are none",
                hint="phases are named like 'step0.fwd' and 'step0.bwd'",
            )
    forward = np.flatnonzero(kinds == FORWARD)
    block = blocks(trace, forward, modules)[trace.module]
    block[kinds != FORWARD] = -1
    number = int(block.max()) + 1
    if every == "sqrt":
        length = math.isqrt(number - 1) + 1
    elif every.isdecimal() and int(every):
        length = int(every)
    else:
        wanted = "neither a whole number above 0 nor sqrt"
        raise GpusimError(f"parameter 'every' of transform 'checkpointing' is '{every}', {wanted}")
    of_blocks = np.flatnonzero(block >= 0)
    passes = np.cumsum(np.diff(kinds == FORWARD, prepend=False))  # rises where a forward begins and where it ends
    key = passes[of_blocks] * number + block[of_blocks] // length
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    first, last = of_blocks[starts], of_blocks[np.append(starts[1:], len(key)) - 1]
    segment = np.full(trace.ops, -1, np.int64)
    ops, of = spread(first, last + 1 - first, np.arange(len(first)))
    segment[ops] = of
    return segment, first, last


def _mapped(trace: Trace, side: str, ops: I64, of: I64, owner: I64, copy: I64) -> tuple[I64, I64]:
    """What these operators access: how many each, and which; of their own segment's tensors the copies."""
    start = getattr(trace, f"{side}_start")
    where, row = spread(start[:-1], np.diff(start), ops)
    ids = getattr(trace, f"{side}_id")[where]
    return np.diff(start)[ops], np.where((owner[ids] == of[row]) & (copy[ids] >= 0), copy[ids], ids)


def _keep_inputs(edit: Edit, died: I64, tensor: I64, place: I64) -> None:
    """What a segment reads from outside lives until it has been run again."""
    trace = edit.trace
    own = tensor < trace.tensors
    latest = np.full(trace.tensors, -1, np.int64)
    np.maximum.at(latest, tensor[own], place[own])
    late = np.flatnonzero(died < latest)
    gone = np.zeros(trace.events, bool)
    gone[died[late]] = True
    edit.drop_events(gone)
    edit.insert(latest[late], FREE, late, trace.stream[died[late]])
