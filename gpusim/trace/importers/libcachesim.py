"""Cache requests as libCacheSim has them: oracleGeneral, 24 bytes a request, or CSV with a header.

    oracleGeneral   u32 time, u64 id, u32 size, i64 number of the object's next request, little-endian
    CSV             obj_id and obj_size, perhaps time; other columns are passed over

Each request is an operator that reads one tensor; an object becomes a tensor when it is first asked for, as large as it is ever
asked for, and is never freed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.build import make_trace
from gpusim.trace.importers.csv_table import CsvTable
from gpusim.trace.trace import ALLOC, I64, OP, Trace

RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
_NEVER = (-1, 2**63 - 1)
_MOST = 2**40  # requests of one file
_LONGEST = 2**32  # seconds
_S = 1_000_000_000  # ns: its times are seconds


def is_binary(head: bytes) -> bool:
    """Whether the bytes are oracleGeneral: the request that a record names as its object's next is of the same object.

    libCacheSim's converter counts requests from 1; others count from 0.
    """
    rows = np.frombuffer(head, RECORD, len(head) // RECORD.itemsize)
    index = np.flatnonzero(~np.isin(rows["next"], _NEVER))
    after = rows["next"][index]
    if not len(rows) or (after <= index).any() or (after > _MOST).any():
        return False
    return any(_same_object(rows["id"], index, after - first) for first in (1, 0))


def _same_object(key: npt.NDArray[Any], index: I64, after: I64) -> bool:
    seen = after < len(key)
    return bool((after > index).all() and (key[index[seen]] == key[after[seen]]).all())


def read(data: bytes, path: str, *, name: str | None = None) -> Trace:
    """The trace of the requests.  Raises TraceError with file:line, or file:request."""
    time, key, size, where = _binary(data, path) if is_binary(data[: 1 << 16]) else _text(data, path)
    wrong = np.flatnonzero((size < 0) | (np.diff(time, prepend=time[:1]) < 0))
    if len(wrong):
        at = int(wrong[0])
        fault = f"the size {size[at]} is negative" if size[at] < 0 else f"time falls from {time[at - 1]} to {time[at]}"
        raise TraceError(fault, where(at), "requests stand in the order of time")
    if int(time[-1]) - int(time[0]) > _LONGEST:
        raise TraceError(f"time goes from {time[0]} to {time[-1]}", where(len(time) - 1), "its unit is the second")
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)  # objects in the order of their first requests
    tensor = np.empty(len(order), np.int64)
    tensor[order] = np.arange(len(order))
    requested = tensor[number]
    largest = np.zeros(len(order), np.int64)
    np.maximum.at(largest, requested, size)
    new = np.zeros(len(key), bool)
    new[first] = True
    event = np.arange(len(key)) + np.cumsum(new)  # the event of each request, after the alloc of what is new
    kind, arg = np.full(len(key) + len(order), ALLOC, np.uint8), np.empty(len(key) + len(order), np.int64)
    kind[event], arg[event] = OP, np.arange(len(key))
    arg[event[new] - 1] = requested[new]
    times = np.empty(len(kind), np.int64)
    times[event] = (time - time[0]) * _S
    times[event[new] - 1] = times[event[new]]
    changed = int((size != largest[requested]).sum())
    meta = {
        "format": "libcachesim",
        "lacks": ["frees", "operators", "kernel times", "writes", "streams"],
        "filled": {
            "allocs": "an object is allocated when it is first asked for, and never freed",
            "operators": "each request is an operator that reads the object",
        },
        "warnings": [f"{changed} requests ask for less than their object's size"] if changed else [],
    }
    columns: dict[str, Any] = {
        "size": largest, "kind": kind, "arg": arg, "time": times, "op": np.zeros(len(key), np.int32),
        "read_start": np.arange(len(key) + 1), "read_id": requested, "read_bytes": size,
    }  # fmt: skip
    return make_trace(name or "libcachesim", columns, {"op_names": ("request",)}, meta, where=lambda event: path)


def _binary(data: bytes, path: str) -> tuple[I64, Any, I64, Callable[[int], str]]:
    if len(data) % RECORD.itemsize:
        raise TraceError(f"the last of {len(data) // RECORD.itemsize + 1} records is cut short", path, "copy the file again")
    rows = np.frombuffer(data, RECORD)
    return rows["time"].astype(np.int64), rows["id"], rows["size"].astype(np.int64), lambda i: f"{path}: request {i}"


def _text(data: bytes, path: str) -> tuple[I64, Any, I64, Callable[[int], str]]:
    table = CsvTable(data, path, required=("obj_id", "obj_size"), optional=("time",))
    time, key, size, lines = array("q"), list[str](), array("q"), array("q")
    for row in table:
        time.append(table.whole(row, "time") if "time" in row else 0)
        key.append(row["obj_id"])
        size.append(table.whole(row, "obj_size"))
        lines.append(table.line)
    if not lines:
        raise table.error("there are no requests")
    return np.array(time), np.array(key), np.array(size), lambda i: f"{path}:{lines[i]}"
