"""ZeRO: optimizer state, gradients and parameters are spread over the ranks of data parallelism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.programs.transforms.gradients import BLOCK, Gradients, gradients, made_in_pass, reduce, stand_ins, take
from gpusim.programs.transforms.parameters import SMALL, bring_in, parameters, place_of, side_stream, step_rows, uses
from gpusim.trace.edit import Edit, issued
from gpusim.trace.elements import base_name
from gpusim.trace.model_blocks import block_names
from gpusim.trace.roles import OPTIMIZER, STEP, TEMPORARY, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COLLECTIVE, I64, KERNEL, OP, Trace


def zero(
    trace: Trace, stage: int = 1, ranks: int = 8, bucket: str = "auto", overlap: bool = True, reduced: str = "made"
) -> Trace:
    """One of `ranks` GPUs, each with a batch like the recorded one, that share what all would hold alike.

    stage    1: optimizer state; 2: gradients too; 3: parameters too, which are gathered block by block
    bucket   gradients are reduced when so many bytes are complete, or with "block" when a block of the model is; auto: 25 MiB,
             and in stage 3 a block, as FSDP has one flat gradient for each
    overlap  of stage 3: a block is gathered while the one before it computes
    reduced  type in which gradients are exchanged: fp32, bf16, fp16, or made: as it is

    A rank sends (n - 1) / n of the gradients' bytes (reduce-scatter), and as much of the parameters' (all-gather): once after
    the step in stages 1 and 2; in stage 3 before each use in forward and in backward.  Rings on a stream of their own.
    Of several backward passes before an optimizer step, stage 1 reduces the sums after the last (DeepSpeed, at its boundary of
    accumulation); stages 2 and 3 scatter each pass's gradients (DeepSpeed; FSDP without `no_sync`).
    Source: Rajbhandari et al., ZeRO: Memory optimizations toward training trillion parameter models, SC 2020, sections 5 and 7.
    """
    if stage > 3:
        raise GpusimError(f"parameter 'stage' of transform 'zero' is {stage}", hint="the stages are 1, 2 and 3")
    buckets = _bucket(trace, stage, bucket)
    g = gradients(trace, buckets, once=stage < 2, reduced=reduced)
    weights = parameters(trace)
    edit, stream, sent = Edit(trace), side_stream(trace), (ranks - 1) / ranks
    if stage >= 2:
        _add_shares(edit, g, ranks)
        if stage == 3 and buckets == BLOCK:
            _flatten(edit, g, stream)
        _scatter(edit, g, ranks, stream)
    else:
        reduce(edit, g, "gpusim::reduce_scatter", sent, stream)
    step = phase_kinds(trace) == STEP
    role = roles(trace)
    split = ((role == OPTIMIZER) | ((role == TEMPORARY) & step[lives(trace)[0]])) & (trace.size > SMALL)
    if stage == 3:
        u = uses(trace, weights & (trace.size > SMALL))
        bring_in(edit, u, [("gpusim::all_gather", COLLECTIVE)], sent, stream, place_of(trace, u, overlap))
        split |= weights & (trace.size > SMALL)
    else:
        _gather_after_steps(edit, np.flatnonzero(weights), sent, stream)
    edit["size"][split] = -(-trace.size[split] // ranks)
    own = step[issued(trace)]
    for column in ("flops", "read_bytes", "written_bytes"):
        edit[column][own] = getattr(trace, column)[own] / ranks
    made = edit.finish()
    # Of the parameters' bytes that are there, one in so many is this rank's to update.
    own_share = 1 if stage == 3 else ranks
    return replace(made, meta={**made.meta, "ranks": ranks, "own_share": own_share})


def _bucket(trace: Trace, stage: int, said: str) -> str:
    """What "auto" means: blocks where stage 3 finds any."""
    if said != "auto":
        return said
    return BLOCK if stage == 3 and any(block_names(trace)) else "25 MiB"


def _add_shares(edit: Edit, g: Gradients, ranks: int) -> None:
    """Sums over several passes are of the shares that each has scattered."""
    trace = edit.trace
    adds = np.array([base_name(name) == "add_" for name in trace.op_names] or [False])[trace.op]
    of = np.unique(g.last[adds[g.last]])
    for column in ("flops", "read_bytes", "written_bytes"):
        edit[column][of] = getattr(trace, column)[of] // ranks


def _flatten(edit: Edit, g: Gradients, stream: int) -> None:
    """What FSDP does to a block's gradients before it scatters them: they become one flat tensor, converted and divided.

    Source: PyTorch, torch/distributed/fsdp: `_flat_param.py` (parameters are views that `torch.split` makes of the flat one, so
    that backward concatenates), `_runtime_utils.py` (`_post_backward_hook`, `_reduce_grad`, `_div_if_needed`, on a stream of
    their own).
    """
    trace = edit.trace
    made, sent = (np.bincount(g.bucket, size, len(g.fires)) for size in (trace.size[g.tensor], g.sent))
    cast = sent != made  # to another type
    none = np.zeros(len(g.fires), np.int64), np.zeros(0, np.int64)
    for name, read, written, on in (
        ("gpusim::flatten", made, made, 0),
        ("gpusim::convert", sent + cast * made, sent + cast * sent, stream),
    ):
        operators = edit.add_operators(
            none, none, op=edit.name("op_names", name), read_bytes=np.rint(read).astype(np.int64),
            written_bytes=np.rint(written).astype(np.int64), activity=KERNEL,
        )  # fmt: skip
        edit.insert(g.fires, OP, operators, on)


def _scatter(edit: Edit, g: Gradients, ranks: int, stream: int) -> None:
    """A pass makes whole gradients; of each complete bucket only a share outlives its collective."""
    trace = edit.trace
    whole = stand_ins(edit, g)
    own = made_in_pass(trace, g)
    edit["size"][g.tensor] = -(-trace.size[g.tensor] // ranks)
    edit.insert(g.fires[g.bucket[own]], ALLOC, g.tensor[own])
    take(edit, g, whole, g.tensor, "gpusim::reduce_scatter", COLLECTIVE, (ranks - 1) / ranks, stream)


def _gather_after_steps(edit: Edit, weights: I64, share: float, stream: int) -> None:
    """After each step every rank gets the parameters that others have updated."""
    trace = edit.trace
    _, last = step_rows(trace)
    count = np.full(len(last), len(weights))
    ids, whole = np.tile(weights, len(last)), int(trace.size[weights].sum())
    operators = edit.add_operators(
        (count, ids), (count, ids), op=edit.name("op_names", "gpusim::all_gather"), activity=COLLECTIVE,
        read_bytes=round(whole * share), exchange=edit.exchanges("all_gather", "data", np.full(len(last), whole)),
    )  # fmt: skip
    edit.insert(issued(trace)[last] + 1, OP, operators, stream)
