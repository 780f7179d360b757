"""A trace's accesses as cache requests, for libCacheSim: `time, obj_id, obj_size, next_access_vtime`.

An object is a tensor, or a page of one when `grain` is given; a tensor that an operator names twice is asked for once, and
tensors of zero bytes never.  The time is the operator's number.  `next_access_vtime` is the number of the object's next
request, counted from 1 as libCacheSim's converter does (bin/traceUtils/traceConvOracleGeneral.cpp), -1 when there is none.
There is no word for a free: what is dead stays until it is evicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.trace.answers import require
from gpusim.trace.importers.libcachesim import RECORD
from gpusim.trace.reuse import next_uses
from gpusim.trace.trace import I64, Trace
from gpusim.trace.workload import build

MOST_REQUESTS = 200_000_000
_CHUNK = 1 << 18  # rows of text at once


@dataclass(frozen=True)
class CacheRequests:
    """Requests in order; objects are numbered from 0, without gaps at page grain."""

    op: I64
    object: I64
    size: I64  # (objects,) bytes
    next: I64  # number of the next request of the object, from 1; -1 when there is none

    @property
    def summary(self) -> str:
        objects = len(np.unique(self.object))
        return f"{len(self.op):,} requests for {objects:,} objects, the largest of {int(self.size.max()):,} bytes"


def requests(trace: Trace, grain: int = 0) -> CacheRequests:
    """The requests of a trace; `grain` bytes of a page, 0: whole tensors.  Raises TraceError."""
    require(trace, "accesses", "a list of requests")
    work = build(trace, np.zeros(trace.ops, np.int64))
    tensor = work.acc_unit
    op = np.repeat(np.arange(trace.ops), np.diff(work.acc_start))
    kept = trace.size[tensor] > 0
    op, tensor, size = op[kept], tensor[kept], trace.size
    if not len(op):
        raise TraceError(f"the operators of '{trace.name}' touch no bytes")
    if grain:
        pages = np.where(np.bincount(tensor, minlength=len(size)) > 0, -(-size // grain), 0)
        count = pages[tensor]
        total = int(count.sum())
        if total > MOST_REQUESTS:
            raise TraceError(f"pages of {grain:,} bytes make {total:,} requests", hint="take larger pages")
        first = np.cumsum(pages) - pages
        within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
        op, tensor = np.repeat(op, count), np.repeat(first[tensor], count) + within
        size = np.full(int(pages.sum()), grain)
    following = next_uses(tensor.astype(np.int32), len(size)).astype(np.int64)
    return CacheRequests(op, tensor, size, np.where(following >= 0, following + 1, -1))


def write_csv(trace: Trace, file: BinaryIO, *, grain: int = 0) -> str:
    """Text with a header; its reader takes the fields by number: time 1, id 2, size 3, next 4."""
    found = requests(trace, grain)
    file.write(b"time,obj_id,obj_size,next_access_vtime\n")
    columns = (found.op, found.object + 1, found.size[found.object], found.next)
    for i in range(0, len(found.op), _CHUNK):
        rows = zip(*(column[i : i + _CHUNK].tolist() for column in columns), strict=True)
        file.write("".join(f"{time},{key},{size},{after}\n" for time, key, size, after in rows).encode())
    return found.summary


def write_binary(trace: Trace, file: BinaryIO, *, grain: int = 0) -> str:
    """oracleGeneral: 24 bytes a request, little-endian u32 time, u64 id, u32 size, i64 next."""
    found = requests(trace, grain)
    largest = int(found.size[found.object].max())
    if largest >= 2**32:
        raise TraceError(
            f"an object of {largest:,} bytes does not fit the 32 bits of oracleGeneral", hint="--grain 2MiB, or libcachesim-csv"
        )
    rows = np.empty(len(found.op), RECORD)
    rows["time"], rows["id"] = found.op, found.object + 1  # it keeps object 0 for itself
    rows["size"], rows["next"] = found.size[found.object], found.next
    file.write(rows.data)
    return found.summary
