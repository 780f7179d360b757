"""Exports of Nsight Systems as NVIDIA documents them: no real one is at hand, so tests build the tables of two versions.

`OLD` has the columns of 2021.5 (docs.nvidia.com/nsight-systems/2021.5, "SQLite Export Schema Reference"): no ENUM tables, no
streams of allocations.  `NEW` has those of 2024.6 (Nsight Systems User Guide, "SQLite Schema Reference"), in its order, with
columns that the importer does not know.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

_WORK = "start, end, deviceId, contextId, {green}streamId, correlationId, globalPid"
_LAUNCH = "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory, dynamicSharedMemory"
_MEMORY = "start, globalPid, deviceId, contextId, address, pc, bytes, memKind, memoryOperationType, name, correlationId"
_RUNTIME = "start, end, eventClass, globalTid, correlationId, nameId, returnValue"


def _schema(green: str, memory: str, copy: str) -> dict[str, str]:
    work = _WORK.format(green=green)
    return {
        "StringIds": "id, value",
        "CUPTI_ACTIVITY_KIND_KERNEL": f"{work}, demangledName, shortName, {_LAUNCH}",
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{work}, bytes, copyKind, srcKind, dstKind{copy}",
        "CUPTI_ACTIVITY_KIND_MEMSET": f"{work}, value, bytes",
        "CUPTI_ACTIVITY_KIND_RUNTIME": _RUNTIME,
        "CUDA_GPU_MEMORY_USAGE_EVENTS": f"{_MEMORY}{memory}",
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "start, globalPid, address, CpuInstruction, module",
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start, end, globalPid, deviceId, address, numberOfPageFaults, faultAccessType",
    }


OLD = _schema("", "", "")
NEW = _schema("greenContextId, ", ", streamId, localMemoryPoolAddress", ", migrationCause, virtualAddress") | {
    "META_DATA_EXPORT": "name, value",
    "ENUM_CUDA_MEM_KIND": "id, name, label",
    "ENUM_CUDA_DEV_MEM_EVENT_OPER": "id, name, label",
    "ENUM_CUDA_MEMCPY_OPER": "id, name, label",
}
_KINDS = ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN")
_COPIES = {0: "UNKNOWN", 1: "HTOD", 2: "DTOH", 8: "DTOD", 10: "PTOP", 11: "UVM_HTOD", 12: "UVM_DTOH"}
_ENUMS = {
    "ENUM_CUDA_MEM_KIND": {i: f"CUDA_MEMOPR_MEMORY_KIND_{kind}" for i, kind in enumerate(_KINDS)},
    "ENUM_CUDA_DEV_MEM_EVENT_OPER": {0: "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION", 1: "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION"},
    "ENUM_CUDA_MEMCPY_OPER": {i: f"CUDA_MEMCPY_KIND_{kind}" for i, kind in _COPIES.items()},
}
PID = 7 << 24  # a process's global id; its threads' add their own


class Export:
    """A database being written; a value that a version has no column for is left out, what is not given is 0 or NULL."""

    def __init__(self, path: Path, schema: dict[str, str]) -> None:
        self.path, self.database = path, sqlite3.connect(path)
        self.columns = {table: columns.split(", ") for table, columns in schema.items()}
        for table, columns in schema.items():
            self.database.execute(f"CREATE TABLE {table} ({columns})")
        for table, names in _ENUMS.items():
            for i, name in names.items() if table in schema else ():
                self.add(table, id=i, name=name)
        if "META_DATA_EXPORT" in schema:
            self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2024.6.2.225")

    def add(self, table: str, **values: Any) -> None:
        kept = {column: value for column, value in values.items() if column in self.columns[table]}
        marks = ", ".join("?" * len(kept))
        self.database.execute(f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({marks})", list(kept.values()))

    def alloc(self, at: int, address: int, size: int, kind: int = 2, **more: Any) -> None:
        self._memory(at, address, size, kind, 0, more)

    def free(self, at: int, address: int, size: int, kind: int = 2, **more: Any) -> None:
        self._memory(at, address, size, kind, 1, more)

    def _memory(self, at: int, address: int, size: int, kind: int, operation: int, more: dict[str, Any]) -> None:
        values = {"deviceId": 0, "contextId": 1, "globalPid": PID, **more}
        self.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=at, address=address, bytes=size, memKind=kind,
                 memoryOperationType=operation, **values)  # fmt: skip

    def work(self, table: str, issued: int, start: int, end: int, stream: int = 7, **more: Any) -> None:
        """Work of the GPU with the call that issued it."""
        number = self.database.execute("SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0] + 1
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=issued, end=issued + 1, globalTid=PID + 99, correlationId=number)
        values = {"deviceId": 0, "contextId": 1, "globalPid": PID, **more}
        self.add(f"CUPTI_ACTIVITY_KIND_{table}", start=start, end=end, streamId=stream, correlationId=number, **values)

    def done(self) -> Path:
        self.database.commit()
        self.database.close()
        return self.path
