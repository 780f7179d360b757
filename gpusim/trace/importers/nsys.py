"""SQLite exports of Nsight Systems (`nsys export --type sqlite`), read row by row; tables and columns are found by name.

The schema is the one that NVIDIA documents (Nsight Systems User Guide, "SQLite Schema Reference", 2021.5 to 2025); old
versions lack the ENUM tables, whose documented numbers are used then, and some columns.  What becomes what:

    CUDA_GPU_MEMORY_USAGE_EVENTS     tensors: what was asked of CUDA.  Device memory (`device`) and unified memory
                                     (`managed`); pinned memory of the host is only counted
    CUPTI_ACTIVITY_KIND_KERNEL       operators with their duration
    ..._MEMCPY, ..._MEMSET           operators too: copies over the link, or within memory
    ..._RUNTIME                      when the host issued them: events stand in this order, else in that of the GPU
    ..._MEMCPY of unified memory     migrations, counted in the meta: they are the driver's, not the program's
    CUDA_UM_GPU_PAGE_FAULT_EVENTS    which kernel touched which managed tensor, as far as it faulted: the kernel that
                                     began last and still ran
    CUDA_UM_CPU_PAGE_FAULT_EVENTS    counted
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from bisect import bisect_right, insort
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.trace.build import Names, TraceBuilder
from gpusim.trace.importers.nsys_tables import COPY, KIND, LAUNCH, OPERATION, Database, faulting_kernels, migrations
from gpusim.trace.launches import launch_text
from gpusim.trace.trace import COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, KERNEL, Trace

MAGIC = b"SQLite format 3\0"
_ACTIVITY = {"HTOD": COPY_IN, "HTOA": COPY_IN, "DTOH": COPY_OUT, "ATOH": COPY_OUT, "HTOH": HOST_WORK, "PTOP": COPY_PEER}
_HOST = ("PAGEABLE", "PINNED")
_MANAGED = ("MANAGED", "MANAGED_STATIC")
_ALLOC, _WORK, _FREE = range(3)  # what a row is; in this order at equal times
_NO_STREAM = 2**32 - 1  # CUPTI_INVALID_STREAM_ID


def read(file: BinaryIO, path: str, *, name: str | None = None, device: int | None = None) -> Trace:
    """The trace of one device.  Raises TraceError."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as unpacked:
        with Path(path).open("rb") as raw:
            packed = raw.read(len(MAGIC)) != MAGIC
        if packed:
            shutil.copyfileobj(file, unpacked, 1 << 20)
            unpacked.flush()
        where = Path(unpacked.name if packed else path).absolute().as_uri()
        try:
            database = sqlite3.connect(f"{where}?mode=ro&immutable=1", uri=True)
            try:
                return _Import(Database(database, path), name or "nsys", path, device).trace()
            finally:
                database.close()
        except sqlite3.DatabaseError as error:
            raise TraceError(f"the database cannot be read: {error}", path, "was the export cut short?") from None
        except (TypeError, ValueError, OverflowError):
            raise TraceError("a value in the database is not a number where one belongs", path, "export it again") from None


class _Import:
    def __init__(self, tables: Database, name: str, path: str, device: int | None) -> None:
        self.tables, self.path = tables, path
        self.device = _device(tables, path, device)
        self.build = TraceBuilder(name, path)
        self.kinds, self.copies = tables.names(KIND), tables.names(COPY)
        self.streams = Names()
        self.live: dict[tuple[int, int], int] = {}  # (process, address) -> tensor
        self.managed: dict[int, list[tuple[int, int, int]]] = {}  # process -> (address, end, tensor) in order
        self.sizes: list[int] = []
        self.unmatched = self.doubled = self.faulted = 0

    def trace(self) -> Trace:
        older = self._older()
        for pid, address, size, kind in older:
            self._alloc(pid, address, size, kind, 0, -1)
        faults, fault_tables = faulting_kernels(self.tables, self.device)
        first: int | None = None
        for t, what, row, pid, context, stream, *rest in self._rows():
            first = t if first is None else first
            queue = 0 if stream is None or stream == _NO_STREAM else self.streams(f"{pid or 0}.{context or 0}.{stream}")
            if what == _WORK:
                self._operator(row, pid or 0, queue, first, t - first, rest, faults)
            elif what == _ALLOC:
                self._alloc(pid or 0, rest[0], rest[1], self.kinds.get(rest[2], "UNKNOWN"), queue, t - first)
            else:
                self._free(pid or 0, rest[0], queue, t - first)
        self._finish(older, fault_tables)
        return self.build.finish()

    def _rows(self) -> Iterator[Any]:
        """(time, what, row, process, context, stream, ...) of all events of the device, in order."""
        tables, of = self.tables, f"deviceId = {self.device}"
        free = tables.number(OPERATION, "DEALLOCATION")
        launch, unknown = ", ".join(LAUNCH), ", ".join("NULL" for _ in LAUNCH)
        device_kinds = ", ".join(str(i) for i, kind in self.kinds.items() if kind not in _HOST) or "-1"
        selected = [
            tables.select(
                "CUDA_GPU_MEMORY_USAGE_EVENTS", f"start, CASE memoryOperationType WHEN {free} THEN {_FREE} ELSE {_ALLOC} END",
                f"rowid, globalPid, contextId, streamId, address, bytes, memKind, 0, 0, {unknown}",
                f"{of} AND memKind IN ({device_kinds})",
            )
        ]  # fmt: skip
        for table, name, copied, copy, launched in (
            ("KERNEL", "shortName", "0", "-1", launch), ("MEMCPY", "NULL", "bytes", "copyKind", unknown),
            ("MEMSET", "NULL", "bytes", "-2", unknown),
        ):  # fmt: skip
            table = f"CUPTI_ACTIVITY_KIND_{table}"
            if table in tables.columns:
                migrations = [str(i) for i, kind in self.copies.items() if kind.startswith("UVM")]
                wanted = f"{of} AND copyKind NOT IN ({', '.join(migrations)})" if copy == "copyKind" else of
                values = f"{name}, x.end - x.start, {copied}, {copy}, x.start, {launched}"
                selected.append(tables.issued(table, _WORK, values, wanted))
        return tables.run(" UNION ALL ".join(selected) + " ORDER BY 1, 2, 3")

    def _alloc(self, pid: int, address: int, size: int, kind: str, queue: int, time: int) -> None:
        if (pid, address) in self.live:  # its free was not recorded
            self.doubled += 1
            self._end(pid, address, queue, time)
        managed = kind in _MANAGED
        tensor = self.build.alloc(size, "managed" if managed else "device", stream=queue, time=time, addr=address or -1)
        self.live[pid, address] = tensor
        self.sizes.append(size)
        if managed:
            insort(self.managed.setdefault(pid, []), (address, address + size, tensor))

    def _free(self, pid: int, address: int, queue: int, time: int) -> None:
        if (pid, address) in self.live:
            self._end(pid, address, queue, time)
        else:
            self.unmatched += 1

    def _end(self, pid: int, address: int, queue: int, time: int) -> None:
        tensor = self.live.pop((pid, address))
        self.build.free(tensor, stream=queue, time=time, addr=address or -1)
        entry = (address, address + self.sizes[tensor], tensor)
        if entry in (ranges := self.managed.get(pid, [])):
            ranges.remove(entry)

    def _operator(self, row: int, pid: int, queue: int, first: int, time: int, rest: list[Any], faults: Any) -> None:
        name, duration, moved, copy, began, *launched = rest
        read = written = moved
        activity, reads, writes, launch = KERNEL, set[int](), set[int](), None
        if copy == -1:
            launch = self._launch(launched)
            name = self.tables.string(name)
            for address, stores in faults(row):
                tensor = self._managed_at(pid, address)
                if tensor >= 0:
                    (writes if stores else reads).add(tensor)
            self.faulted += len(reads | writes)
        elif copy == -2:
            name, read = "memset", 0
        else:
            kind = self.copies.get(copy, "UNKNOWN")
            name, activity = f"memcpy {kind}", _ACTIVITY.get(kind, KERNEL)
            if activity in (COPY_IN, COPY_OUT, COPY_PEER):
                written = 0
        self.build.op(
            name, sorted(reads), sorted(writes), read_bytes=read, written_bytes=written, duration=max(0, duration),
            stream=queue, time=time, device_time=max(time, began - first), activity=activity, launch=launch,
        )  # fmt: skip

    def _launch(self, numbers: list[int | None]) -> str | None:
        """The launch configuration of a kernel from the numbers of LAUNCH; None where it was not recorded."""
        known = [number or 0 for number in numbers]
        grid, block, (registers, static, dynamic) = known[:3], known[3:6], known[6:]
        try:
            return launch_text(grid, block, registers, static + dynamic) if all([*grid, *block]) else None
        except TraceError as error:
            raise TraceError(error.message, self.path, error.hint) from None

    def _managed_at(self, pid: int, address: int) -> int:
        """The managed tensor that the address lies in, or -1."""
        ranges = self.managed.get(pid, [])
        i = bisect_right(ranges, (address, np.inf)) - 1
        return ranges[i][2] if i >= 0 and address < ranges[i][1] else -1

    def _older(self) -> list[tuple[int, int, int, str]]:
        """(process, address, bytes, kind) of what is freed without an allocation before it."""
        seen, found = set[tuple[int, int]](), list[tuple[int, int, int, str]]()
        free = self.tables.number(OPERATION, "DEALLOCATION")
        rows = self.tables.select(
            "CUDA_GPU_MEMORY_USAGE_EVENTS", "start", "memoryOperationType, globalPid, address, bytes, memKind",
            f"deviceId = {self.device}",
        )  # fmt: skip
        for _, operation, pid, address, size, kind in self.tables.run(rows + " ORDER BY 1, 2"):
            kind = self.kinds.get(kind, "UNKNOWN")
            if kind in _HOST:
                continue
            if operation == free and (pid or 0, address) not in seen:
                found.append((pid or 0, address, size, kind))
            seen.add((pid or 0, address))
        return found

    def _finish(self, older: list[Any], fault_tables: dict[str, int]) -> None:
        tables, host = self.tables, [str(i) for i, kind in self.kinds.items() if kind in _HOST]
        pinned = tables.totals("CUDA_GPU_MEMORY_USAGE_EVENTS", "bytes", f"memKind IN ({', '.join(host)}) AND "
                               f"memoryOperationType <> {tables.number(OPERATION, 'DEALLOCATION')}")  # fmt: skip
        work = "CUPTI_ACTIVITY_KIND_KERNEL" in tables.columns
        self.build.meta = {
            "format": "nsys",
            "version": tables.version(),
            "device": self.device,
            "lacks": ["accesses", "flops", "order between streams"] + ([] if work else ["kernels"]),
            "filled": {
                "start": f"{len(older)} allocations that are freed without having been made in the recording",
                "order": "when the host called CUDA, else when the GPU began",
                **({"some accesses": f"{self.faulted} of unified memory, where a kernel faulted"} if self.faulted else {}),
            },
            "streams": list(self.streams),
            "pinned_host_memory": {"allocations": pinned[0], "bytes": pinned[1]},
            "unified_memory": {**fault_tables, **migrations(tables)},
            "warnings": [
                *([f"{self.unmatched} frees of addresses that are not allocated were left out"] if self.unmatched else []),
                *([f"{self.doubled} allocations at addresses still in use: what was there is freed"] if self.doubled else []),
                *([] if work else ["no kernels were recorded: nsys profile --trace=cuda records them"]),
            ],
        }  # fmt: skip


def _device(tables: Database, path: str, wanted: int | None) -> int:
    tables.require("CUDA_GPU_MEMORY_USAGE_EVENTS", "memory events", "nsys profile --cuda-memory-usage=true records them; "
                   "--cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true faults of unified memory")  # fmt: skip
    host = ", ".join(str(i) for i, kind in tables.names(KIND).items() if kind in _HOST)
    found = tables.select("CUDA_GPU_MEMORY_USAGE_EVENTS", "DISTINCT x.deviceId", "deviceId", f"memKind NOT IN ({host})")
    devices = sorted({row[0] for row in tables.run(found)})
    if wanted is None and len(devices) == 1:
        return int(devices[0])
    shown = ", ".join(map(str, devices))
    if wanted is None:
        fault = f"the export holds the devices {shown}" if devices else "the export holds memory of the host alone"
        raise TraceError(fault, path, "choose one with --device" if devices else "")
    if int(wanted) not in devices:
        raise TraceError(f"the export has no memory events of device {wanted}", path, f"it has {shown}")
    return int(wanted)
