"""Sequence parallelism: where tensor-parallel ranks do not divide the layers, they divide the tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.programs.transforms.parameters import SMALL
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, INPUT, OPTIMIZER, PARAMETER, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COLLECTIVE, FREE, I64, OP, Trace


class SequenceShards(NamedTuple):
    """What ranks hold of the tokens, and where they need all.

    shard    (T,) tensors of which each rank has a part of the tokens
    summed   (S, 2) operators, and the summands that are scattered before each
    whole    rows of read_id with which operators read all tokens of a shard
    """

    shard: Mask
    summed: I64
    whole: I64


def sequence_shards(trace: Trace, product: Mask, divided: Mask, summed: I64) -> SequenceShards:
    """What is divided by tokens.

    product   (O,) products of matrices
    divided   (T,) weights and activations of which each rank has its columns or rows
    summed    (S, 2) operators and summands that are to be added up before them

    Activations of the size of a sum, and all that other operators than products and embeddings make of them, are a part of the
    tokens on each rank: norms, dropout, residuals.  Products need all tokens, and so do gradients of embeddings.
    Raises TraceError for a program in which nothing is added up.
    """
    if not len(summed):
        raise TraceError(f"{trace.name}: no sum of tensor-parallel ranks becomes one of tokens", hint="leave out sequence")
    kinds = phase_kinds(trace)[issued(trace)]
    passing = (kinds == FORWARD) | (kinds == BACKWARD)
    role = roles(trace)
    free = ~divided & ~np.isin(role, (PARAMETER, GRADIENT, OPTIMIZER, INPUT)) & (trace.size > SMALL)
    made = np.zeros(trace.tensors, bool)
    made[trace.write_id[np.repeat(passing, np.diff(trace.write_start))]] = True
    shard = free & made & np.isin(trace.size, np.unique(trace.size[summed[:, 1]]))
    looked_up = np.array(["embedding" in name for name in trace.op_names] + [False])[trace.op]
    _spread(
        passing & ~product & ~looked_up, (trace.read_start, trace.read_id), (trace.write_start, trace.write_id), divided,
        np.where(role == PARAMETER, trace.size, -1), trace.size, free, shard,
    )  # fmt: skip
    reader = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    beside = np.zeros(trace.ops, bool)  # reads columns or rows too
    beside[reader[divided[trace.read_id]]] = True
    whole = np.flatnonzero(shard[trace.read_id] & (passing & (product | looked_up | beside))[reader])
    return SequenceShards(shard, summed[shard[summed[:, 1]]], whole)


@kept()
def _spread(
    spreads: Any, reads: Any, writes: Any, divided: Any, parameter: Any, size: Any, free: Any, shard: Any
) -> Any:  # fmt: skip
    """What operators make of shards alone are shards; but for what has the size of a parameter that they read.

    reads, writes   (start of each operator's, tensors)
    """
    (read_start, read_id), (write_start, write_id) = reads, writes
    for o in range(spreads.size):
        if not spreads[o]:
            continue
        some, other = False, False
        for i in range(read_start[o], read_start[o + 1]):
            some |= shard[read_id[i]]
            other |= divided[read_id[i]]
        if not some or other:
            continue
        for i in range(write_start[o], write_start[o + 1]):
            t = write_id[i]
            of_parameter = False
            for j in range(read_start[o], read_start[o + 1]):
                of_parameter |= parameter[read_id[j]] == size[t]
            if free[t] and not of_parameter:
                shard[t] = True


def touched_bytes(trace: Trace, shards: SequenceShards, product: Mask, size: I64) -> tuple[I64, I64]:
    """Bytes of each read and each write: all tokens where a shard is gathered, still to be summed, or made by a product.

    size   (T,) of what each rank holds
    """
    when = np.full(trace.tensors, -1)  # before which operator a summand is scattered
    when[shards.summed[:, 1]] = shards.summed[:, 0]
    found = []
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        operator = np.repeat(np.arange(trace.ops), np.diff(start))
        found.append(np.where((operator < when[ids]) | (product[operator] & shards.shard[ids]), trace.size[ids], size[ids]))
    read, written = found
    read[shards.whole] = trace.size[trace.read_id[shards.whole]]
    return read, written


def bring_together(edit: Edit, shards: SequenceShards, ranks: int) -> None:
    """Reduce-scatters where summands become shards, and all-gathers where operators need all tokens.

    Operators of one pass that need the same tokens share one all-gather, whose result lives from the first to the last of them;
    backward gathers again what forward has gathered.  Source: Korthikanti et al., Reducing activation recomputation in large
    transformer models, MLSys 2023, section 4.2.2; Megatron-LM, `LinearWithGradAccumulationAndAsyncCommunication`.
    """
    share = (ranks - 1) / ranks
    _scatter(edit, shards.summed, share)
    _gather(edit, shards.whole, share)


def _scatter(edit: Edit, summed: I64, share: float) -> None:
    trace = edit.trace
    ops, tensors = summed.T
    born, _ = lives(trace)
    full = edit.add_tensors(trace.size[tensors], trace.category[tensors])
    edit.insert(born[tensors], ALLOC, full)
    of = np.full(trace.tensors, -1)
    of[tensors] = np.arange(len(tensors))
    for side in ("read", "write"):
        operator = np.repeat(np.arange(trace.ops), np.diff(getattr(trace, f"{side}_start")))
        ids = getattr(trace, f"{side}_id")
        before = (of[ids] >= 0) & (operator < ops[of[ids]])
        edit[f"{side}_id"][before] = full[of[ids[before]]]
    _exchange(edit, "reduce_scatter", ops, (full, tensors), share)
    edit.insert(begun(trace)[ops], FREE, full)


def _gather(edit: Edit, whole: I64, share: float) -> None:
    trace = edit.trace
    reader = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))[whole]
    kinds = phase_kinds(trace)[issued(trace)].astype(np.int64)
    of_pass = np.cumsum(np.diff(kinds, prepend=-1) != 0)[reader]
    key, first, which = np.unique(of_pass * trace.tensors + trace.read_id[whole], return_index=True, return_inverse=True)
    last = np.full(len(key), -1)
    np.maximum.at(last, which, reader)
    tensors = key % trace.tensors
    full = edit.add_tensors(trace.size[tensors], trace.category[tensors])
    edit["read_id"][whole] = full[which]
    edit.insert(begun(trace)[reader[first]], ALLOC, full)
    _exchange(edit, "all_gather", reader[first], (tensors, full), share)
    edit.insert(issued(trace)[last] + 1, FREE, full)


def _exchange(edit: Edit, kind: str, before: I64, tensors: tuple[I64, I64], share: float) -> None:
    """One operator for each of `before`, in its stream, which reads the one tensor and writes the other."""
    trace = edit.trace
    one = np.ones(len(before), np.int64)
    size = np.maximum(edit.sizes_of(tensors[0]), edit.sizes_of(tensors[1]))
    operators = edit.add_operators(
        (one, tensors[0]), (one, tensors[1]), op=edit.name("op_names", f"gpusim::{kind}"), activity=COLLECTIVE,
        module=trace.module[before], read_bytes=np.rint(size * share).astype(np.int64),
        exchange=edit.exchanges(kind, "tensor", size),
    )  # fmt: skip
    edit.insert(begun(trace)[before], OP, operators, trace.stream[issued(trace)[before]])
