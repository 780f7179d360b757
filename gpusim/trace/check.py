"""What a trace must satisfy before anything simulates it; a breach is one sentence naming event and tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.errors import TraceError
from gpusim.trace.trace import ALLOC, COLUMNS, EVENT_KINDS, FREE, I64, OP, PHASE, Trace

MAX_BYTES = 2**56  # one tensor, segment or access: 64 PiB, so that sums of a few thousand still fit int64

_TENSOR = ("size", "category")
_EVENT = ("kind", "arg", "stream", "time", "addr", "bytes")
_OPERATOR = ("op", "module", "dtype", "flops", "read_bytes", "written_bytes", "duration", "phase")
_NAMED = {"category": "categories", "op": "op_names", "module": "modules", "dtype": "dtypes", "phase": "phases"}

Where = Callable[[int], str]
"""Turns an event's index into the "file:line" it was read from."""


def check_trace(trace: Trace, where: Where | None = None) -> None:
    """Raises TraceError for the first breach found.  Vectorised: a few passes over each column, O(E + T + accesses)."""
    _lengths(trace)
    _values(trace)
    born, died = _lifetimes(trace, where)
    op_event = _operators(trace, where)
    _accesses(trace, born, died, op_event, where)


def _lengths(trace: Trace) -> None:
    for group, what in ((_TENSOR, "tensor"), (_EVENT, "event"), (_OPERATOR, "operator")):
        first = len(getattr(trace, group[0]))
        for column in group:
            if len(getattr(trace, column)) != first:
                raise TraceError(
                    f"column '{column}' has {len(getattr(trace, column))} rows, but there are {first} {what}s",
                    hint=f"every {what} column has one row per {what}",
                )
    for column, dtype in COLUMNS.items():
        array = getattr(trace, column)
        if array.dtype != dtype or array.ndim != 1:
            raise TraceError(f"column '{column}' is {array.dtype}{list(array.shape)}, not a flat array of {dtype}")
    for side in ("read", "write"):
        start, ids = getattr(trace, f"{side}_start"), getattr(trace, f"{side}_id")
        if len(start) != trace.ops + 1 or start[0] != 0 or start[-1] != len(ids) or (np.diff(start) < 0).any():
            raise TraceError(
                f"'{side}_start' does not partition the {len(ids)} entries of '{side}_id' over {trace.ops} operators",
                hint="one entry more than operators, from 0, never falling, to the number of ids",
            )


def _values(trace: Trace) -> None:
    for column, what in (
        ("size", "tensor"),
        ("bytes", "event"),
        ("read_bytes", "operator"),
        ("written_bytes", "operator"),
    ):
        array = getattr(trace, column)
        bad = _first((array < 0) | (array > MAX_BYTES))
        if bad >= 0:
            fault = "negative" if array[bad] < 0 else "more than 64 PiB"
            raise TraceError(
                f"{what} {bad}: '{column}' is {array[bad]} bytes, which is {fault}", hint="sizes are bytes"
            )
    if float(trace.size.sum(dtype=np.float64)) >= 2.0**62:
        raise TraceError(
            "the tensors' sizes sum to more than 4 EiB, which overflows 64-bit byte counts", hint="sizes are bytes"
        )
    for column, table in _NAMED.items():
        array, names = getattr(trace, column), getattr(trace, table)
        lowest = 0 if column in ("category", "op") else -1
        bad = _first((array < lowest) | (array >= len(names)))
        if bad >= 0:
            raise TraceError(f"row {bad} of '{column}' is {array[bad]}, but '{table}' has {len(names)} names")
    for column in ("time", "duration", "addr"):
        bad = _first(getattr(trace, column) < -1)
        if bad >= 0:
            raise TraceError(f"row {bad} of '{column}' is {getattr(trace, column)[bad]}", hint="-1 means not recorded")
    if not np.isfinite(trace.flops).all() or (trace.flops < 0).any():
        bad = _first(~np.isfinite(trace.flops) | (trace.flops < 0))
        raise TraceError(f"operator {bad}: flops is {trace.flops[bad]}", hint="0 when unknown")
    bad = _first(trace.stream < 0)
    if bad >= 0:
        raise TraceError(f"event {bad}: stream is {trace.stream[bad]}", hint="streams count from 0, the default stream")
    known = trace.time[trace.time >= 0]
    if len(known) and (np.diff(known) < 0).any():
        at = np.flatnonzero(trace.time >= 0)[_first(np.diff(known) < 0) + 1]
        raise TraceError(f"event {at} is earlier than the one before it", hint="events stand in the order of issue")


def _lifetimes(trace: Trace, where: Where | None) -> tuple[I64, I64]:
    """For each tensor the event of its alloc, and of its free or E when it is never freed."""
    bad = _first(trace.kind >= len(EVENT_KINDS))
    if bad >= 0:
        raise TraceError(f"event {bad} has the unknown kind {trace.kind[bad]}", _at(where, bad))
    born = np.full(trace.tensors, trace.events, np.int64)
    died = np.full(trace.tensors, trace.events, np.int64)
    for kind, table in ((ALLOC, born), (FREE, died)):
        events = np.flatnonzero(trace.kind == kind)
        ids = trace.arg[events]
        bad = _first((ids < 0) | (ids >= trace.tensors))
        if bad >= 0:
            raise TraceError(
                f"event {events[bad]} {EVENT_KINDS[kind]}s tensor {ids[bad]}, but there are {trace.tensors} tensors",
                _at(where, events[bad]),
                "tensor ids count from 0",
            )
        table[ids[::-1]] = events[::-1]  # the first of several wins: assignment keeps the last one written
        bad = _first(table[ids] != events)
        if bad >= 0:
            raise TraceError(
                f"event {events[bad]} {EVENT_KINDS[kind]}s tensor {ids[bad]} again, after event {table[ids[bad]]} did",
                _at(where, events[bad]),
                "ids are never reused: give the second tensor an id of its own"
                if kind == ALLOC
                else "remove the second free, or give the tensor that is freed here its own id",
            )
    bad = _first(born == trace.events)
    if bad >= 0:
        at = died[bad]
        raise TraceError(
            f"event {at} frees tensor {bad}, which is never allocated"
            if at < trace.events
            else f"tensor {bad} is never allocated",
            _at(where, at) if at < trace.events else "",
            "a tensor that existed before the recording is allocated at the start",
        )
    bad = _first(died < born)
    if bad >= 0:
        raise TraceError(
            f"event {died[bad]} frees tensor {bad} before event {born[bad]} allocates it",
            _at(where, died[bad]),
            "events stand in the order of issue",
        )
    return born, died


def _operators(trace: Trace, where: Where | None) -> I64:
    """The event of each operator."""
    events = np.flatnonzero(trace.kind == OP)
    ids = trace.arg[events]
    if len(events) != trace.ops:
        raise TraceError(
            f"there are {trace.ops} operators but {len(events)} op events", hint="each is issued exactly once"
        )
    bad = _first(ids != np.arange(trace.ops))
    if bad >= 0:
        raise TraceError(
            f"event {events[bad]} issues operator {ids[bad]}, but operator {bad} is due",
            _at(where, events[bad]),
            "operators are numbered in the order of their events",
        )
    marks = np.flatnonzero(trace.kind == PHASE)
    phases = trace.arg[marks]
    bad = _first((phases < 0) | (phases >= len(trace.phases)))
    if bad >= 0:
        raise TraceError(
            f"event {marks[bad]} begins phase {phases[bad]}, but there are only {len(trace.phases)} phases",
            _at(where, marks[bad]),
        )
    latest = np.searchsorted(marks, events) - 1
    due = np.where(latest >= 0, phases[latest], -1) if len(marks) else np.full(trace.ops, -1)
    bad = _first(trace.phase != due)
    if bad >= 0:
        raise TraceError(
            f"operator {bad} says phase {trace.phase[bad]}, but the latest phase event before it began {due[bad]}",
            _at(where, events[bad]),
        )
    return events


def _accesses(trace: Trace, born: I64, died: I64, op_event: I64, where: Where | None) -> None:
    for side in ("read", "write"):
        start, ids = getattr(trace, f"{side}_start"), getattr(trace, f"{side}_id")
        event = np.repeat(op_event, np.diff(start))
        verb = "reads" if side == "read" else "writes"
        bad = _first((ids < 0) | (ids >= trace.tensors))
        if bad >= 0:
            raise TraceError(
                f"event {event[bad]} {verb} tensor {ids[bad]}, but there are only {trace.tensors} tensors",
                _at(where, event[bad]),
            )
        bad = _first((born[ids] > event) | (died[ids] < event))
        if bad >= 0:
            tensor = ids[bad]
            early = born[tensor] > event[bad]
            raise TraceError(
                f"event {event[bad]} {verb} tensor {tensor} "
                + (f"before event {born[tensor]} allocates it" if early else f"after event {died[tensor]} freed it"),
                _at(where, event[bad]),
                "put its alloc before the operator" if early else "put its free after its last use",
            )


def _first(wrong: npt.NDArray[Any]) -> int:
    """Index of the first true entry, -1 when there is none."""
    if not len(wrong):
        return -1
    at = int(np.argmax(wrong))
    return at if wrong[at] else -1


def _at(where: Where | None, event: Any) -> str:
    return where(int(event)) if where else ""
