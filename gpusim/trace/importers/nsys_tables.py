"""The tables of an Nsight Systems export, whichever version wrote it: columns by name, numbers by their ENUM tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from gpusim.base.errors import TraceError

# ENUM table -> prefix of its names, and its documented numbers, for versions without these tables.
KIND = ("ENUM_CUDA_MEM_KIND", "CUDA_MEMOPR_MEMORY_KIND_",
        ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN"))  # fmt: skip
OPERATION = ("ENUM_CUDA_DEV_MEM_EVENT_OPER", "CUDA_DEV_MEM_EVENT_OPR_", ("ALLOCATION", "DEALLOCATION"))
COPY = ("ENUM_CUDA_MEMCPY_OPER", "CUDA_MEMCPY_KIND_", ("UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA",
        "DTOD", "HTOH", "PTOP", "UVM_HTOD", "UVM_DTOH", "UVM_DTOD"))  # fmt: skip
_STORES = (2, 3)  # of the types of access that fault: write, atomic; 1 reads
_CAUSES = ("unknown", "user", "coherence", "prefetch", "eviction", "access counters")  # of migrations
LAUNCH = (
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
)  # fmt: skip
"""Of a kernel: its launch configuration."""
_OPTIONAL = ("globalPid", "contextId", "streamId", "correlationId", *LAUNCH)
_BACK = 8  # kernels that may run at once when a fault is looked up

Enum = tuple[str, str, tuple[str, ...]]
Faults = Callable[[int], list[tuple[int, bool]]]


class Database:
    """What is in the database: table -> its columns, without the empty tables."""

    def __init__(self, database: sqlite3.Connection, path: str) -> None:
        self.database, self.path = database, path
        names = [row[0] for row in self.run("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        self.columns = {name: [row[1] for row in self.run(f'PRAGMA table_info("{name}")')] for name in names}
        if "StringIds" not in names or not any(name.startswith(("CUPTI_", "CUDA_", "TARGET_INFO_", "OSRT_")) for name in names):
            raise TraceError("this database is no export of Nsight Systems", path, "nsys export --type sqlite writes one")
        for name in names:
            if name.startswith(("CUPTI_", "CUDA_")) and next(self.run(f'SELECT 1 FROM "{name}" LIMIT 1'), None) is None:
                del self.columns[name]
        self.string = lru_cache(1 << 16)(self._string)

    def run(self, query: str) -> Iterator[Any]:
        return self.database.execute(query)

    def _string(self, number: int) -> str:
        row = next(self.run(f"SELECT value FROM StringIds WHERE id = {int(number)}"), None)
        return str(row[0]) if row else f"kernel {number}"

    def names(self, enum: Enum) -> dict[int, str]:
        """Number -> its name without the prefix."""
        table, prefix, documented = enum
        if table in self.columns:
            return {row[0]: str(row[1]).removeprefix(prefix) for row in self.run(f"SELECT id, name FROM {table}")}
        return dict(enumerate(documented))

    def number(self, enum: Enum, name: str) -> int:
        return next((i for i, known in self.names(enum).items() if known == name), enum[2].index(name))

    def require(self, table: str, what: str, hint: str) -> None:
        if table not in self.columns:
            raise TraceError(f"the export has no {what} ({table})", self.path, hint)

    def select(self, table: str, first: str, columns: str, where: str, source: str = "") -> str:
        """A query of named columns; one that this version does not have is NULL where it may be, and else refused."""
        have = self.columns[table]
        chosen = []
        for column in columns.split(", "):
            missing = column.isidentifier() and column not in ("rowid", "NULL", *have)
            if missing and column not in _OPTIONAL:
                raise TraceError(f"the table {table} has no column '{column}'", self.path, "this version's schema is not known")
            chosen.append("NULL" if missing else f"x.{column}" if column.isidentifier() and column != "NULL" else column)
        return f"SELECT {first}, {', '.join(chosen)} FROM {table} x {source} WHERE {where}"

    def issued(self, table: str, what: int, columns: str, where: str) -> str:
        """Work of the GPU with the time at which the host issued it, where that is known."""
        have, api = self.columns[table], self.columns.get("CUPTI_ACTIVITY_KIND_RUNTIME", [])
        start, source = "x.start", ""
        if "correlationId" in have and {"correlationId", "start"} <= set(api):
            # Ids of correlation are per process; a thread's global id begins with its process's.
            by_process = "globalPid" in have and "globalTid" in api
            pid, on = ("globalTid >> 24", " AND r.pid = x.globalPid >> 24") if by_process else ("0", "")
            source = (
                f"LEFT JOIN (SELECT correlationId AS id, {pid} AS pid, MIN(start) AS began FROM CUPTI_ACTIVITY_KIND_RUNTIME "
                f"GROUP BY 1, 2) r ON r.id = x.correlationId{on}"
            )
            start = "COALESCE(r.began, x.start)"
        return self.select(table, f"{start}, {what}", f"rowid, globalPid, contextId, streamId, {columns}", where, source)

    def totals(self, table: str, column: str, where: str) -> tuple[int, int]:
        """(rows, sum of the column) of the rows."""
        count, total = next(self.run(f"SELECT COUNT(*), SUM({column}) FROM {table} WHERE {where}"))
        return int(count), int(total or 0)

    def version(self) -> str:
        """Of the program that exported."""
        if "META_DATA_EXPORT" not in self.columns:
            return ""
        wanted = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'"
        return str(next(self.run(wanted), [""])[0])


def faulting_kernels(tables: Database, device: int) -> tuple[Faults, dict[str, int]]:
    """(row of a kernel -> its faults as (address, whether it wrote), how many faults of CPU and GPU were recorded)."""
    counted = {}
    if "CUDA_UM_CPU_PAGE_FAULT_EVENTS" in tables.columns:
        counted["cpu_faults"] = tables.totals("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "0", "1")[0]
    table = "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
    if table not in tables.columns:
        return lambda row: [], counted
    counted["gpu_faults"] = tables.totals(table, "numberOfPageFaults", f"deviceId = {device}")[1]
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables.columns:
        return lambda row: [], counted
    of_device = f"deviceId = {device}"
    faults = _array(tables, tables.select(table, "start", "address, faultAccessType", of_device), 3)
    began = tables.select("CUPTI_ACTIVITY_KIND_KERNEL", "start", "end, rowid", of_device)
    kernels = _array(tables, f"{began} ORDER BY 1, 3", 3)
    if not len(kernels):
        return lambda row: [], counted
    after = np.searchsorted(kernels[:, 0], faults[:, 0], "right")
    owner = np.full(len(faults), -1)
    for back in range(1, _BACK + 1):
        at = np.maximum(after - back, 0)
        runs = (after >= back) & (owner < 0) & (kernels[at, 1] >= faults[:, 0])
        owner[runs] = kernels[at[runs], 2]
    order = np.argsort(owner, kind="stable")
    owner, faults = owner[order], faults[order]

    def of(row: int) -> list[tuple[int, bool]]:
        low, high = np.searchsorted(owner, [row, row + 1])
        return [(address, access in _STORES) for _, address, access in faults[low:high].tolist()]

    return of, counted


def migrations(tables: Database) -> dict[str, Any]:
    """What the driver moved of unified memory, by direction and by cause."""
    table, found, causes = "CUPTI_ACTIVITY_KIND_MEMCPY", dict[str, Any](), dict[str, int]()
    for i, kind in tables.names(COPY).items() if table in tables.columns else ():
        count, total = tables.totals(table, "bytes", f"copyKind = {i}") if kind.startswith("UVM_") else (0, 0)
        if count:
            found[kind.removeprefix("UVM_").lower()] = {"migrations": count, "bytes": total}
            if "migrationCause" in tables.columns[table]:
                wanted = f"SELECT migrationCause, COUNT(*) FROM {table} WHERE copyKind = {i} GROUP BY 1"
                for cause, number in tables.run(wanted):
                    word = _CAUSES[cause] if cause in range(len(_CAUSES)) else "unknown"
                    causes[word] = causes.get(word, 0) + number
    return {**found, "causes": causes} if found else {}


def _array(tables: Database, query: str, columns: int) -> Any:
    """The rows of a query of whole numbers, (N, columns)."""
    flat = np.fromiter((value for row in tables.run(query) for value in row), np.int64)
    return flat.reshape(-1, columns)
