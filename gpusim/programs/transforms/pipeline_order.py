"""The passes of a stage in the order of its schedule, with sends and receives in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.programs.transforms.accumulate import passes
from gpusim.programs.transforms.parts import touched_by
from gpusim.programs.transforms.pipeline_exchanges import NEAR_BACKWARD, NEAR_FORWARD, RECEIVED, SENT
from gpusim.programs.transforms.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    WEIGHTS,
    ZERO_BUBBLE,
    Pipeline,
    StagePass,
    batched,
    passes_of_stage,
    rounds,
    seen_arrived,
)
from gpusim.programs.transforms.weight_gradients import weight_operators
from gpusim.trace import roles
from gpusim.trace.edit import Edit, Mask
from gpusim.trace.exchanges import BATCHED, parse_exchange
from gpusim.trace.trace import ALLOC, COLLECTIVE, FREE, I64, OP, PHASE, Trace

_FAR = re.compile(r"pipeline_\d+_to_(\d+)[+-]\d+")


class _Segment(NamedTuple):
    """The events of a pass: its phase, up to the last receive, up to the first send, from there on."""

    phase: int
    head: I64
    body: I64
    tail: I64


def in_order(trace: Trace, schedule: str, shape: Pipeline, stage: int) -> Trace:
    """The program of a stage, from 0, whose passes come as the schedule has them, and not one microbatch after the other.

    Raises TraceError where a schedule needs weights' gradients apart and the program does not have them so.
    """
    order = passes_of_stage(schedule, shape, stage)
    later = _later(trace) if schedule == ZERO_BUBBLE else np.zeros(trace.events, bool)
    edit, gone = Edit(trace), np.zeros(trace.events, bool)
    for begin, end in zip(*passes(trace), strict=True):
        gone[begin:end] = True
        segments = _segments(trace, begin, end, shape, later)
        arrivals = _known_to_arrive(trace, segments, order, partial(seen_arrived, schedule, shape, stage))
        woven = _Woven(edit, arrivals)
        _weave(woven, order, rounds(schedule, shape, stage), segments, schedule)
        woven.insert(begin)
    edit.drop_events(gone)
    return edit.finish()


def _later(trace: Trace) -> Mask:
    """(E,) what leaves a backward pass with its operators of weights' gradients: those, the allocs of what they alone use in
    the pass, and the frees of what they use."""
    weights = weight_operators(trace)
    kinds = roles.phase_kinds(trace)
    others = (kinds[trace.kind == OP] == roles.BACKWARD) & ~weights
    used, used_by_others = (touched_by(trace, which) for which in (weights, others))
    found = np.zeros(trace.events, bool)
    for kind, moves in ((ALLOC, used & ~used_by_others), (FREE, used), (OP, weights)):
        events = np.flatnonzero((trace.kind == kind) & (kinds == roles.BACKWARD))
        found[events] = moves[trace.arg[events]]
    return found


def _segments(trace: Trace, begin: int, end: int, shape: Pipeline, later: Mask) -> dict[StagePass, _Segment]:
    """The passes of a step, which are between these events: of each microbatch the chunks forward, then backward."""
    if shape.chunks > 1:
        starts = begin + np.flatnonzero(trace.kind[begin:end] == PHASE)
    else:
        kinds = roles.phase_kinds(trace)[begin:end]
        starts = begin + np.flatnonzero(np.diff(kinds, prepend=-1))
    wanted = [
        StagePass(kind, i, chunk) for i in range(shape.microbatches)
        for kind, chunks in ((FORWARD, range(shape.chunks)), (BACKWARD, reversed(range(shape.chunks)))) for chunk in chunks
    ]  # fmt: skip
    if len(starts) != len(wanted):
        raise TraceError(
            f"{trace.name}: a step has {len(starts)} marked passes instead of {len(wanted)}",
            hint="each forward and backward needs the mark of its phase",
        )
    found: dict[StagePass, _Segment] = {}
    for one, first, last in zip(wanted, starts.tolist(), [*starts[1:].tolist(), end], strict=True):
        found[one], weights = _segment(trace, np.arange(first, last), later)
        if one.kind == BACKWARD:
            found[one._replace(kind=WEIGHTS)] = weights
    return found


def _segment(trace: Trace, events: I64, later: Mask) -> tuple[_Segment, _Segment]:
    """A pass, and what of it comes later."""
    phase = int(trace.arg[events[0]]) if trace.kind[events[0]] == PHASE else -1
    events = events[phase >= 0 :]
    moved, kept = events[later[events]], events[~later[events]]
    received, sent = (np.flatnonzero(_is(trace, kept, name)) for name in (RECEIVED, SENT))
    head = int(received[-1]) + 1 if len(received) else 0
    tail = int(sent[0]) if len(sent) else len(kept)
    none = events[:0]
    return _Segment(phase, kept[:head], kept[head:tail], kept[tail:]), _Segment(phase, none, moved, none)


def _is(trace: Trace, events: I64, name: str) -> Mask:
    """Which of the events are operators of this name."""
    number = trace.op_names.index(name) if name in trace.op_names else -1
    operators = np.where(trace.kind[events] == OP, trace.arg[events], -1)
    return np.asarray((operators >= 0) & (np.append(trace.op, -2)[operators] == number))


def _known_to_arrive(
    trace: Trace, segments: dict[StagePass, _Segment], order: list[StagePass],
    seen: Callable[[int, StagePass], StagePass | None],
) -> dict[int, StagePass | None]:  # fmt: skip
    """Tensors that are sent to parts that are no neighbours: the own pass that shows that they have arrived, if any does."""
    found: dict[int, StagePass | None] = {}
    turn = {one: n for n, one in enumerate(order)}
    for one, segment in segments.items():
        for event in segment.tail[_is(trace, segment.tail, SENT)].tolist():
            operator = int(trace.arg[event])
            far = _FAR.fullmatch(parse_exchange(trace.exchanges[int(trace.exchange[operator])]).group)
            if far is None:
                continue
            after = seen(int(far[1]), one)
            for tensor in trace.read_id[trace.read_start[operator] : trace.read_start[operator + 1]].tolist():
                both = (after, found.get(tensor, after))
                found[tensor] = None if None in both else max(both, key=lambda each: turn[each])  # type: ignore[index]
    return found


def _weave(
    woven: _Woven, order: list[StagePass], through: list[list[StagePass]], segments: dict[StagePass, _Segment], schedule: str
) -> None:
    """All passes in order; what they exchange stands after each round, before gradients of weights that follow it."""
    closes = {of[-1]: (of, following) for of, following in zip(through, [*through[1:], []], strict=True)}
    woven.exchange([], [segments[one] for one in through[0]], False)
    for one in order:
        if one.kind != WEIGHTS:
            woven.release()
        woven.mark(segments[one].phase)
        woven.take(segments[one].body)
        woven.arrived(one)
        if one in closes:
            done, following = closes[one]
            together = bool(following) and batched(schedule, done, following)
            woven.exchange([segments[one] for one in done], [segments[one] for one in following], together)
    woven.release()
    woven.arrived(None)


class _Woven:
    """The events of a step in another order.

    known   (passes) of tensors that are sent to no neighbour: the own pass that shows that they have arrived
    """

    def __init__(self, edit: Edit, known: Mapping[int, StagePass | None]) -> None:
        self.edit, self.trace, self.phase, self._known = edit, edit.trace, -1, known
        self._parts: list[tuple[I64, I64, I64]] = []  # kind, arg, stream
        self._freed: list[I64] = []
        self._held: dict[StagePass | None, list[I64]] = {}
        near = [text.split(" ")[1].startswith((NEAR_FORWARD, NEAR_BACKWARD)) for text in self.trace.exchanges]
        self._near = np.array([*near, False])[self.trace.exchange]

    def take(self, events: I64) -> None:
        """These events of the trace."""
        kind, arg, stream = (column[events].astype(np.int64) for column in (self.trace.kind, self.trace.arg, self.trace.stream))
        self._parts.append((kind, arg, stream))

    def mark(self, phase: int, again: bool = False) -> None:
        """From here on it is this phase; again: even if it is already."""
        if phase >= 0 and (again or phase != self.phase):
            self._add(PHASE, phase, 0)
        self.phase = phase

    def release(self) -> None:
        """What was sent is freed."""
        for events in self._freed:
            self.take(events)
        self._freed = []

    def arrived(self, one: StagePass | None) -> None:
        """This pass shows that tensors that went to no neighbour have arrived: they are freed; None: the rest."""
        for which in [one] if one else [*self._held]:
            for events in self._held.pop(which, []):
                self.take(events)

    def exchange(self, done: list[_Segment], following: list[_Segment], together: bool) -> None:
        """What is between rounds: after the one, before the other.

        What is sent stays until `release`, so that work in between does not wait for its memory.
        """
        if together:
            sent, after = self._apart([segment.tail for segment in done])
            received: list[int] = []
            for segment in following:
                self.mark(segment.phase, again=True)
                near, before = self._apart([segment.head])
                self.take(before)
                received += near
            self._batch(sent, received)
            self._leave(after)
            return
        for segment in done:
            self._leave(segment.tail)
        for segment in following:
            self.mark(segment.phase, again=True)
            self.take(segment.head)

    def _leave(self, tail: I64) -> None:
        """The end of a pass, but for what it frees."""
        frees = self.trace.kind[tail] == FREE
        self.take(tail[~frees])
        far = np.array([arg in self._known for arg in self.trace.arg[tail].tolist()], bool) & frees
        for event in tail[far].tolist():
            self._held.setdefault(self._known[int(self.trace.arg[event])], []).append(np.array([event]))
        self._freed.append(tail[frees & ~far])

    def insert(self, at: int) -> None:
        """All of it, before this event."""
        kind, arg, stream = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        self._name_deferred(kind, arg)
        self.edit.insert(np.full(len(kind), at), kind, arg, stream)

    def _add(self, kind: int, arg: int, stream: int) -> None:
        self._parts.append((np.array([kind]), np.array([arg]), np.array([stream])))

    def _apart(self, parts: list[I64]) -> tuple[list[int], I64]:
        """The events of operators that neighbours take part in, and the others."""
        events = np.concatenate(parts)
        near = self._near[np.where(self.trace.kind[events] == OP, self.trace.arg[events], 0)] & (self.trace.kind[events] == OP)
        return events[near].tolist(), events[~near]

    def _batch(self, sent: list[int], received: list[int]) -> None:
        """One operator for all of them."""
        trace, events = self.trace, np.array([*sent, *received], np.int64)
        if len(events) < 2:
            self.take(events)
            return
        operators = trace.arg[events]
        reads, writes = (
            np.concatenate([ids[start[o] : start[o + 1]] for o in operators.tolist()])
            for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id))
        )
        text = BATCHED.join(trace.exchanges[int(trace.exchange[o])] for o in operators.tolist())
        (made,) = self.edit.add_operators(
            (np.array([len(reads)]), reads), (np.array([len(writes)]), writes),
            op=self.edit.name("op_names", "gpusim::send_receive"), activity=COLLECTIVE,
            read_bytes=trace.read_bytes[operators].sum(), exchange=self.edit.name("exchanges", text),
        )  # fmt: skip
        self._add(OP, int(made), int(trace.stream[events[0]]))

    def _name_deferred(self, kind: I64, arg: I64) -> None:
        """Temporary tensors of a backward pass that now outlive it say so: they are no gradients of parameters."""
        phase = np.cumsum(kind == PHASE)
        lived = np.zeros((2, self.trace.tensors), np.int64)
        for row, which in enumerate((ALLOC, FREE)):
            lived[row, arg[kind == which]] = phase[kind == which]
        born, _ = roles.lives(self.trace)
        made = roles.phase_kinds(self.trace)[born] == roles.BACKWARD
        passing = made & (roles.roles(self.trace) == roles.TEMPORARY) & (lived[0] != lived[1])
        self.edit["category"][passing] = self.edit.name("categories", roles.DEFERRED)
