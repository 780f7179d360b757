"""Pipeline parallelism: blocks are divided over GPUs, and a batch goes through them in pieces, one forward, one backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs.transforms.accumulate import accumulate, passes
from gpusim.programs.transforms.parameters import side_stream
from gpusim.programs.transforms.tensor_parallel import PART, follow, touched
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, PARAMETER, STEP, lives, phase_kinds, roles
from gpusim.trace.trace import COLLECTIVE, I64, OP, Trace


def pipeline(trace: Trace, stages: int = 4, stage: int = 1, microbatches: int = 4) -> Trace:
    """One GPU of `stages`, each with an equal run of the model's numbered blocks; the recorded batch is one microbatch.

    stage         which one, from 1: the first has what comes before the blocks, the last what comes after
    microbatches  forward and backward passes for each optimizer step

    A stage runs `stages - stage` forwards before its first backward, then one of each in turn, so that it holds the
    activations of at most `stages - stage + 1` microbatches.  What crosses a boundary is received before, and sent after, the
    stage's part of a pass.  Other stages are not simulated: the time is that of this stage's own work, and the bubble,
    (stages - 1) / microbatches of it, comes on top (`meta["pipeline"]`).
    Source: Narayanan et al., Efficient large-scale language model training on GPU clusters, SC 2021, section 2.2.
    """
    if stage > stages:
        raise GpusimError(f"parameter 'stage' of transform 'pipeline' is {stage}, of {stages} stages")
    made = _own_part(trace, stages, stage)
    if microbatches > 1:
        made = _interleaved(accumulate(made, steps=microbatches), stages - stage)
    bubble = (stages - 1) / microbatches
    return replace(made, meta={**made.meta, "pipeline": {"stages": stages, "stage": stage, "bubble": bubble}})


def _own_part(trace: Trace, stages: int, stage: int) -> Trace:
    """Without what other stages do and hold, and with what comes from them and goes to them."""
    kinds = phase_kinds(trace)[issued(trace)].astype(np.int64)
    passing = (kinds == FORWARD) | (kinds == BACKWARD)
    of_pass = np.cumsum(np.diff(np.where(passing, kinds, -1), prepend=-1) != 0)
    at = _stages(trace, kinds, of_pass, stages)
    own = at == stage - 1
    edit = Edit(trace)
    edit.drop_operators(passing & ~own)

    touched_by_own, touched_by_others = (_touched_by(trace, passing & operators) for operators in (own, ~own))
    role = roles(trace)
    made = phase_kinds(trace)[lives(trace)[0]]
    gone = ~touched_by_own & (touched_by_others | (made == FORWARD) | (made == BACKWARD))
    flag = np.where(gone, PART, 0).astype(np.uint8)
    known = (role == PARAMETER) | (made == FORWARD) | (made == BACKWARD) | touched_by_own | touched_by_others
    none = np.zeros(trace.ops, bool)
    follow(
        none, none, kinds == STEP, trace.read_start, trace.read_id, trace.write_start, trace.write_id, role == GRADIENT,
        known, flag, np.full(trace.tensors, -1),
    )  # fmt: skip
    edit.drop_tensors(flag > 0)
    left = np.where(flag > 0, 0, trace.size)
    step = kinds == STEP
    for column, side in (("read_bytes", "read"), ("written_bytes", "write"), ("flops", "write")):
        whole = touched(trace, side, trace.size)
        share = np.divide(touched(trace, side, left), whole, out=np.ones(trace.ops), where=whole > 0)
        edit[column][step] = (getattr(trace, column) * share)[step]
    _exchange(edit, kinds, of_pass, passing, at, stage - 1)
    return edit.finish()


def _stages(trace: Trace, kinds: I64, of_pass: I64, stages: int) -> I64:
    """(O,) the stage of each operator of forward and backward, from 0: never falling in forward, never rising in backward."""
    block = blocks(trace, np.flatnonzero(kinds == FORWARD))[trace.module]
    number = int(block.max()) + 1
    if number < stages:
        raise TraceError(f"{trace.name}: {stages} stages for {number} blocks", hint=f"at most stages={number}")
    last = stages - 1
    # How far a pass has come, in either direction: before its first block nowhere, after its last through.
    far = np.where(kinds == BACKWARD, last - block * stages // number, block * stages // number)
    far[block < 0] = 0
    final = np.full(int(of_pass.max()) + 1, trace.ops)
    inside = np.flatnonzero(block >= 0)
    final[of_pass[inside]] = inside  # of equal passes the last one stays
    far[np.arange(trace.ops) > final[of_pass]] = last
    far = np.maximum.accumulate(of_pass * stages + far) - of_pass * stages
    return np.asarray(np.where(kinds == BACKWARD, last - far, far))


def _touched_by(trace: Trace, operators: Mask) -> Mask:
    """(T,) tensors that these operators access."""
    found = np.zeros(trace.tensors, bool)
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        found[ids[np.repeat(operators, np.diff(start))]] = True
    return found


def _exchange(edit: Edit, kinds: I64, of_pass: I64, passing: Mask, at: I64, stage: int) -> None:
    """In each pass operators that receive what other stages made and this one reads, and that send what they read.

    What a stage reads it has from the stage that made it, neighbour or not, as in torch.distributed.pipelining.  Each way from
    and to each stage has a stream of its own, as pairs have in NCCL: none waits for another.
    """
    trace, stream = edit.trace, side_stream(edit.trace)
    reader = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    writer = np.full(trace.tensors, -1, np.int64)
    writer[trace.write_id[::-1]] = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))[::-1]
    made_by = writer[trace.read_id]
    made_at, read_at = at[made_by], at[reader]
    crosses = (made_by >= 0) & passing[reader] & (of_pass[made_by] == of_pass[reader]) & (made_at != read_at)
    first, last = np.full(of_pass.max() + 1, trace.ops), np.full(of_pass.max() + 1, -1)
    mine = np.flatnonzero(passing & (at == stage))
    np.minimum.at(first, of_pass[mine], mine)
    np.maximum.at(last, of_pass[mine], mine)
    begins, ends = begun(trace)[np.minimum(first, trace.ops - 1)], issued(trace)[last] + 1
    ways = [(name, which, other, place) for other in np.unique(at).tolist() for name, which, place in (
        ("gpusim::receive", crosses & (read_at == stage) & (made_at == other), begins),
        ("gpusim::send", crosses & (made_at == stage) & (read_at == other), ends),
    ) if which.any()]  # fmt: skip
    for way, (name, which, other, place) in enumerate(ways):
        of, tensor = np.divmod(np.unique(of_pass[reader[which]] * trace.tensors + trace.read_id[which]), trace.tensors)
        where, count = np.unique(of, return_counts=True)
        size = np.bincount(of, trace.size[tensor].astype(float), len(place)).astype(np.int64)[where]
        none, all_ = (0 * count, tensor[:0]), (count, tensor)
        receives = name == "gpusim::receive"
        reads, writes = (none, all_) if receives else (all_, none)
        exchange = edit.exchanges(name.removeprefix("gpusim::"), f"pipeline{other - stage:+d}", size)
        operators = edit.add_operators(
            reads, writes, op=edit.name("op_names", name), activity=COLLECTIVE, read_bytes=size, exchange=exchange
        )
        edit.insert(place[where], OP, operators, stream + way)


def _interleaved(trace: Trace, warm: int) -> Trace:
    """The passes of each step in the order of 1F1B: `warm` forwards first, then a forward and a backward in turn."""
    edit = Edit(trace)
    kinds = phase_kinds(trace)
    turns = np.flatnonzero(np.diff(kinds, prepend=-1))
    at, order = [], []
    gone = np.zeros(trace.events, bool)
    for begin, end in zip(*passes(trace), strict=True):
        gone[begin:end] = True
        own = turns[np.searchsorted(turns, begin) : np.searchsorted(turns, end)]
        parts = [np.arange(a, b) for a, b in zip(own, [*own[1:], end], strict=True)]
        order += parts[::2][:warm]
        for n, backward in enumerate(parts[1::2]):
            order += [*parts[::2][warm + n : warm + n + 1], backward]
        at.append(np.full(end - begin, begin))
    events = np.concatenate(order)
    edit.drop_events(gone)
    edit.insert(np.concatenate(at), trace.kind[events], trace.arg[events], trace.stream[events])
    return edit.finish()
