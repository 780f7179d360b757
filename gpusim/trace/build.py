"""Making a trace: from whole columns, or event by event while a foreign file is read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.check import Where, check_trace
from gpusim.trace.trace import ALLOC, COLUMNS, FREE, KERNEL, LATER, LATER_TABLES, NAME_TABLES, OP, PHASE, Trace

# What a column holds where its maker says nothing; the columns not named here must be given or follow from the others.
_FILL = {
    "category": 0,
    "stream": 0,
    "time": -1,
    "addr": -1,
    "module": -1,
    "dtype": -1,
    "flops": 0,
    "read_bytes": 0,
    "written_bytes": 0,
    "duration": -1,
    **LATER,
}
_BYTES_AND_NS = "sizes are bytes, times are ns"  # a hint
_ROWS_OF = {"category": "size", "stream": "kind", "time": "kind", "addr": "kind"}  # else "op"


def make_trace(
    name: str,
    columns: Mapping[str, npt.ArrayLike],
    tables: Mapping[str, Iterable[str]] | None = None,
    meta: Mapping[str, Any] | None = None,
    *,
    check: bool = True,
    where: Where | None = None,
) -> Trace:
    """A trace from its columns (names and shapes as in `Trace`), read-only and checked.

    Only `size`, `kind` and `arg` are required, and `op` when there are operators; others are filled as not recorded,
    and `bytes` and `phase` are derived from the events.  Arrays are copied unless they already are read-only and of
    the right type.  `where` turns an event's index into "file:line" for messages.  Raises TraceError.
    """
    unknown = [c for c in columns if c not in COLUMNS] + [t for t in tables or () if t not in NAME_TABLES]
    if unknown:
        raise TraceError(f"a trace has no column '{unknown[0]}'", hint="columns: " + ", ".join(COLUMNS))
    for required in ("size", "kind", "arg"):
        if required not in columns:
            raise TraceError(f"a trace needs the column '{required}'")
    made = {c: _cast(c, columns[c], where(-1) if where else "") for c in COLUMNS if c in columns}
    made.setdefault("op", np.zeros(0, np.int32))
    for c, value in _FILL.items():
        if c not in made:
            made[c] = np.full(len(made[_ROWS_OF.get(c, "op")]), value, COLUMNS[c])
    for side in ("read", "write"):
        made.setdefault(f"{side}_start", np.zeros(len(made["op"]) + 1, np.int64))
        made.setdefault(f"{side}_id", np.zeros(0, np.int64))
    if "bytes" not in made:
        made["bytes"] = _alloc_bytes(made)
    if "phase" not in made:
        made["phase"] = _phase_of_ops(made)
    for values in made.values():
        values.flags.writeable = False
    named: dict[str, Any] = {t: tuple((tables or {}).get(t, ())) for t in NAME_TABLES}
    named["categories"] = named["categories"] or ("unknown",)
    named |= {table: () for column, table in LATER_TABLES.items() if not (made[column] >= 0).any()}
    trace = Trace(name=name, **{**made, **named}, meta=dict(meta or {}))
    if check:
        check_trace(trace, where)
    return trace


def _cast(column: str, values: npt.ArrayLike, where: str) -> npt.NDArray[Any]:
    """The values as this column's type; refuses what the type cannot hold."""
    dtype = COLUMNS[column]
    try:
        given = np.asarray(values)
        if given.dtype == dtype and not given.flags.writeable and given.flags.c_contiguous:
            return given
        if given.dtype.kind not in "iufb" and given.size:
            raise ValueError
        made = given.astype(dtype)
        if dtype.kind != "f" and not np.array_equal(made, given):
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise TraceError(f"column '{column}' has values that do not fit {dtype}", where, "sizes are bytes, times ns") from None
    return made


def _alloc_bytes(made: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """An alloc repeats its tensor's size; other events carry no bytes.  Ids out of range are left for the checks."""
    kind, arg, size = made["kind"], made["arg"], made["size"]
    if len(arg) != len(kind) or not len(size):
        return np.zeros(len(kind), np.int64)
    known = (kind == ALLOC) & (arg >= 0) & (arg < len(size))
    return np.where(known, size[np.clip(arg, 0, len(size) - 1)], 0)


def _phase_of_ops(made: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The phase that the latest phase event before each operator began."""
    ops, marks = np.flatnonzero(made["kind"] == OP), np.flatnonzero(made["kind"] == PHASE)
    if not len(marks) or len(ops) != len(made["op"]):  # a mismatch is for the checks to report
        return np.full(len(made["op"]), -1, np.int32)
    latest = np.searchsorted(marks, ops) - 1
    return np.where(latest >= 0, made["arg"][marks[np.maximum(latest, 0)]], -1).astype(np.int32)


class Names:
    """Strings numbered in the order of first use."""

    def __init__(self, *first: str) -> None:
        self.ids = {name: i for i, name in enumerate(first)}

    def __call__(self, name: str) -> int:
        return self.ids.setdefault(name, len(self.ids))

    def __iter__(self) -> Any:
        return iter(self.ids)


class TraceBuilder:
    """Appends events in the order of issue; ids are handed out by `alloc` and never reused.

    `line` is the line (or record) being read: messages about an event name it.  Byte sizes, ns times, as in `Trace`.
    """

    def __init__(self, name: str, path: str = "") -> None:
        self.name, self.path, self.line = name, path, 0
        self.meta: dict[str, Any] = {}
        self.categories, self.op_names, self.modules, self.dtypes, self.phases = (Names() for _ in range(5))
        self.shapes, self.launches, self.exchanges = Names(), Names(), Names()
        self._phase = -1
        self._col: dict[str, Any] = {c: array("d" if d.kind == "f" else "q") for c, d in COLUMNS.items()}
        self._col["read_start"].append(0)
        self._col["write_start"].append(0)
        self._lines = array("q")

    @property
    def where(self) -> str:
        """ "file:line" of what is being read."""
        return f"{self.path}:{self.line}" if self.path and self.line else self.path

    @property
    def tensors(self) -> int:
        return len(self._col["size"])

    @property
    def events(self) -> int:
        return len(self._col["kind"])

    def event(self, kind: int, arg: int = -1, *, stream: int = 0, time: int = -1, addr: int = -1, nbytes: int = 0) -> None:
        c = self._col
        try:
            for column, value in (
                ("kind", kind),
                ("arg", arg),
                ("stream", stream),
                ("time", time),
                ("addr", addr),
                ("bytes", nbytes),
            ):
                c[column].append(value)
        except (OverflowError, TypeError):
            raise TraceError("a number does not fit 64 bits", self.where, _BYTES_AND_NS) from None
        self._lines.append(self.line)

    def alloc(self, size: int, category: str = "unknown", *, stream: int = 0, time: int = -1, addr: int = -1) -> int:
        """A new tensor of `size` bytes; returns its id."""
        if not 0 <= size < 2**63:
            fault = "is negative" if size < 0 else "overflows 64 bits"
            raise TraceError(f"event {len(self._col['kind'])}: the size {size} {fault}", self.where, "sizes are bytes")
        tensor = self.tensors
        self._col["size"].append(size)
        self._col["category"].append(self.categories(category))
        self.event(ALLOC, tensor, stream=stream, time=time, addr=addr, nbytes=size)
        return tensor

    def free(self, tensor: int, *, stream: int = 0, time: int = -1, addr: int = -1) -> None:
        self.event(FREE, tensor, stream=stream, time=time, addr=addr)

    def alloc_many(self, count: int, size: int, category: str = "unknown") -> range:
        """The ids of `count` new tensors of `size` bytes each."""
        made = range(self.tensors, self.tensors + count)
        for column, value in (("size", size), ("category", self.categories(category))):
            self._col[column].extend(array("q", [value]) * count)
        self._events(ALLOC, made, size)
        return made

    def free_many(self, tensors: Sequence[int]) -> None:
        self._events(FREE, tensors, 0)

    def _events(self, kind: int, args: Sequence[int], nbytes: int) -> None:
        """Events alike, on the default stream, without times and addresses."""
        self._col["arg"].extend(args)
        self._lines.extend(array("q", [self.line]) * len(args))
        for column, value in (("kind", kind), ("stream", 0), ("time", -1), ("addr", -1), ("bytes", nbytes)):
            self._col[column].extend(array("q", [value]) * len(args))

    def begin_phase(self, name: str, *, time: int = -1) -> None:
        self._phase = self.phases(name)
        self.event(PHASE, self._phase, time=time)

    def op(
        self,
        name: str,
        reads: Iterable[int],
        writes: Iterable[int],
        *,
        read_bytes: int = 0,
        written_bytes: int = 0,
        flops: float = 0.0,
        dtype: str | None = None,
        module: str | None = None,
        duration: int = -1,
        stream: int = 0,
        time: int = -1,
        activity: int = KERNEL,
        shape: str | None = None,
        launch: str | None = None,
        exchange: str | None = None,
        device_time: int = -1,
    ) -> None:
        """One operator: the tensors it reads and writes, the bytes it moves for them, its shape as in gpusim.trace.shapes, its
        launch configuration as in gpusim.trace.launches, what it exchanges with other GPUs as in gpusim.trace.exchanges, and
        when it was issued and began on the device."""
        c = self._col
        self.event(OP, len(c["op"]), stream=stream, time=time)
        c["op"].append(self.op_names(name))
        c["module"].append(-1 if module is None else self.modules(module))
        c["dtype"].append(-1 if dtype is None else self.dtypes(dtype))
        c["phase"].append(self._phase)
        c["activity"].append(activity)
        c["shape"].append(-1 if shape is None else self.shapes(shape))
        c["launch"].append(-1 if launch is None else self.launches(launch))
        c["exchange"].append(-1 if exchange is None else self.exchanges(exchange))
        try:
            c["flops"].append(flops)
            c["read_bytes"].append(read_bytes)
            c["written_bytes"].append(written_bytes)
            c["duration"].append(duration)
            c["device_time"].append(device_time)
        except (OverflowError, TypeError):
            raise TraceError(f"a number of operator '{name[:40]}' does not fit 64 bits", self.where, _BYTES_AND_NS) from None
        c["read_id"].extend(reads)
        c["write_id"].extend(writes)
        c["read_start"].append(len(c["read_id"]))
        c["write_start"].append(len(c["write_id"]))

    def finish(self) -> Trace:
        """The checked trace."""
        lines, path = self._lines, self.path
        where: Callable[[int], str] = lambda event: f"{path}:{lines[event]}" if event >= 0 and lines[event] else path  # noqa: E731
        tables = {t: tuple(getattr(self, t)) for t in NAME_TABLES}
        arrays = {c: np.frombuffer(a, a.typecode) if len(a) else np.zeros(0) for c, a in self._col.items()}
        return make_trace(self.name, arrays, tables, self.meta, where=where)
