"""Changing a trace: columns are overwritten, rows dropped and inserted, and all of it becomes a trace at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.trace.build import make_trace
from gpusim.trace.trace import ALLOC, COLUMNS, FREE, I64, NAME_TABLES, OOM, OP, SEGMENT_ALLOC, SEGMENT_FREE, SNAPSHOT, Trace

_TENSOR = ("size", "category")
_EVENT = ("kind", "arg", "stream", "time", "addr", "bytes")
_ACCESS = ("read_start", "read_id", "write_start", "write_id")
_OPERATOR = tuple(c for c in COLUMNS if c not in (*_TENSOR, *_EVENT, *_ACCESS))
_UNKNOWN = {"module": -1, "dtype": -1, "duration": -1, "phase": -1}  # what new operators hold when nothing is said, else 0

_OF_ALLOCATOR = (SEGMENT_ALLOC, SEGMENT_FREE, OOM, SNAPSHOT)
_OF_RECORDING = ("free_requested", "start")  # meta that speaks of rows as they were recorded
_NOTHING = (np.zeros(0, np.int64),) * 4

Mask = npt.NDArray[np.bool_]


class Edit:
    """A trace being changed.  Ids stay as they are until `finish`, and new rows continue them, so that both can be mixed.

        edit = Edit(trace)
        edit["size"][activations] //= 2                              a column, writable
        casts = edit.add_operators(..., reads=..., writes=...)       new rows; nothing issues them yet
        edit.insert(at, OP, casts)                                   before event `at` of the trace
        edit.drop_events(mask); edit.finish()

    A tensor that nothing allocates any more, and an operator that nothing issues, are gone with all they touched.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.tensors, self.operators = trace.tensors, trace.ops
        self._own: dict[str, npt.NDArray[Any]] = {}
        self._tables = {name: list(getattr(trace, name)) for name in NAME_TABLES}
        self._more: dict[str, list[npt.NDArray[Any]]] = {c: [] for c in COLUMNS}  # new rows, in the order of their ids
        self._inserted: list[tuple[I64, I64, I64, I64]] = []  # at, kind, arg, stream
        self._kept = np.ones(trace.events, bool)
        self._warnings: list[str] = []

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """This column of the trace's own rows, to be written to."""
        if column not in self._own:
            self._own[column] = getattr(self.trace, column).copy()
        return self._own[column]

    def name(self, table: str, word: str) -> int:
        """The number of a name in one of the trace's tables, added when it is new."""
        words = self._tables[table]
        if word not in words:
            words.append(word)
        return words.index(word)

    def warn(self, sentence: str) -> None:
        """Something that who reads the result should know; it stands in the meta's `warnings`."""
        self._warnings.append(sentence)

    def add_tensors(self, size: npt.ArrayLike, category: npt.ArrayLike) -> I64:
        """New tensors (bytes, numbers of categories); returns their ids.  Insert an ALLOC for each."""
        size = np.atleast_1d(np.asarray(size, np.int64))
        self._append("size", size, len(size))
        self._append("category", category, len(size))
        self.tensors += len(size)
        return np.arange(self.tensors - len(size), self.tensors)

    def add_operators(
        self, reads: tuple[I64, I64], writes: tuple[I64, I64], like: I64 | None = None, **columns: npt.ArrayLike
    ) -> I64:
        """New operators; returns their ids.  Insert an OP for each.

        reads, writes   (how many of each, tensor ids)
        like            operators of the trace whose columns they have, but for those that are given
        """
        count = len(reads[0])
        for column in _OPERATOR:
            given = columns.pop(column, None)
            if given is None:
                given = _UNKNOWN.get(column, 0) if like is None else self._column(column)[like]
            self._append(column, given, count)
        if columns:
            raise TypeError(f"operators have no column '{next(iter(columns))}'")
        for side, (counts, ids) in (("read", reads), ("write", writes)):
            self._more[f"{side}_start"].append(np.asarray(counts, np.int64))
            self._more[f"{side}_id"].append(np.asarray(ids, np.int64))
        self.operators += count
        return np.arange(self.operators - count, self.operators)

    def insert(self, at: npt.ArrayLike, kind: npt.ArrayLike, arg: npt.ArrayLike, stream: npt.ArrayLike = 0) -> None:
        """New events, each before event `at` (or E: after all); of equal `at`, in the order in which they are inserted."""
        at, kind, arg, stream = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, np.int64)) for x in (at, kind, arg, stream)))
        self._inserted.append((at, kind, arg, stream))

    def drop_events(self, mask: Mask) -> None:
        """These events of the trace are gone; insertions beside them stay."""
        self._kept &= ~mask

    def drop_operators(self, mask: Mask) -> None:
        """These operators of the trace are not issued any more."""
        ops = np.flatnonzero(self.trace.kind == OP)
        self._kept[ops[mask]] = False

    def drop_tensors(self, mask: Mask) -> None:
        """These tensors of the trace are neither allocated nor freed any more, and no operator touches them."""
        events = np.flatnonzero((self.trace.kind == ALLOC) | (self.trace.kind == FREE))
        self._kept[events[mask[self.trace.arg[events]]]] = False

    def finish(self) -> Trace:
        """The changed trace, checked.  Tensors are numbered in the order of their allocs, operators in that of their events.

        Host times, addresses and segments are left out: they were those of another program.
        """
        events = self._events()
        kind, arg = events["kind"], events["arg"]
        tensor, tensors = _numbered(arg[kind == ALLOC], self.tensors)
        operator, operators = _numbered(arg[kind == OP], self.operators)
        columns = {c: self._column(c)[tensors] for c in _TENSOR}
        columns |= {c: self._column(c)[operators] for c in _OPERATOR if c != "phase"}
        for side in ("read", "write"):
            columns[f"{side}_start"], columns[f"{side}_id"] = self._accesses(side, operators, tensor)
        for which, number in (((kind == ALLOC) | (kind == FREE), tensor), (kind == OP, operator)):
            arg[which] = number[arg[which]]
        made = {c: np.ascontiguousarray(values, COLUMNS[c]) for c, values in (columns | events).items()}
        for values in made.values():
            values.flags.writeable = False
        meta = {key: value for key, value in self.trace.meta.items() if key not in _OF_RECORDING}
        if self._warnings:
            meta["warnings"] = [*meta.get("warnings", ()), *self._warnings]
        return make_trace(self.trace.name, made, {t: tuple(words) for t, words in self._tables.items()}, meta)

    def _append(self, column: str, values: npt.ArrayLike, count: int) -> None:
        self._more[column].append(np.broadcast_to(np.asarray(values, COLUMNS[column]), count))

    def _column(self, column: str) -> npt.NDArray[Any]:
        """The trace's own rows as they are now, and the new ones."""
        own = self._own.get(column, getattr(self.trace, column))
        return np.concatenate([own, *self._more[column]]) if self._more[column] else own

    def _events(self) -> dict[str, npt.NDArray[Any]]:
        """What was kept and what was inserted, in order."""
        kept = self._kept & ~np.isin(self.trace.kind, _OF_ALLOCATOR)
        at, *values = (np.concatenate(parts) for parts in zip(*[_NOTHING, *self._inserted], strict=True))
        order = np.argsort(at, kind="stable")
        at = at[order]
        before = np.zeros(self.trace.events + 1, np.int64)  # kept events before each event
        np.cumsum(kept, out=before[1:])
        old = np.flatnonzero(kept)
        to_old = before[old] + np.searchsorted(at, old, "right")
        to_new = before[at] + np.arange(len(at))
        found = {}
        for column, new in zip(("kind", "arg", "stream"), values, strict=True):
            own = self._own.get(column, getattr(self.trace, column))
            found[column] = np.empty(len(old) + len(at), COLUMNS[column])
            found[column][to_old], found[column][to_new] = own[old], new[order]
        return found

    def _accesses(self, side: str, operators: I64, tensor: I64) -> tuple[I64, I64]:
        """CSR of these operators, by the new numbers of tensors; without tensors that are gone."""
        start, ids = getattr(self.trace, f"{side}_start"), self._column(f"{side}_id")
        counts = np.concatenate([np.diff(start), *self._more[f"{side}_start"]])
        where, _ = spread(np.cumsum(counts) - counts, counts, operators)
        found, counts = tensor[ids[where]], counts[operators]
        start = np.zeros(len(operators) + 1, np.int64)
        np.cumsum(counts, out=start[1:])
        gone = found < 0
        if gone.any():
            lost = np.zeros(len(found) + 1, np.int64)
            np.cumsum(gone, out=lost[1:])
            start, found = start - lost[start], found[~gone]
        return start, found


def spread(start: I64, count: I64, rows: I64) -> tuple[I64, I64]:
    """Of the rows of a CSR table, one after another: the position of each entry, and the index in `rows` that it is of."""
    counts = count[rows]
    row = np.repeat(np.arange(len(rows)), counts)
    return np.arange(len(row)) + (start[rows] - (np.cumsum(counts) - counts))[row], row


def _numbered(ids: I64, count: int) -> tuple[I64, I64]:
    """(old id -> new, -1 for none; the old ids in the order of the new)."""
    number = np.full(count, -1, np.int64)
    number[ids] = np.arange(len(ids))
    return number, ids


def issued(trace: Trace) -> I64:
    """(O,) the event of each operator."""
    return np.flatnonzero(trace.kind == OP)


def begun(trace: Trace) -> I64:
    """(O,) the event with which each operator begins: the first of the allocs right before its own event."""
    other = np.maximum.accumulate(np.where(trace.kind != ALLOC, np.arange(trace.events), -1))
    before = issued(trace) - 1
    return np.where(before >= 0, other[before], -1) + 1
