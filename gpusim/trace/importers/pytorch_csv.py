"""PyTorch memory snapshots turned into CSV: `kind,addr,size,stream,extra`, final segments first, then the events.

seg: a final segment; blk: a block of it (extra = state:requested bytes); A alloc, R free_requested, F free_completed,
S segment_alloc, T segment_free, N snapshot, O oom, whose addr is what the device had left, 0 where unknown
(extra = microseconds since the first event, or empty).
"""

from __future__ import annotations

from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.csv_table import CsvTable
from gpusim.trace.importers.pytorch_parts import IN_USE, LIVE_STATES, Event, RecordedBlock, Snapshot
from gpusim.trace.importers.pytorch_ranges import RecordedSegment
from gpusim.trace.importers.pytorch_state import to_trace
from gpusim.trace.trace import Trace

_ACTION = {
    "A": "alloc", "R": "free_requested", "F": "free_completed", "S": "segment_alloc", "T": "segment_free",
    "N": "snapshot", "O": "oom",
}  # fmt: skip


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of the one device that such a file holds.  Raises TraceError with file:line."""
    table = CsvTable(data, path, required=("kind", "addr", "size", "stream", "extra"))
    snapshot = Snapshot()
    for row in table:
        kind, addr, size, stream = (
            row["kind"],
            table.whole(row, "addr"),
            table.whole(row, "size"),
            table.whole(row, "stream"),
        )
        if kind == "seg":
            snapshot.segments[addr] = RecordedSegment(size, stream)
        elif kind == "blk":
            state, _, requested = row["extra"].partition(":")
            if state in LIVE_STATES:
                snapshot.blocks[addr] = RecordedBlock(table.number(requested, "extra"), stream)
                if state != IN_USE:
                    snapshot.waiting.add(addr)
        else:
            if kind == "O":
                addr = addr or -1
            time_us = table.number(row["extra"], "extra") if row["extra"] else -1
            snapshot.events.append(Event(table.known(kind, _ACTION), addr, size, stream, time_us, line=table.line))
    return to_trace(snapshot, TraceBuilder(name or "snapshot", path), {"format": "pytorch-csv"})
