"""Plain CSV, one event per line, for recordings of one's own: the first line names the columns.

    event        alloc, free, op, phase                                                      (always needed)
    tensor       the tensor's name, of alloc and free; a name may be used again after its free  (always needed)
    size         bytes, of alloc                                                             (always needed)
    stream       whole number, 0 the default stream
    time_ns      host time in ns since any origin; may not fall
    category     of alloc: param, fwd, ...
    addr         recorded address, of alloc
    name         of op: the operator's name; of phase: the phase's
    reads        of op: names of the tensors it reads, separated by blanks
    writes       of op: names of the tensors it writes, separated by blanks
    flops        of op
    read_bytes   of op; else the sizes of the tensors read
    written_bytes  of op; else the sizes of the tensors written
    dtype        of op: float32, bfloat16, ...
    module       of op: where in the program
    duration_ns  of op: its recorded time

A field that an event does not need is left empty.
"""

from __future__ import annotations

from gpusim.errors import suggest
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.table import Table
from gpusim.trace.trace import Trace

REQUIRED = ("event", "tensor", "size")
OPTIONAL = (
    "stream", "time_ns", "category", "addr", "name", "reads", "writes", "flops", "read_bytes", "written_bytes", "dtype",
    "module", "duration_ns",
)  # fmt: skip
_EVENTS = ("alloc", "free", "op", "phase")


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one such file.  Raises TraceError with file:line."""
    table = Table(data, path, required=REQUIRED, optional=OPTIONAL, strict=True)
    build = TraceBuilder(name or "csv", path)
    rows = _Rows(table, build)
    for row in table:
        build.line = table.line
        if row["event"] not in _EVENTS:
            raise table.error(f"unknown event '{row['event'][:40]}'", suggest(row["event"], _EVENTS))
        getattr(rows, row["event"])(row)
    columns = table.columns
    given = {
        "accesses": bool({"reads", "writes"} & set(columns)),
        "times": "time_ns" in columns,
        "streams": "stream" in columns,
        "kernel times": "duration_ns" in columns,
        "flops": "flops" in columns,
        "addresses": "addr" in columns,
    }
    build.meta = {
        "format": "csv",
        "lacks": [what for what, there in given.items() if not there],
        "filled": {"bytes": "an operator without read_bytes or written_bytes moves the whole of its tensors"},
    }
    return build.finish()


class _Rows:
    """One method per event."""

    def __init__(self, table: Table, build: TraceBuilder) -> None:
        self.table, self.build = table, build
        self.live: dict[str, int] = {}  # tensor name -> id
        self.size: list[int] = []
        self.freed: set[str] = set()
        self.origin = self.latest = -1

    def alloc(self, row: dict[str, str]) -> None:
        tensor = row["tensor"]
        if tensor in self.live:
            raise self.table.error(f"tensor '{tensor}' is allocated again before it is freed", "give it another name")
        if not tensor:
            raise self.table.error("an alloc needs a tensor")
        self.size.append(self.table.whole(row, "size"))
        self.live[tensor] = self.build.alloc(
            self.size[-1], row.get("category") or "unknown",
            stream=self._number(row, "stream", 0), time=self._time(row), addr=self._number(row, "addr", -1),
        )  # fmt: skip

    def free(self, row: dict[str, str]) -> None:
        tensor = self._tensor(row["tensor"], "frees")
        self.build.free(tensor, stream=self._number(row, "stream", 0), time=self._time(row))
        del self.live[row["tensor"]]
        self.freed.add(row["tensor"])

    def phase(self, row: dict[str, str]) -> None:
        self.build.begin_phase(row.get("name") or "unnamed", time=self._time(row))

    def op(self, row: dict[str, str]) -> None:
        reads = [self._tensor(t, "reads") for t in row.get("reads", "").split()]
        writes = [self._tensor(t, "writes") for t in row.get("writes", "").split()]
        try:
            flops = float(row.get("flops") or 0)
        except ValueError:
            raise self.table.error(f"'{row['flops'][:40]}' in column 'flops' is not a number") from None
        self.build.op(
            row.get("name") or "op", reads, writes, flops=flops,
            read_bytes=self._number(row, "read_bytes", sum(self.size[t] for t in set(reads))),
            written_bytes=self._number(row, "written_bytes", sum(self.size[t] for t in set(writes))),
            dtype=row.get("dtype") or None, module=row.get("module") or None,
            duration=self._number(row, "duration_ns", -1), stream=self._number(row, "stream", 0), time=self._time(row),
        )  # fmt: skip

    def _tensor(self, name: str, verb: str) -> int:
        if name not in self.live:
            state = "was already freed" if name in self.freed else "was never allocated"
            raise self.table.error(f"this line {verb} tensor '{name[:40]}', which {state}", suggest(name, self.live))
        return self.live[name]

    def _number(self, row: dict[str, str], column: str, default: int) -> int:
        return self.table.number(row[column], column) if row.get(column) else default

    def _time(self, row: dict[str, str]) -> int:
        time = self._number(row, "time_ns", -1)
        if time < 0:
            return -1
        if time < self.latest:
            raise self.table.error(f"time_ns falls from {self.latest} to {time}", "events stand in the order of issue")
        self.latest = time
        self.origin = time if self.origin < 0 else self.origin
        return time - self.origin
