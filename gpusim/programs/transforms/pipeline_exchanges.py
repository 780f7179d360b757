"""What the stages of a pipeline send each other: in each pass what one has made and another one reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gpusim.programs.transforms.parameters import side_stream
from gpusim.programs.transforms.pipeline_schedules import Pipeline
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.roles import BACKWARD, DEFERRED, FORWARD, TEMPORARY, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COLLECTIVE, FREE, I64, OP, PHASE, Trace

RECEIVED, SENT = "gpusim::receive", "gpusim::send"
NEAR_FORWARD, NEAR_BACKWARD = "pipeline_forward", "pipeline_backward"


class ModelParts(NamedTuple):
    """How a program goes through the parts of the model, each a run of blocks.

    part      (O,) of each operator, from 0: the p-th is on stage p modulo stages
    of_pass   (O,) the number of the pass, forward or backward; -1 outside of any
    backward  (O,)
    own       (O,) of this stage
    everywhere  (O,) those that each stage has for itself
    """

    part: I64
    of_pass: I64
    backward: Mask
    own: Mask
    everywhere: Mask


class _Way(NamedTuple):
    """Tensors that cross from one part to another, in all passes: a row for each tensor and pass."""

    name: str
    source: int
    target: int
    of_pass: I64
    tensor: I64


def exchange(edit: Edit, parts: ModelParts, shape: Pipeline, stage: int) -> None:
    """Before each own part of a pass operators that receive what it reads of other stages, after it those that send.

    Neighbouring parts exchange in one stream, as over the one communicator that Megatron-LM has for them.  What a stage reads
    of a part that is no neighbour it has from there, as in torch.distributed.pipelining, in a stream of its own.  A tensor is
    sent once to a stage, for all of its parts.
    """
    trace = edit.trace
    begins, ends = _own_stretches(trace, parts, shape)
    if shape.chunks > 1:
        _mark_parts(edit, begins)
    stream, apart = side_stream(trace), 1
    sent = np.full(trace.tensors, -1, np.int64)
    for way in _ways(trace, parts, shape):
        source, target = way.source % shape.stages, way.target % shape.stages
        if stage not in (source, target):
            continue
        near = abs(way.source - way.target) == 1
        on = stream if near else stream + apart
        if stage == target:
            _receive(edit, way, begins[way.of_pass, way.target], source - stage, on)
        else:
            place = ends[way.of_pass, way.source]
            _operators(edit, way, place, target - stage, on, receives=False)
            np.maximum.at(sent, way.tensor, place)
        apart += not near
    _free_sent(edit, sent, parts.own)


def _own_stretches(trace: Trace, parts: ModelParts, shape: Pipeline) -> tuple[I64, I64]:
    """(passes, parts) the event with which each own part of a pass begins, and the one after its last operator."""
    own = np.flatnonzero((parts.of_pass >= 0) & parts.own)
    size = int(parts.of_pass.max()) + 1, shape.stages * shape.chunks
    first, last = np.full(size, trace.ops), np.full(size, -1)
    np.minimum.at(first, (parts.of_pass[own], parts.part[own]), own)
    np.maximum.at(last, (parts.of_pass[own], parts.part[own]), own)
    ends = np.where(last < 0, -1, issued(trace)[last] + 1)
    return np.where(last < 0, -1, begun(trace)[np.minimum(first, trace.ops - 1)]), ends


def _mark_parts(edit: Edit, begins: I64) -> None:
    """One mark of the phase for each own part of a pass: the phase's own for the first, new ones for the others.

    Temporary tensors of backward that outlive a mark say so, and are no gradients of parameters.
    """
    trace, kinds = edit.trace, phase_kinds(edit.trace)
    marks = np.flatnonzero(trace.kind == PHASE)
    again = np.zeros(trace.events, bool)
    again[marks] = ((kinds[marks] == FORWARD) | (kinds[marks] == BACKWARD)) & (kinds[marks - 1] == kinds[marks])
    edit.drop_events(again)
    born, died = lives(trace)
    temporary = (kinds[born] == BACKWARD) & (roles(trace) == TEMPORARY)
    for one in begins:
        place = np.sort(one[one >= 0])
        if len(place) > 1:
            edit.insert(place[1:], PHASE, trace.arg[marks[np.searchsorted(marks, place[0]) - 1]])
            outlives = np.searchsorted(place, born) < np.searchsorted(place, died)
            edit["category"][temporary & outlives] = edit.name("categories", DEFERRED)


def _ways(trace: Trace, parts: ModelParts, shape: Pipeline) -> Iterator[_Way]:
    """All that crosses between stages, by the part that makes it and the first one of a stage that reads it."""
    reader = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    writer = np.full(trace.tensors, -1, np.int64)
    writer[trace.write_id[::-1]] = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))[::-1]
    made_by = writer[trace.read_id]
    source, target = parts.part[made_by], parts.part[reader]
    crosses = np.flatnonzero(
        (made_by >= 0) & (parts.of_pass[reader] >= 0) & (parts.of_pass[made_by] == parts.of_pass[reader])
        & (source % shape.stages != target % shape.stages) & ~parts.everywhere[made_by] & ~parts.everywhere[reader]
    )  # fmt: skip
    key = (parts.of_pass[reader] * trace.tensors + trace.read_id)[crosses] * shape.stages + target[crosses] % shape.stages
    crosses = crosses[np.unique(key, return_index=True)[1]]
    pairs = np.stack([source[crosses], target[crosses]], 1)
    for a, b in np.unique(pairs, axis=0).tolist():
        mine = crosses[(pairs == (a, b)).all(1)]
        order = mine[np.lexsort((trace.read_id[mine], parts.of_pass[reader[mine]]))]
        if abs(a - b) > 1:
            name = f"pipeline_{a}_to_{b}"
        else:
            name = NEAR_BACKWARD if parts.backward[reader[order[0]]] else NEAR_FORWARD
        yield _Way(name, a, b, parts.of_pass[reader[order]], trace.read_id[order])


def _receive(edit: Edit, way: _Way, place: I64, steps: int, stream: int) -> None:
    """One operator for each pass, before these events; what it receives is allocated right before."""
    trace = edit.trace
    born, _ = lives(trace)
    gone = np.zeros(trace.events, bool)
    gone[born[way.tensor]] = True
    edit.drop_events(gone)
    edit.insert(place, ALLOC, way.tensor)
    _operators(edit, way, place, steps, stream, receives=True)


def _free_sent(edit: Edit, sent: I64, own: Mask) -> None:
    """What this stage has no use for any more once it is sent is freed then, and not when others have no use for it.

    sent   (T,) the event before which it is sent, -1: never
    """
    trace = edit.trace
    last = np.full(trace.tensors, -1)
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        mine = np.repeat(own, np.diff(start))
        np.maximum.at(last, ids[mine], issued(trace)[np.repeat(np.arange(trace.ops), np.diff(start))[mine]])
    _, died = lives(trace)
    early = np.flatnonzero((sent >= 0) & (died < trace.events) & (died > sent) & (last < sent))
    gone = np.zeros(trace.events, bool)
    gone[died[early]] = True
    edit.drop_events(gone)
    edit.insert(sent[early], FREE, early)


def _operators(edit: Edit, way: _Way, place: I64, steps: int, stream: int, receives: bool) -> None:
    _, first, of, count = np.unique(way.of_pass, return_index=True, return_inverse=True, return_counts=True)
    size = np.bincount(of, edit.trace.size[way.tensor].astype(float), len(first)).astype(np.int64)
    none, all_ = (0 * count, way.tensor[:0]), (count, way.tensor)
    name = RECEIVED if receives else SENT
    operators = edit.add_operators(
        *((none, all_) if receives else (all_, none)), op=edit.name("op_names", name), activity=COLLECTIVE, read_bytes=size,
        exchange=edit.exchanges(name.removeprefix("gpusim::"), f"{way.name}{steps:+d}", size),
    )  # fmt: skip
    edit.insert(place[first], OP, operators, stream)
