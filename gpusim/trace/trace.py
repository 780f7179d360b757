"""The trace: an immutable columnar record of what a program did to memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
_T = TypeVar("_T")

# Event kinds.  `arg` of an event is a tensor id, an operator index, a phase index or a stream event, by kind, else -1; of a
# sync the line that waits, where the trace knows it (gpusim.trace.waits).
ALLOC, FREE, OP, PHASE, SYNC, RECORD, WAIT, SEGMENT_ALLOC, SEGMENT_FREE, OOM, SNAPSHOT = range(11)
EVENT_KINDS = (
    "alloc", "free", "op", "phase", "sync", "record", "wait", "segment_alloc", "segment_free", "oom", "snapshot",
)  # fmt: skip

# What carries an operator out.  A link moves its `read_bytes`, between host and device, between GPUs, or between host and disk;
# of a collective those that this GPU sends, so that a ring's all-reduce of S bytes over N ranks has 2 (N - 1) / N S.  The host
# works on both byte counts.
KERNEL, COPY_IN, COPY_OUT, COLLECTIVE, NVME_READ, NVME_WRITE, HOST_WORK, COPY_PEER = range(8)
MOVES = (COPY_IN, COPY_OUT, COLLECTIVE, NVME_READ, NVME_WRITE, COPY_PEER)
ACTIVITIES = ("kernel", "copy_in", "copy_out", "collective", "nvme_read", "nvme_write", "host", "copy_peer")


@dataclass(frozen=True, eq=False)
class Trace:
    """One recorded program.  All arrays are read-only; T tensors, E events, O operators; ids are dense, never reused.

    Events are in the order in which the host issued them.  A tensor lives from its ALLOC to its FREE (or to the end);
    one that existed before the recording is allocated before the first operator.  Operators are numbered in the order
    of their OP events.  Two traces are equal when their content hashes are.  Make one with
    `gpusim.trace.build.make_trace`, which checks all of this.
    """

    name: str
    # tensors, shape (T,)
    size: I64                    # bytes as requested by the program; 0 is allowed
    category: npt.NDArray[np.int16]   # index into categories: "param", "buffer", "input", "opt", "fwd", ..., "unknown"
    # events, shape (E,)
    kind: npt.NDArray[np.uint8]
    arg: I64
    stream: npt.NDArray[np.int16]     # 0 is the default stream
    time: I64                    # host time in ns since the first event, -1 where the recording has none
    addr: I64                    # recorded address of an alloc/free/segment event, -1 where unknown
    bytes: I64                   # bytes of a segment or oom event; of an alloc the size again; else 0
    # operators, shape (O,); accesses in CSR form
    op: npt.NDArray[np.int32]         # index into op_names
    module: npt.NDArray[np.int32]     # index into modules, -1 unknown
    dtype: npt.NDArray[np.int16]      # index into dtypes, -1 unknown
    flops: npt.NDArray[np.float64]
    read_bytes: I64
    written_bytes: I64
    duration: I64                # recorded kernel time in ns, -1 unknown
    phase: npt.NDArray[np.int32]      # index into phases, -1 before the first
    activity: npt.NDArray[np.uint8]   # index into ACTIVITIES
    shape: npt.NDArray[np.int32]      # index into shapes, -1 unknown
    launch: npt.NDArray[np.int32]     # index into launches, -1 unknown
    exchange: npt.NDArray[np.int32]   # index into exchanges, -1: no other GPU, or unknown which
    device_time: I64             # when it began on the device, ns on the clock of `time`, -1 where the recording does not tell
    read_start: I64              # shape (O+1,)
    read_id: I64                 # tensor ids
    write_start: I64             # shape (O+1,)
    write_id: I64
    # names
    categories: tuple[str, ...] = ()
    op_names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()  # texts of gpusim.trace.shapes
    launches: tuple[str, ...] = ()  # texts of gpusim.trace.launches
    exchanges: tuple[str, ...] = ()  # texts of gpusim.trace.exchanges
    meta: dict[str, Any] = field(default_factory=dict)  # JSON: source, licence, what is missing and how it was filled

    @property
    def tensors(self) -> int:
        """Number of tensors, T."""
        return len(self.size)

    @property
    def events(self) -> int:
        """Number of events, E."""
        return len(self.kind)

    @property
    def ops(self) -> int:
        """Number of operators, O."""
        return len(self.op)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over every column, name table, meta and the name, in hex: the identity of this trace as an input."""
        digest = hashlib.sha256()
        for name, array in recorded_columns(self):
            digest.update(f"{name}:{array.dtype.str}:{len(array)};".encode())
            digest.update(np.ascontiguousarray(array).data)
        tables = {name: list(table) for name, table in recorded_tables(self)}
        digest.update(json.dumps([self.name, tables, self.meta], sort_keys=True).encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __repr__(self) -> str:
        return f"Trace({self.name!r}: {self.tensors} tensors, {self.events} events, {self.ops} operators)"


# Column name -> dtype in memory, in the order of the class; everything that is an array.
COLUMNS: dict[str, np.dtype[Any]] = {
    "size": np.dtype(np.int64),
    "category": np.dtype(np.int16),
    "kind": np.dtype(np.uint8),
    "arg": np.dtype(np.int64),
    "stream": np.dtype(np.int16),
    "time": np.dtype(np.int64),
    "addr": np.dtype(np.int64),
    "bytes": np.dtype(np.int64),
    "op": np.dtype(np.int32),
    "module": np.dtype(np.int32),
    "dtype": np.dtype(np.int16),
    "flops": np.dtype(np.float64),
    "read_bytes": np.dtype(np.int64),
    "written_bytes": np.dtype(np.int64),
    "duration": np.dtype(np.int64),
    "phase": np.dtype(np.int32),
    "activity": np.dtype(np.uint8),
    "shape": np.dtype(np.int32),
    "launch": np.dtype(np.int32),
    "exchange": np.dtype(np.int32),
    "device_time": np.dtype(np.int64),
    "read_start": np.dtype(np.int64),
    "read_id": np.dtype(np.int64),
    "write_start": np.dtype(np.int64),
    "write_id": np.dtype(np.int64),
}
NAME_TABLES = ("categories", "op_names", "modules", "dtypes", "phases", "shapes", "launches", "exchanges")
# Column -> names of what a trace may do without.
LATER_TABLES = {"shape": "shapes", "launch": "launches", "exchange": "exchanges"}
LATER = {"activity": KERNEL, **dict.fromkeys(LATER_TABLES, -1), "device_time": -1}  # column -> what it holds when it is silent
assert [f.name for f in fields(Trace)] == ["name", *COLUMNS, *NAME_TABLES, "meta"]


def columns(trace: Trace) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Every array of the trace with its name, in the order of the class."""
    for name in COLUMNS:
        yield name, getattr(trace, name)


def recorded_columns(trace: Trace) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The columns that say something.  Some came later than the others: a trace that does without them is as it was before."""
    silent = {name: bool((getattr(trace, name) == nothing).all()) for name, nothing in LATER.items()}
    return ((name, array) for name, array in columns(trace) if not silent.get(name))


def recorded_tables(trace: Trace) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The name tables, without those that came later where no operator has such a name."""
    silent = {LATER_TABLES[name] for name in LATER_TABLES if not getattr(trace, LATER_TABLES[name])}
    return ((name, getattr(trace, name)) for name in NAME_TABLES if name not in silent)


def derived(find: Callable[[Trace], _T]) -> Callable[[Trace], _T]:
    """Decorator: what follows from a trace, an array or several, is found once and kept with it, read-only as it is."""
    name = f"_{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def kept(trace: Trace) -> _T:
        known: dict[str, Any] = trace.__dict__
        if name not in known:
            found: Any = find(trace)
            for array in found if isinstance(found, tuple) else (found,):
                array.flags.writeable = False
            known[name] = found
        made: _T = known[name]
        return made

    return kept
