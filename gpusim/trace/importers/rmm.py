"""Logs of RMM's logging adaptor: `Thread,Time,Action,Pointer,Size,Stream`, columns in any order.

Lines stand in the order of events, of all threads.  Pointers are recycled: a free belongs to the most recent live
allocate of its pointer, one of the same size where several are live.  A free of a pointer never seen before belongs to
an allocation older than the log.  Zero-size allocations have the pointer `(nil)`; several may be live at once.
"""

from __future__ import annotations

import re

from gpusim.base.errors import suggest
from gpusim.trace.build import Names, TraceBuilder
from gpusim.trace.importers.csv_table import CsvTable
from gpusim.trace.trace import OOM, Trace

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d):([0-5]\d)[.:](\d{6})")
_HALF_DAY, _DAY = 43_200_000_000, 86_400_000_000  # us
_ACTIONS = ("allocate", "free", "allocate failure")
_PER_THREAD = 2  # the handle of each thread's own default stream


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of one log (one device).  Raises TraceError with file:line."""
    build = TraceBuilder(name or "rmm", path)
    older = _older(data, path)
    live: dict[int, list[tuple[int, int]]] = {}  # pointer -> (tensor, size), the latest last
    for pointer, size in older:
        live.setdefault(pointer, []).append((build.alloc(size, addr=pointer or -1), size))
    table = _table(data, path)
    streams, threads, clock, resized = Names("0"), Names(), _Clock(), 0
    for row in table:
        build.line = table.line
        action, size = row["action"], table.whole(row, "size")
        thread = row.get("thread", "0")
        threads(thread)
        stream = streams(_stream_name(row.get("stream", "0"), thread, table))
        time = clock.ns(row["time"], table) if "time" in row else -1
        if action == "allocate failure":
            build.event(OOM, stream=stream, time=time, nbytes=size)
            continue
        pointer = _handle(row["pointer"], table)
        held = live.setdefault(pointer, [])
        if action == "allocate":
            held.append((build.alloc(size, stream=stream, time=time, addr=pointer or -1), size))
        elif action == "free":
            if not held:
                raise table.error(f"pointer {row['pointer']} was already freed", "is a line missing from the log?")
            match = next((i for i in range(len(held) - 1, -1, -1) if held[i][1] == size), len(held) - 1)
            tensor, allocated = held.pop(match)
            resized += size != allocated
            build.free(tensor, stream=stream, time=time, addr=pointer or -1)
        else:
            raise table.error(f"unknown action '{action[:40]}'", suggest(action, _ACTIONS))
    build.meta = {
        "format": "rmm",
        "lacks": ["accesses", "operators", "kernel times"] + ([] if "time" in table.columns else ["times"]),
        "filled": {"start": f"{len(older)} tensors that are freed without having been allocated in the log"},
        "start": {"tensors": len(older), "bytes": sum(size for _, size in older)},
        "streams": list(streams),
        "threads": len(list(threads)),
        "times_out_of_order": clock.late,
        "warnings": [
            *([f"{len(older)} frees are of allocations older than the log"] if older else []),
            *([f"{resized} frees name another size than their allocation"] if resized else []),
        ],
    }
    return build.finish()


def _table(data: bytes, path: str) -> CsvTable:
    return CsvTable(data, path, required=("action", "pointer", "size"), optional=("thread", "time", "stream"))


def _older(data: bytes, path: str) -> list[tuple[int, int]]:
    """(pointer, size) of each allocation made before the log: freed at a pointer not seen before."""
    table, found, seen = _table(data, path), list[tuple[int, int]](), set[int]()
    for row in table:
        if row["action"] == "allocate failure":
            continue
        pointer = _handle(row["pointer"], table)
        if row["action"] == "free" and pointer not in seen:
            found.append((pointer, table.whole(row, "size")))
        seen.add(pointer)
    return found


def _handle(text: str, table: CsvTable, what: str = "pointer") -> int:
    """A pointer or stream handle: hex with or without 0x, or (nil).

    Old logs have streams in decimal, which read as hex are other numbers, but as many different ones.
    """
    try:
        value = 0 if text == "(nil)" else int(text, 16)
    except ValueError:
        raise table.error(f"'{text[:40]}' is not a {what}", "expected 0x... or (nil)") from None
    if not 0 <= value < 2**63:
        raise table.error(f"the {what} {text[:40]} overflows 63 bits")
    return value


def _stream_name(text: str, thread: str, table: CsvTable) -> str:
    handle = _handle(text, table, "stream")
    return f"{handle:#x}@{thread}" if handle == _PER_THREAD else f"{handle:#x}" if handle else "0"


class _Clock:
    """Wall-clock times without date as ns since the first line: wraps at midnight, small steps back are held."""

    def __init__(self) -> None:
        self.first = self.last = -1
        self.days = self.late = 0

    def ns(self, text: str, table: CsvTable) -> int:
        match = _CLOCK.fullmatch(text)
        if match is None:
            raise table.error(f"'{text[:40]}' is not a time", "expected HH:MM:SS.ffffff")
        hours, minutes, seconds, micros = map(int, match.groups())
        us = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros + self.days * _DAY
        if self.first < 0:
            self.first = self.last = us
        if us < self.last - _HALF_DAY:
            self.days += 1
            us += _DAY
        if us < self.last:
            self.late += 1
        self.last = max(self.last, us)
        return (self.last - self.first) * 1000
