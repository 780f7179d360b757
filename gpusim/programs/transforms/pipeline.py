"""Pipeline parallelism: blocks are divided over GPUs, and a batch goes through them in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs.transforms.accumulate import accumulate
from gpusim.programs.transforms.parts import drop_part
from gpusim.programs.transforms.pipeline_exchanges import ModelParts, exchange
from gpusim.programs.transforms.pipeline_order import in_order
from gpusim.programs.transforms.pipeline_schedules import ONE_BY_ONE, ZERO_BUBBLE, Pipeline, check_schedule
from gpusim.trace.edit import Edit, Mask, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, FORWARD, PARAMETER, phase_kinds, roles
from gpusim.trace.trace import I64, Trace


def pipeline(
    trace: Trace, stages: int = 4, stage: int = 1, microbatches: int = 4, schedule: str = "1f1b", chunks: int = 1
) -> Trace:
    """One GPU of `stages`, each with equal runs of the model's numbered blocks; the recorded batch is one microbatch.

    stage         which one, from 1: the first has what comes before the blocks, the last what comes after
    microbatches  forward and backward passes for each optimizer step
    schedule      1f1b: `stages - stage` forwards, then a backward and a forward in turn, so that activations of at most
                  `stages - stage + 1` microbatches are held; gpipe: all forwards, then all backwards; interleaved: 1f1b of
                  `chunks` runs of blocks on each stage; zero_bubble: 1f1b whose weights' gradients come later (ZB-H1)
    chunks        of an interleaved schedule: runs of blocks on each stage

    What crosses a boundary is received before, and sent after, the stage's part of a pass, in batches as Megatron-LM has them.
    Other stages are not simulated: the time is that of this stage's own work, and the bubble of (stages - 1) / microbatches /
    chunks of it, less under zero_bubble, comes on top (`meta["pipeline"]`).
    Source: Narayanan et al., Efficient large-scale language model training on GPU clusters, SC 2021, section 2.2; Qi et al.,
    Zero bubble pipeline parallelism, ICLR 2024; Megatron-LM, megatron/core/pipeline_parallel/schedules.py.
    """
    if stage > stages:
        raise GpusimError(f"parameter 'stage' of transform 'pipeline' is {stage}, of {stages} stages")
    shape = Pipeline(stages, microbatches, chunks)
    check_schedule(schedule, shape)
    made = _own_part(trace, shape, stage - 1)
    if microbatches > 1:
        made = accumulate(made, steps=microbatches)
    if microbatches > 1 or schedule != ONE_BY_ONE:
        made = in_order(made, schedule, shape, stage - 1)
    known = {"stages": stages, "stage": stage, "schedule": schedule}
    bubble = {} if schedule == ZERO_BUBBLE else {"bubble": (stages - 1) / microbatches / chunks}
    return replace(made, meta={**made.meta, "pipeline": {**known, **bubble}})


def _own_part(trace: Trace, shape: Pipeline, stage: int) -> Trace:
    """Without what other stages do and hold, and with what comes from them and goes to them."""
    kinds = phase_kinds(trace)[issued(trace)].astype(np.int64)
    passing = (kinds == FORWARD) | (kinds == BACKWARD)
    of_pass = np.cumsum(np.diff(np.where(passing, kinds, -1), prepend=-1) != 0)
    demand_blocks(trace, shape.stages, shape.chunks)
    at = _parts(trace, kinds, of_pass, shape.stages * shape.chunks)
    everywhere = _without_parameters(trace, kinds == FORWARD, of_pass)
    own = passing & (at % shape.stages == stage) & ~everywhere
    own |= everywhere & _leading_to(trace, own)
    at[own & everywhere] = stage
    edit = Edit(trace)
    drop_part(edit, kinds, passing & ~own)
    exchange(edit, ModelParts(at, np.where(passing, of_pass, -1), kinds == BACKWARD, own, everywhere), shape, stage)
    return edit.finish()


def demand_blocks(trace: Trace, stages: int, chunks: int) -> None:
    """Raises TraceError for a program with fewer numbered blocks than stages have runs of them."""
    forward = phase_kinds(trace)[issued(trace)] == FORWARD
    number = int(blocks(trace, np.flatnonzero(forward)).max()) + 1
    if number < stages * chunks:
        of_each = f" of {chunks} runs of blocks" if chunks > 1 else ""
        raise TraceError(
            f"{trace.name}: {stages} stages{of_each} for {number} blocks", hint=f"at most stages={number // chunks}" + of_each
        )


def _parts(trace: Trace, kinds: I64, of_pass: I64, parts: int) -> I64:
    """(O,) the part of the model of each operator of forward and backward, from 0: never falling in forward, never rising in
    backward."""
    block = blocks(trace, np.flatnonzero(kinds == FORWARD))[trace.module]
    number = int(block.max()) + 1
    last = parts - 1
    # How far a pass has come, in either direction: before its first block nowhere, after its last through.
    far = np.where(kinds == BACKWARD, last - block * parts // number, block * parts // number)
    far[block < 0] = 0
    final = np.full(int(of_pass.max()) + 1, trace.ops)
    inside = np.flatnonzero(block >= 0)
    final[of_pass[inside]] = inside  # of equal passes the last one stays
    far[np.arange(trace.ops) > final[of_pass]] = last
    far = np.maximum.accumulate(of_pass * parts + far) - of_pass * parts
    return np.asarray(np.where(kinds == BACKWARD, last - far, far))


def _without_parameters(trace: Trace, forward: Mask, of_pass: I64) -> Mask:
    """(O,) operators before the blocks that need no parameter, directly or not: tables of positions, masks.

    Every stage has its own of them, as it has the inputs.
    """
    inside = np.flatnonzero(blocks(trace, np.flatnonzero(forward))[trace.module] >= 0)
    first = np.full(int(of_pass.max()) + 1, 0)
    first[of_pass[inside[::-1]]] = inside[::-1]
    learned = roles(trace) == PARAMETER  # or follows from one
    if "buffer" in trace.categories:
        learned &= trace.category != trace.categories.index("buffer")
    found = np.zeros(trace.ops, bool)
    for o in np.flatnonzero(forward & (np.arange(trace.ops) < first[of_pass])).tolist():
        found[o] = not learned[trace.read_id[trace.read_start[o] : trace.read_start[o + 1]]].any()
        learned[trace.write_id[trace.write_start[o] : trace.write_start[o + 1]]] |= not found[o]
    return found


def _leading_to(trace: Trace, operators: Mask) -> Mask:
    """(O,) operators whose results these read, directly or not."""
    wanted, found = np.zeros(trace.tensors, bool), np.zeros(trace.ops, bool)
    for o in range(trace.ops - 1, -1, -1):
        found[o] = wanted[trace.write_id[trace.write_start[o] : trace.write_start[o + 1]]].any()
        if found[o] or operators[o]:
            wanted[trace.read_id[trace.read_start[o] : trace.read_start[o + 1]]] = True
    return found
