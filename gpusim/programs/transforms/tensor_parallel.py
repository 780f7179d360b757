"""Tensor parallelism: the linear layers of each block are split over ranks, by columns and then by rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.base.compiled import kept
from gpusim.base.errors import TraceError
from gpusim.machine.kernels.classes import base
from gpusim.machine.kernels.operators import is_product
from gpusim.programs.transforms.parameters import SMALL, parameters
from gpusim.programs.transforms.sequence_shards import SequenceShards, bring_together, sequence_shards, touched_bytes
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, GRADIENT, PARAMETER, STEP, phase_kinds, roles
from gpusim.trace.trace import COLLECTIVE, I64, OP, Trace
from gpusim.trace.training import masters

# What a tensor is on one rank: all of it; a split weight, or derived from such alone; a part; a summand of what it should be.
WHOLE, WEIGHT, PART, SUMMAND = range(4)
ANYTHING, SUMMANDS = 1, 2  # what an addition may add to a summand before it is reduced; 0: it is none


def tensor_parallel(trace: Trace, ranks: int = 8, sequence: bool = False) -> Trace:
    """One of `ranks` GPUs that share each linear layer inside the model's numbered blocks.

    sequence   norms, dropout and residuals are divided by tokens: reduce-scatters and all-gathers instead of all-reduces

    What each operator does follows from what it reads.  A product of a split weight with a whole tensor makes a part (columns);
    with a part, a summand (rows).  What is added to a summand, by one rank, is in it; before anything else reads one comes an
    all-reduce, in that operator's stream, which sends 2 (n - 1) / n of its bytes.  Whatever else reads a part makes a part.
    Biases are split where they are added to a part.  Norms, other biases, embeddings and the output layer stay whole.
    Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3; memory as in Korthikanti et al., arXiv:2205.05198, eq. 2.
    """
    kinds = phase_kinds(trace)[issued(trace)].astype(np.int64)
    product = _named(trace, lambda name: is_product(name) and "conv" not in name)
    flag = np.zeros(trace.tensors, np.uint8)
    origin = np.where(parameters(trace), np.arange(trace.tensors), -1)
    flag[_weights(trace, kinds, product, origin)] = WEIGHT
    origin = np.where(origin < 0, masters(trace), origin)
    role = roles(trace)
    adds = _named(trace, lambda name: base(name).rstrip("_") == "add").astype(np.int8)
    found = follow(
        product, adds * (SUMMANDS if sequence else ANYTHING), kinds == STEP, trace.read_start, trace.read_id, trace.write_start,
        trace.write_id, role == GRADIENT, role == PARAMETER, flag, origin,
    )  # fmt: skip
    reduced = np.array(found, np.int64).reshape(-1, 2)
    split = ((flag == WEIGHT) | (flag == PART)) & (trace.size > SMALL)
    shards = sequence_shards(trace, product, (flag == WEIGHT) | (flag == PART), reduced) if sequence else None
    edit = Edit(trace)
    edit["size"][split] = -(-trace.size[split] // ranks)
    if shards is not None:
        edit["size"][shards.shard] = -(-trace.size[shards.shard] // ranks)
        reduced = reduced[~shards.shard[reduced[:, 1]]]
    _divide(edit, product, shards, ranks)
    _all_reduce(edit, reduced, 2 * (ranks - 1) / ranks)
    if shards is not None:
        bring_together(edit, shards, ranks)
    return edit.finish()


def _divide(edit: Edit, product: Mask, shards: SequenceShards | None, ranks: int) -> None:
    """Bytes and arithmetic of operators by what they touch of each tensor."""
    trace = edit.trace
    read, written = (edit["size"][ids] for ids in (trace.read_id, trace.write_id))
    if shards is not None:
        read, written = touched_bytes(trace, shards, product, edit["size"])
    reads, whole_reads = _sums(trace.read_start, read), touched(trace, "read", trace.size)
    writes, whole_writes = _sums(trace.write_start, written), touched(trace, "write", trace.size)
    for column, part, whole in (
        ("read_bytes", reads, whole_reads), ("written_bytes", writes, whole_writes),
        ("flops", reads + writes, whole_reads + whole_writes),
    ):  # fmt: skip
        share = np.divide(part, whole, out=np.ones(trace.ops), where=whole > 0)
        if column == "flops":
            share[product & (share < 1)] = 1 / ranks  # whichever of its three tensors are split
        edit[column][:] = getattr(trace, column) * share


def _weights(trace: Trace, kinds: I64, product: Mask, origin: I64) -> I64:
    """The largest parameter of each product in a forward block, through casts.

    origin   (T,) the parameter that a tensor is; copies of one alone are added here
    """
    forward = (kinds != BACKWARD) & (kinds != STEP)
    block = blocks(trace, np.flatnonzero(forward))[trace.module]
    wanted = forward & product & (block >= 0)
    found = np.unique(
        _largest(product, wanted, trace.read_start, trace.read_id, trace.write_start, trace.write_id, origin, trace.size)
    )
    if not len(found[found >= 0]):
        raise TraceError(f"{trace.name}: no block has a linear layer", hint="its operators record no parameters or no modules")
    return found[found >= 0]


@kept()
def _largest(
    product: Any, wanted: Any, read_start: Any, read_id: Any, write_start: Any, write_id: Any, origin: Any, size: Any
) -> Any:
    """(O,) for each wanted operator the largest parameter that it reads, itself or as a copy of it alone; -1 for none."""
    found = np.full(product.size, -1, np.int64)
    for o in range(product.size):
        first, last = read_start[o], read_start[o + 1]
        if wanted[o]:
            for i in range(first, last):
                p = origin[read_id[i]]
                if p >= 0 and (found[o] < 0 or size[p] > size[found[o]]):
                    found[o] = p
        elif not product[o] and last == first + 1 and origin[read_id[first]] >= 0:
            for i in range(write_start[o], write_start[o + 1]):
                if origin[write_id[i]] < 0:
                    origin[write_id[i]] = origin[read_id[first]]
    return found


@kept()
def follow(
    product: Any, adds: Any, step: Any, read_start: Any, read_id: Any, write_start: Any, write_id: Any, gradient: Any,
    seen: Any, flag: Any, origin: Any,
) -> Any:
    """Flags what each operator meets for the first time; returns [(operator, summand that is to be reduced before it)].

    adds       (O,) ANYTHING or SUMMANDS of additions
    gradient   (T,) gradients
    seen       (T,) tensors whose flags are known: at the start the parameters
    origin     (T,) the parameter that a tensor is, or is a copy or a master of; -1: none
    """
    reduced = [(-1, -1)]
    for o in range(product.size):
        first, last = read_start[o], read_start[o + 1]
        out, end = write_start[o], write_start[o + 1]
        if step[o] and end > out:  # lists of tensors, one for each parameter, and perhaps a few numbers
            for i in range(first, last):  # masters have their parameters' flags
                if not seen[read_id[i]] and origin[read_id[i]] >= 0:
                    seen[read_id[i]], flag[read_id[i]] = True, flag[origin[read_id[i]]]
            n = 0
            for i in range(first, last):
                n += gradient[read_id[i]]
            if n == 0:
                n = end - out
            known = np.zeros(n, np.uint8)
            for i in range(first, first + (last - first) // n * n):
                known[(i - first) % n] = max(known[(i - first) % n], flag[read_id[i]])
            for i in range(first, first + (last - first) // n * n):
                if not seen[read_id[i]]:
                    seen[read_id[i]], flag[read_id[i]] = True, known[(i - first) % n]
            for i in range(out, end):
                if not seen[write_id[i]]:
                    seen[write_id[i]], flag[write_id[i]] = True, known[(i - out) % n]
            continue
        weight, part, summands = False, False, 0
        for i in range(first, last):
            seen[read_id[i]] = True
            summands += flag[read_id[i]] == SUMMAND
            weight |= flag[read_id[i]] == WEIGHT
            part |= flag[read_id[i]] == PART
        made = WHOLE
        if adds[o] and summands and not (weight or part) and (adds[o] == ANYTHING or summands == last - first):
            made = SUMMAND
        else:
            for i in range(first, last):
                if flag[read_id[i]] == SUMMAND:
                    flag[read_id[i]] = WHOLE
                    reduced.append((o, read_id[i]))
            if product[o] and weight and part:
                made = SUMMAND
            elif part or (weight and product[o]):
                made = PART
                for i in range(first, last):  # the bias
                    if product[o] and not part and origin[read_id[i]] >= 0:
                        flag[read_id[i]] = flag[origin[read_id[i]]] = WEIGHT
            elif weight:
                made = WEIGHT
        for i in range(out, end):
            if not seen[write_id[i]]:
                seen[write_id[i]], flag[write_id[i]] = True, made
            elif made == SUMMAND:
                flag[write_id[i]] = SUMMAND
    return reduced[1:]


def touched(trace: Trace, side: str, size: I64) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(O,) bytes of the tensors that each operator reads, or writes."""
    return _sums(getattr(trace, f"{side}_start"), size[getattr(trace, f"{side}_id")])


def _sums(start: I64, values: I64) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(O,) sums over the accesses of each operator."""
    total = np.zeros(len(values) + 1)
    np.cumsum(values, out=total[1:])
    return np.asarray(np.diff(total[start]))


def _all_reduce(edit: Edit, reduced: I64, share: float) -> None:
    """Before each operator the reduction of what it reads; (n, 2) operators and tensors."""
    trace = edit.trace
    ops, tensors = reduced.T
    one = np.ones(len(ops), np.int64)
    operators = edit.add_operators(
        (one, tensors), (one, tensors), op=edit.name("op_names", "gpusim::all_reduce"), activity=COLLECTIVE,
        module=trace.module[ops], read_bytes=np.rint(trace.size[tensors] * share).astype(np.int64),
        exchange=edit.exchanges("all_reduce", "tensor", trace.size[tensors]),
    )  # fmt: skip
    edit.insert(begun(trace)[ops], OP, operators, trace.stream[issued(trace)[ops]])


def _named(trace: Trace, wanted: Callable[[str], bool]) -> Mask:
    """(O,) operators whose name is wanted."""
    return np.array([*map(wanted, trace.op_names), False])[trace.op]
