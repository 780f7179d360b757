"""Changing a trace: columns are overwritten, rows dropped and inserted, and all of it becomes a trace at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.trace.build import make_trace
from gpusim.trace.columns import Events
from gpusim.trace.exchanges import exchange_text
from gpusim.trace.shapes import TYPES, times, without
from gpusim.trace.trace import ALLOC, COLUMNS, FREE, I64, NAME_TABLES, OP, PHASE, SEGMENT_ALLOC, Trace, derived

_TENSOR = ("size", "category")
_EVENT = ("kind", "arg", "stream", "time", "addr", "bytes")
_ACCESS = ("read_start", "read_id", "write_start", "write_id")
_OPERATOR = tuple(c for c in COLUMNS if c not in (*_TENSOR, *_EVENT, *_ACCESS))
# What new operators hold when nothing is said, else 0.
_UNKNOWN = dict.fromkeys(("module", "dtype", "duration", "phase", "shape", "launch", "exchange", "device_time"), -1)

_OF_SHAPE = ("flops", "read_bytes", "written_bytes", "op")  # what follows from an operator's shape, or says what it is of

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

    A tensor that nothing allocates any more, and an operator that nothing issues, are gone with all they touched.  An operator
    whose arithmetic or bytes are changed has its shape with the ratio as `scale`, unless a shape is written with them or only
    types change (`retyped`); one of another name loses it.  A launch configuration is lost with each of these changes.
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
        self._sizes = trace.size  # with room for more
        self.retyped = False  # bytes change because types do: dimensions stay as they are

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
        """Something that a reader of the result should know; it stands in the meta's `warnings`."""
        self._warnings.append(sentence)

    def add_tensors(self, size: npt.ArrayLike, category: npt.ArrayLike) -> I64:
        """New tensors (bytes, numbers of categories); returns their ids.  Insert an ALLOC for each."""
        size = np.atleast_1d(np.asarray(size, np.int64))
        self._append("size", size, len(size))
        if (total := self.tensors + len(size)) > len(self._sizes) or self._sizes is self.trace.size:
            self._sizes = np.concatenate([self._sizes[: self.tensors], np.empty(total, np.int64)])
        self._sizes[self.tensors : total] = size
        self._append("category", category, len(size))
        self.tensors += len(size)
        return np.arange(self.tensors - len(size), self.tensors)

    def add_operators(
        self, reads: tuple[I64, I64], writes: tuple[I64, I64], like: I64 | None = None, **columns: npt.ArrayLike
    ) -> I64:
        """New operators; returns their ids.  Insert an OP for each.

        reads, writes   (how many of each, tensor ids)
        like            operators of the trace whose columns they have, but for those that are given; of the same arithmetic and
                        bytes they have the same shape
        """
        count = len(reads[0])
        if set(_OF_SHAPE) & set(columns):
            columns.setdefault("shape", -1)
            columns.setdefault("launch", -1)
            columns.setdefault("exchange", -1)
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

    def sizes(self) -> I64:
        """Bytes of all tensors, new ones last."""
        return self._column("size")

    def sizes_of(self, tensors: I64) -> I64:
        """Bytes of some tensors, the trace's as they were recorded, new ones as they were added."""
        return self._sizes[tensors]

    def insert(self, at: npt.ArrayLike, kind: npt.ArrayLike, arg: npt.ArrayLike, stream: npt.ArrayLike = 0) -> None:
        """New events, each before event `at` (or E: after all); of equal `at`, in the order in which they are inserted."""
        at, kind, arg, stream = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, np.int64)) for x in (at, kind, arg, stream)))
        if (arg < 0).any():
            raise ValueError("an inserted event is of no tensor, operator or phase")
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

        Times of host and device, addresses and segments are left out: they were those of another program.
        """
        self._keep_shapes_true()
        self._drop_stale()
        at, *inserted = (np.concatenate(parts) for parts in zip(*[_NOTHING, *self._inserted], strict=True))
        order = np.argsort(at, kind="stable")
        own = [self._own.get(c, getattr(self.trace, c)) for c in ("kind", "arg", "stream")]
        kind, arg, stream, phase, tensor, operators = _woven(
            self._kept, Events(*own), at[order], Events(*(values[order] for values in inserted)), self.tensors, self.operators
        )
        tensors = np.empty(int(tensor.max(initial=-1)) + 1, np.int64)
        old = np.flatnonzero(tensor >= 0)
        tensors[tensor[old]] = old
        made = {"kind": kind, "arg": arg, "stream": stream, "phase": phase}
        for rows, names in ((tensors, _TENSOR), (operators, _OPERATOR)):
            as_before = _counts_up(rows)
            for name in names:
                if name not in ("phase", "device_time"):
                    column = self._column(name)
                    made[name] = column.view() if as_before and len(rows) == len(column) else column[rows]
        for side in ("read", "write"):
            counts = np.concatenate([np.diff(getattr(self.trace, f"{side}_start")), *self._more[f"{side}_start"]])
            starts = np.cumsum(counts) - counts
            made[f"{side}_start"], made[f"{side}_id"] = _accesses(
                starts, counts, self._column(f"{side}_id"), operators, tensor
            )
        made["bytes"] = _alloc_bytes(kind, arg, made["size"])
        for values in made.values():
            values.flags.writeable = False
        meta = {key: value for key, value in self.trace.meta.items() if key not in _OF_RECORDING}
        if self._warnings:
            meta["warnings"] = [*meta.get("warnings", ()), *self._warnings]
        return make_trace(self.trace.name, made, {t: tuple(words) for t, words in self._tables.items()}, meta)

    def _keep_shapes_true(self) -> None:
        """No operator keeps a shape of other dimensions or types than its own."""
        trace = self.trace
        if not trace.shapes:
            return
        changed = np.zeros(trace.ops, bool)
        for column in {"dtype", *_OF_SHAPE} & set(self._own) if self.retyped else set(_OF_SHAPE) & set(self._own):
            changed |= self._own[column] != getattr(trace, column)
        changed &= (trace.shape >= 0) & (self._own.get("shape", trace.shape) == trace.shape)
        if not self.retyped:
            self._scale_shapes(changed)
        else:
            for number in np.unique(trace.shape[changed]).tolist():
                text = trace.shapes[number]
                if (untyped := without(text, TYPES)) != text:
                    self["shape"][changed & (trace.shape == number)] = self.name("shapes", untyped)

    def _drop_stale(self) -> None:
        """What does other work, or other types, is launched otherwise, and how is not known; nor what other bytes are sent."""
        trace = self.trace
        for column in {"dtype", *_OF_SHAPE} & set(self._own) if trace.launches else ():
            self["launch"][self._own[column] != getattr(trace, column)] = -1
        if trace.exchanges and "read_bytes" in self._own:
            self["exchange"][self._own["read_bytes"] != trace.read_bytes] = -1

    def exchanges(self, kind: str, group: str, sizes: I64) -> I64:
        """The numbers of these exchanges, of so many bytes each."""
        return np.array([self.name("exchanges", exchange_text(kind, group, size)) for size in sizes.tolist()], np.int64)

    def _scale_shapes(self, changed: npt.NDArray[np.bool_]) -> None:
        """What has other arithmetic, or other bytes where there is none, does its shape's work so many times."""
        trace = self.trace
        flops, read, written, op = (self._own.get(name, getattr(trace, name)) for name in _OF_SHAPE)
        before = np.where(trace.flops > 0, trace.flops, (trace.read_bytes + trace.written_bytes).astype(np.float64))
        after = np.where(trace.flops > 0, flops, (read + written).astype(np.float64))
        ratio = np.divide(after, before, out=np.zeros(trace.ops), where=before > 0).round(6)
        ratio[op != trace.op] = 0
        rows = np.flatnonzero(changed)
        pairs, which = np.unique(np.stack([trace.shape[rows], ratio[rows]], axis=1), axis=0, return_inverse=True)
        names = [
            self.name("shapes", times(trace.shapes[int(number)], factor)) if factor > 0 else -1
            for number, factor in pairs.tolist()
        ]
        self["shape"][rows] = np.array(names, np.int32)[which.reshape(-1)]

    def _append(self, column: str, values: npt.ArrayLike, count: int) -> None:
        self._more[column].append(np.broadcast_to(np.asarray(values, COLUMNS[column]), count))

    def _column(self, column: str) -> npt.NDArray[Any]:
        """The trace's own rows as they are now, and the new ones."""
        own = self._own.get(column, getattr(self.trace, column))
        return np.concatenate([own, *self._more[column]]) if self._more[column] else own


@kept()
def _counts_up(rows: Any) -> bool:
    """Whether rows are 0, 1, 2, ..."""
    for i in range(rows.size):  # noqa: SIM110
        if rows[i] != i:
            return False
    return True


@kept()
def _woven(kept: Any, own: Events, at: Any, new: Events, tensors: int, operators: int) -> Any:
    """The events that were kept and those inserted before event `at`, in order and by new ids; the phase of each operator;
    the new id of each tensor, -1 for none; the old ids of the operators that are issued, in order."""
    count = kept.sum() + at.size
    kind_, arg_, stream_ = np.empty(count, np.uint8), np.empty(count, np.int64), np.empty(count, np.int16)
    tensor, operator = np.full(tensors, -1, np.int64), np.empty(operators, np.int64)
    phase_ = np.empty(operators, np.int32)
    n, i, issued, born, phase = 0, 0, 0, 0, -1
    for e in range(own.kind.size + 1):
        while True:
            if i < at.size and at[i] == e:
                k, a, s = new.kind[i], new.arg[i], new.stream[i]
                i += 1
                last = False
            elif e < own.kind.size and kept[e] and own.kind[e] < SEGMENT_ALLOC:
                k, a, s = np.int64(own.kind[e]), own.arg[e], np.int64(own.stream[e])
                last = True
            else:
                break
            if k == ALLOC:
                tensor[a] = born
                a = born
                born += 1
            elif k == FREE:
                a = tensor[a]
            elif k == OP:
                operator[issued] = a
                phase_[issued] = phase
                a = issued
                issued += 1
            elif k == PHASE:
                phase = a
            kind_[n], arg_[n], stream_[n] = k, a, s
            n += 1
            if last:
                break
    return kind_[:n], arg_[:n], stream_[:n], phase_[:issued], tensor, operator[:issued]


@kept()
def _accesses(start: Any, count: Any, ids: Any, operators: Any, tensor: Any) -> Any:
    """CSR of these operators by new ids, without tensors that are gone."""
    starts = np.zeros(operators.size + 1, np.int64)
    total = 0
    for o in operators:
        total += count[o]
    found = np.empty(total, np.int64)
    n = 0
    for row in range(operators.size):
        o = operators[row]
        for i in range(start[o], start[o] + count[o]):
            if tensor[ids[i]] >= 0:
                found[n] = tensor[ids[i]]
                n += 1
        starts[row + 1] = n
    return starts, found[:n]


@kept()
def _alloc_bytes(kind: Any, arg: Any, size: Any) -> Any:
    found = np.zeros(kind.size, np.int64)
    for e in range(kind.size):
        if kind[e] == ALLOC:
            found[e] = size[arg[e]]
    return found


def spread(start: I64, count: I64, rows: I64) -> tuple[I64, I64]:
    """Of the rows of a CSR table, one after another: the position of each entry, and the index in `rows` that it is of."""
    counts = count[rows]
    row = np.repeat(np.arange(len(rows)), counts)
    return np.arange(len(row)) + (start[rows] - (np.cumsum(counts) - counts))[row], row


@derived
def issued(trace: Trace) -> I64:
    """(O,) the event of each operator."""
    return np.flatnonzero(trace.kind == OP)


@derived
def begun(trace: Trace) -> I64:
    """(O,) the event with which each operator begins: the first of the allocs right before its own event."""
    return _begun(trace.kind, trace.ops)  # type: ignore[no-any-return]


@kept()
def _begun(kind: Any, ops: int) -> Any:
    found = np.empty(ops, np.int64)
    o, begin = 0, 0
    for e in range(kind.size):
        if kind[e] == OP:
            found[o] = begin
            o += 1
        if kind[e] != ALLOC:
            begin = e + 1
    return found


def last_uses(trace: Trace) -> I64:
    """(T,) the last operator that accesses each tensor, -1 for none."""
    return _last_uses(  # type: ignore[no-any-return]
        trace.read_start, trace.read_id, trace.write_start, trace.write_id, trace.tensors
    )


@kept()
def _last_uses(read_start: Any, read_id: Any, write_start: Any, write_id: Any, tensors: int) -> Any:
    found = np.full(tensors, -1, np.int64)
    for o in range(read_start.size - 1):
        for i in range(read_start[o], read_start[o + 1]):
            found[read_id[i]] = o
        for i in range(write_start[o], write_start[o + 1]):
            found[write_id[i]] = o
    return found
