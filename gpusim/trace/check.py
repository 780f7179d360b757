"""What a trace must satisfy before anything simulates it; a breach is one sentence naming event and tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.exchanges import parse_exchanges
from gpusim.trace.launches import parse_launch
from gpusim.trace.shapes import parse
from gpusim.trace.trace import ACTIVITIES, ALLOC, COLUMNS, EVENT_KINDS, FREE, I64, LATER_TABLES, OP, PHASE, Trace

MAX_BYTES = 2**56  # one tensor, segment or access: 64 PiB, so that sums of a few thousand still fit int64
MANY = 10**6  # events from which on importing the compiled check pays
MAX_FLOPS = 1e21  # of one operator: 30 years at a teraflop per second, which the clock can still count

_TENSOR = ("size", "category")
_EVENT = ("kind", "arg", "stream", "time", "addr", "bytes")
_OPERATOR = (
    "op", "module", "dtype", "flops", "read_bytes", "written_bytes", "duration", "phase", "activity", "shape", "launch",
    "exchange", "device_time",
)  # fmt: skip
_NAMED = {
    "category": "categories", "op": "op_names", "module": "modules", "dtype": "dtypes", "phase": "phases", **LATER_TABLES,
}  # fmt: skip
_GRAMMARS: dict[str, Callable[[str], Any]] = {"shape": parse, "launch": parse_launch, "exchange": parse_exchanges}

Where = Callable[[int], str]
"""Turns an event's index, or -1, into the "file:line" or "file" it was read from."""


def check_trace(trace: Trace, where: Where | None = None) -> None:
    """Raises TraceError for the first breach found.  Vectorised: a few passes over each column, O(E + T + accesses)."""
    check = _Check(trace, where or (lambda event: ""))
    check.lengths()
    check.values()
    if trace.events >= MANY:
        from gpusim.trace.sound import sound

        if sound(trace):
            return
    born, died = check.lifetimes()
    check.accesses(born, died, check.operators())


class _Check:
    def __init__(self, trace: Trace, where: Where) -> None:
        self.trace, self.where = trace, where

    def error(self, message: str, hint: str = "", event: Any = -1) -> TraceError:
        return TraceError(message, self.where(int(event)), hint)

    def lengths(self) -> None:
        trace = self.trace
        for group, what in ((_TENSOR, "tensor"), (_EVENT, "event"), (_OPERATOR, "operator")):
            rows = len(getattr(trace, group[0]))
            for column in group:
                if len(getattr(trace, column)) != rows:
                    raise self.error(
                        f"column '{column}' has {len(getattr(trace, column))} rows, but there are {rows} {what}s",
                        f"every {what} column has one row per {what}",
                    )
        for column, dtype in COLUMNS.items():
            array = getattr(trace, column)
            if array.dtype != dtype or array.ndim != 1:
                raise self.error(f"column '{column}' is {array.dtype}{list(array.shape)}, not a flat array of {dtype}")
        for side in ("read", "write"):
            start, ids = getattr(trace, f"{side}_start"), getattr(trace, f"{side}_id")
            if len(start) != trace.ops + 1 or start[0] != 0 or start[-1] != len(ids) or (np.diff(start) < 0).any():
                raise self.error(
                    f"'{side}_start' does not partition the {len(ids)} rows of '{side}_id' over {trace.ops} operators",
                    "one entry more than operators, from 0, never falling, to the number of ids",
                )

    def values(self) -> None:
        trace = self.trace
        for column in ("size", "bytes", "read_bytes", "written_bytes"):
            array = getattr(trace, column)
            self.each(column, array >= 0, "which is negative", "sizes are bytes")
            self.each(column, array <= MAX_BYTES, "which is more than 64 PiB", "sizes are bytes")
        if float(trace.size.sum(dtype=np.float64)) >= 2.0**62:
            raise self.error("the tensors' sizes sum to more than 4 EiB, which overflows byte counts", "sizes are bytes")
        for column, table in _NAMED.items():
            array, names = getattr(trace, column), getattr(trace, table)
            lowest = 0 if column in ("category", "op") else -1
            fine = (array >= lowest) & (array < len(names))
            self.each(column, fine, f"but '{table}' has {len(names)} names", "indices count from 0")
        for column in ("time", "duration", "device_time", "addr"):
            self.each(column, getattr(trace, column) >= -1, "which is negative", "-1 means not recorded")
        if float(np.maximum(trace.duration, 0).sum(dtype=np.float64)) >= 2.0**60:
            raise self.error("the operators' durations sum to more than 36 years, which overflows the clock", "times are ns")
        self.each("flops", (trace.flops >= 0) & (trace.flops <= MAX_FLOPS), "which no kernel computes", "0 when unknown")
        self.each("activity", trace.activity < len(ACTIVITIES), "which is unknown", "activities: " + ", ".join(ACTIVITIES))
        self.each("stream", trace.stream >= 0, "which is negative", "streams count from 0, the default stream")
        for column, grammar in _GRAMMARS.items():
            self.texts(column, grammar)
        timed = np.flatnonzero(trace.time >= 0)
        bad = _first(np.diff(trace.time[timed]) < 0)
        if bad >= 0:
            event = timed[bad + 1]
            raise self.error(f"event {event} is earlier than one before it", "events stand in the order of issue", event)

    def texts(self, column: str, grammar: Callable[[str], Any]) -> None:
        for number, text in enumerate(getattr(self.trace, LATER_TABLES[column])):
            try:
                grammar(text)
            except TraceError as error:
                row = _first(getattr(self.trace, column) == number)
                event = _first((self.trace.kind == OP) & (self.trace.arg == row)) if row >= 0 else -1
                raise self.error(f"operator {row}: {error.message}" if row >= 0 else error.message, error.hint, event) from None

    def each(self, column: str, fine: npt.NDArray[np.bool_], why: str, hint: str) -> None:
        """Refuses the first row of the column that is not fine."""
        row = _first(~fine)
        if row < 0:
            return
        what, event = "event", row
        if column in _TENSOR:
            what, event = "tensor", _first((self.trace.kind == ALLOC) & (self.trace.arg == row))
        elif column in _OPERATOR:
            what, event = "operator", _first((self.trace.kind == OP) & (self.trace.arg == row))
        raise self.error(f"{what} {row}: '{column}' is {getattr(self.trace, column)[row]}, {why}", hint, event)

    def lifetimes(self) -> tuple[I64, I64]:
        """For each tensor the event of its alloc, and of its free or E when it is never freed."""
        trace = self.trace
        bad = _first(trace.kind >= len(EVENT_KINDS))
        if bad >= 0:
            raise self.error(f"event {bad} has the unknown kind {trace.kind[bad]}", event=bad)
        born, died = (np.full(trace.tensors, trace.events, np.int64) for _ in range(2))
        for kind, table, verb in ((ALLOC, born, "allocates"), (FREE, died, "frees")):
            events = np.flatnonzero(trace.kind == kind)
            ids = trace.arg[events]
            self.known(ids, events, verb)
            table[ids[::-1]] = events[::-1]  # the first of several wins: assignment keeps the last one written
            bad = _first(table[ids] != events)
            if bad >= 0:
                raise self.error(
                    f"event {events[bad]} {verb} tensor {ids[bad]} again, after event {table[ids[bad]]} did",
                    "ids are never reused: give the second tensor an id of its own"
                    if kind == ALLOC
                    else "remove the second free, or give the tensor that is freed here its own id",
                    events[bad],
                )
        hint = "a tensor that existed before the recording is allocated at the start"
        bad = _first(born == trace.events)
        if bad >= 0 and died[bad] < trace.events:
            raise self.error(f"event {died[bad]} frees tensor {bad}, which is never allocated", hint, died[bad])
        if bad >= 0:
            raise self.error(f"tensor {bad} is never allocated", hint)
        bad = _first(died < born)
        if bad >= 0:
            raise self.error(f"event {died[bad]} frees tensor {bad} before event {born[bad]} allocates it", hint, died[bad])
        return born, died

    def operators(self) -> I64:
        """The event of each operator."""
        trace = self.trace
        events = np.flatnonzero(trace.kind == OP)
        if len(events) != trace.ops:
            raise self.error(f"there are {trace.ops} operators but {len(events)} op events", "each is issued exactly once")
        ids = trace.arg[events]
        bad = _first(ids != np.arange(trace.ops))
        if bad >= 0:
            raise self.error(
                f"event {events[bad]} issues operator {ids[bad]}, but operator {bad} is due",
                "operators are numbered in the order of their events",
                events[bad],
            )
        marks = np.flatnonzero(trace.kind == PHASE)
        phases = trace.arg[marks]
        bad = _first((phases < 0) | (phases >= len(trace.phases)))
        if bad >= 0:
            raise self.error(
                f"event {marks[bad]} begins phase {phases[bad]}, but there are {len(trace.phases)} phases",
                event=marks[bad],
            )
        latest = np.searchsorted(marks, events) - 1
        due = np.where(latest >= 0, phases[latest], -1) if len(marks) else np.full(trace.ops, -1)
        bad = _first(trace.phase != due)
        if bad >= 0:
            raise self.error(
                f"operator {bad} says phase {trace.phase[bad]}, but the latest phase event before it began {due[bad]}",
                event=events[bad],
            )
        return events

    def accesses(self, born: I64, died: I64, op_event: I64) -> None:
        """Every operator touches tensors that are alive when it is issued."""
        for side, verb in (("read", "reads"), ("write", "writes")):
            ids = getattr(self.trace, f"{side}_id")
            event = np.repeat(op_event, np.diff(getattr(self.trace, f"{side}_start")))
            self.known(ids, event, verb)
            bad = _first((born[ids] > event) | (died[ids] < event))
            if bad < 0:
                continue
            tensor = ids[bad]
            if born[tensor] > event[bad]:
                why, hint = f"before event {born[tensor]} allocates it", "put its alloc before the operator"
            else:
                why, hint = f"after event {died[tensor]} freed it", "put its free after its last use"
            raise self.error(f"event {event[bad]} {verb} tensor {tensor} {why}", hint, event[bad])

    def known(self, ids: I64, events: I64, verb: str) -> None:
        """Refuses the first id that no tensor has."""
        bad = _first((ids < 0) | (ids >= self.trace.tensors))
        if bad >= 0:
            raise self.error(
                f"event {events[bad]} {verb} tensor {ids[bad]}, but there are {self.trace.tensors} tensors",
                "tensor ids count from 0",
                events[bad],
            )


def _first(wrong: npt.NDArray[np.bool_]) -> int:
    """Index of the first true entry, -1 when there is none."""
    if not len(wrong):
        return -1
    at = int(np.argmax(wrong))
    return at if wrong[at] else -1
