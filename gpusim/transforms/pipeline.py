"""Pipeline parallelism: blocks are divided over GPUs, and a batch goes through them in pieces, one forward, one backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.errors import GpusimError, TraceError
from gpusim.trace.blocks import blocks
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, PARAMETER, STEP, lives, phase_kinds, roles
from gpusim.trace.trace import COLLECTIVE, I64, OP, Trace
from gpusim.transforms.accumulate import accumulate, passes
from gpusim.transforms.parameters import side_stream
from gpusim.transforms.tensor_parallel import PART, follow, touched


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

    touched_by_own, touched_by_others = (_touched_by(trace, passing & who) for who in (own, ~own))
    role = roles(trace)
    made = phase_kinds(trace)[lives(trace)[0]]
    gone = ~touched_by_own & (touched_by_others | (made == FORWARD) | (made == BACKWARD))
    flag = np.where(gone, PART, 0).astype(np.uint8)
    known = (role == PARAMETER) | (made == FORWARD) | (made == BACKWARD) | touched_by_own | touched_by_others
    none = np.zeros(trace.ops, bool)
    follow(
        none, none, kinds == STEP, trace.read_start, trace.read_id, trace.write_start, trace.write_id, role == GRADIENT,
        known, flag,
    )  # fmt: skip
    edit.drop_tensors(flag > 0)
    left = np.where(flag > 0, 0, trace.size)
    step = kinds == STEP
    for column, side in (("read_bytes", "read"), ("written_bytes", "write"), ("flops", "write")):
        whole = touched(trace, side, trace.size)
        share = np.divide(touched(trace, side, left), whole, out=np.ones(trace.ops), where=whole > 0)
        edit[column][step] = (getattr(trace, column) * share)[step]
    _exchange(edit, of_pass, passing, own)
    return edit.finish()


def _stages(trace: Trace, kinds: I64, of_pass: I64, stages: int) -> I64:
    """(O,) the stage of each operator of forward and backward, from 0: never falling in forward, never rising in backward."""
    block = blocks(trace, np.flatnonzero(kinds == FORWARD))[trace.module]
    number = int(block.max()) + 1
    if number < stages:
        raise TraceError(f"{trace.name}: {stages} stages for {number} blocks", hint=f"at most stages={number}")
    found = np.where(block >= 0, block * stages // number, -1)
    for p in np.unique(of_pass):
        rows = np.flatnonzero(of_pass == p)
        if kinds[rows[0]] == FORWARD:
            found[rows] = np.maximum.accumulate(np.maximum(found[rows], 0))
            behind = rows[rows > rows[np.flatnonzero(block[rows] >= 0)[-1]]] if (block[rows] >= 0).any() else rows[:0]
            found[behind] = stages - 1
        elif kinds[rows[0]] == BACKWARD:
            known = np.where(found[rows] >= 0, found[rows], stages - 1)
            found[rows] = np.minimum.accumulate(known)
            behind = rows[rows > rows[np.flatnonzero(block[rows] >= 0)[-1]]] if (block[rows] >= 0).any() else rows[:0]
            found[behind] = 0
    return found


def _touched_by(trace: Trace, who: Mask) -> Mask:
    """(T,) tensors that these operators access."""
    found = np.zeros(trace.tensors, bool)
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        found[ids[np.repeat(who, np.diff(start))]] = True
    return found


def _exchange(edit: Edit, of_pass: I64, passing: Mask, own: Mask) -> None:
    """In each pass an operator that receives what others made and this stage reads, and one that sends what they read."""
    trace, stream = edit.trace, side_stream(edit.trace)
    reader = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    writer = np.full(trace.tensors, -1, np.int64)
    writer[trace.write_id[::-1]] = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))[::-1]
    made_by = writer[trace.read_id]
    crosses = (made_by >= 0) & passing[reader] & (of_pass[made_by] == of_pass[reader]) & (own[made_by] != own[reader])
    events, first_events = issued(trace), begun(trace)
    for p in np.unique(of_pass[passing]):
        rows = np.flatnonzero((of_pass == p) & passing & own)
        if not len(rows):
            continue
        here = crosses & (of_pass[reader] == p)
        for name, which, place in (
            ("gpusim::receive", here & own[reader], first_events[rows[0]]),
            ("gpusim::send", here & ~own[reader], events[rows[-1]] + 1),
        ):
            ids = np.unique(trace.read_id[which])
            if len(ids):
                none, all_ = (np.zeros(1, np.int64), ids[:0]), (np.array([len(ids)]), ids)
                reads, writes = (none, all_) if name == "gpusim::receive" else (all_, none)
                operator = edit.add_operators(
                    reads, writes, op=edit.name("op_names", name), activity=COLLECTIVE,
                    read_bytes=int(trace.size[ids].sum()),
                )  # fmt: skip
                edit.insert(place, OP, operator, stream)


def _interleaved(trace: Trace, warm: int) -> Trace:
    """The passes of each step in the order of 1F1B: `warm` forwards first, then a forward and a backward in turn."""
    edit = Edit(trace)
    kinds = phase_kinds(trace)
    for begin, end in zip(*passes(trace), strict=True):
        turns = np.flatnonzero(np.diff(kinds[begin:end], prepend=-1)) + begin
        parts = [np.arange(a, b) for a, b in zip(turns, [*turns[1:], end], strict=True)]
        forwards, backwards = parts[::2], parts[1::2]
        order = forwards[:warm]
        for n, backward in enumerate(backwards):
            order += [*forwards[warm + n : warm + n + 1], backward]
        events = np.concatenate(order)
        gone = np.zeros(trace.events, bool)
        gone[begin:end] = True
        edit.drop_events(gone)
        edit.insert(np.full(len(events), begin), trace.kind[events], trace.arg[events], trace.stream[events])
    return edit.finish()
