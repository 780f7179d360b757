"""The allocator alone: a program's requests, one after another, through the verbs of one place policy.

No time, no links, no eviction: what is asked here is where blocks go, what the device must give for it, and what is refused.
The loop is compiled once for all policies; it may be called again and again with the next piece of an endless program.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import typeof, types

from gpusim.base.compiled import entry, kernel
from gpusim.base.tables import table
from gpusim.policies import contract
from gpusim.policies.contract import BLOCK, CALL_LIST, CALLS, CAPACITY, HELD, MAX_CALLS, ROUNDED
from gpusim.policies.verb_table import called
from gpusim.results import log as logs
from gpusim.results.log import LOG

i8 = np.int64

# What a program asks of its allocator.
R_ALLOC, R_FREE, R_USE, R_RELEASE, R_COMMAND = range(5)
REQUEST = np.dtype(
    [("kind", i8),
     ("unit", i8),      # of a command: its code
     ("size", i8),      # bytes of an alloc, or those a release must give back; of a command: its first argument
     ("stream", i8)]    # of a command: its second argument
)  # fmt: skip

# Where each unit is; addr is -1 while it has no block.
PLACED = np.dtype([("addr", i8), ("block", i8), ("size", i8), ("stream", i8)])

COUNTS = np.dtype(
    [("requests", i8), ("allocs", i8), ("frees", i8), ("live", i8), ("live_peak", i8),
     ("requested", i8), ("requested_peak", i8), ("rounded_peak", i8), ("held_peak", i8),
     ("held_peak_at", i8),      # number of the request
     ("idle_peak", i8),         # most bytes held and not requested
     ("idle_peak_at", i8),
     ("refused", i8),           # allocs that ended out of memory; the program goes on without them
     ("refused_at", i8),        # the first of them, -1: none
     ("refused_bytes", i8),     # its size
     ("refused_free", i8),      # bytes that were not in use by a block then
     ("fragmented", i8),        # refused although that many bytes were free
     ("device_allocs", i8), ("device_frees", i8), ("device_bytes", i8),
     ("logged", i8),
     ("bucket", i8)]            # requests per sample
)  # fmt: skip

# The highest values of each bucket, and how it ended.
SAMPLE = np.dtype([("requested", i8), ("rounded", i8), ("held", i8), ("free", i8), ("largest", i8)])


class PlaceVerbs(NamedTuple):
    """The compiled verbs of a place policy, each with its signature."""

    alloc: Annotated[Any, contract.ALLOC]
    free: Annotated[Any, contract.FREE]
    use: Annotated[Any, contract.USE]
    release: Annotated[Any, contract.RELEASE]
    command: Annotated[Any, contract.COMMAND]
    largest: Annotated[Any, contract.LARGEST]


as_alloc, V_ALLOC = called(PlaceVerbs, "alloc")
as_free, V_FREE = called(PlaceVerbs, "free")
as_use, V_USE = called(PlaceVerbs, "use")
as_release, V_RELEASE = called(PlaceVerbs, "release")
as_command, V_COMMAND = called(PlaceVerbs, "command")
as_largest, V_LARGEST = called(PlaceVerbs, "largest")


@kernel
def record(log: Any, n: Any, kind: int, unit: int, addr: int, size: int) -> None:
    if log.size == 0:
        return
    row = log[n.logged]
    row.t, row.kind, row.a, row.b, row.addr, row.bytes = n.requests, kind, unit, 0, addr, size
    n.logged += 1


@kernel
def count_device_calls(S: Any, log: Any, n: Any) -> None:
    at = S[CALL_LIST]
    for i in range(S[CALLS]):
        addr, size = S[at + 2 * i], S[at + 2 * i + 1]
        if size > 0:
            n.device_allocs += 1
            n.device_bytes += size
            record(log, n, logs.RESERVE, 0, addr, size)
        elif size < 0:
            n.device_frees += 1
            record(log, n, logs.RELEASE, 0, addr, -size)
    S[CALLS] = 0


@kernel
def refuse(S: Any, n: Any, size: int) -> None:
    free = S[CAPACITY] - S[ROUNDED]
    if n.refused == 0:
        n.refused_at, n.refused_bytes, n.refused_free = n.requests, size, free
    n.refused += 1
    if free >= size:
        n.fragmented += 1


@kernel
def sample(S: Any, n: Any, samples: Any, verbs: Any) -> None:
    """Keep the maxima; at the end of a bucket ask for the largest free block."""
    held, rounded = S[HELD], S[ROUNDED]
    n.live_peak = max(n.live_peak, n.live)
    n.requested_peak = max(n.requested_peak, n.requested)
    n.rounded_peak = max(n.rounded_peak, rounded)
    if held > n.held_peak:
        n.held_peak, n.held_peak_at = held, n.requests
    if held - n.requested > n.idle_peak:
        n.idle_peak, n.idle_peak_at = held - n.requested, n.requests
    b = n.requests // n.bucket
    row = samples[b]
    row.requested = max(row.requested, n.requested)
    row.rounded = max(row.rounded, rounded)
    row.held = max(row.held, held)
    n.requests += 1
    if n.requests % n.bucket == 0:
        row.free = held - rounded
        row.largest = as_largest(verbs[V_LARGEST, 0], verbs[V_LARGEST, 1])(S)


_SIGNATURE = types.int64(
    typeof(table(1, REQUEST)), types.int64, types.Array(types.int64, 1, "C"), typeof(table(1, PLACED)),
    typeof(table(1, COUNTS)), typeof(table(1, SAMPLE)), typeof(table(1, LOG)), types.Array(types.int64, 2, "C"),
)  # fmt: skip


@entry(_SIGNATURE)
def run(requests: Any, first: int, S: Any, placed: Any, counts: Any, samples: Any, log: Any, verbs: Any) -> int:
    """Carry out requests[first:]; returns -1 when all are done, else the first that is not because the log is full.

    S is the policy's table; an empty log keeps no records, one with rows has room for MAX_CALLS + 4 more at each request.
    """
    n = counts[0]
    for i in range(first, requests.size):
        r = requests[i]
        if log.size and log.size - n.logged < S[MAX_CALLS] + 4:
            return i
        if r.kind == R_ALLOC:
            unit = placed[r.unit]
            addr = as_alloc(verbs[V_ALLOC, 0], verbs[V_ALLOC, 1])(S, r.unit, r.size, r.stream)
            count_device_calls(S, log, n)
            unit.addr, unit.size, unit.stream = addr, r.size, r.stream
            n.allocs += 1
            if addr < 0:
                unit.block = 0
                refuse(S, n, r.size)
                record(log, n, logs.OOM, r.unit, as_largest(verbs[V_LARGEST, 0], verbs[V_LARGEST, 1])(S), r.size)
            else:
                unit.block = S[BLOCK]
                n.live += 1
                n.requested += r.size
                record(log, n, logs.CREATE, r.unit, -1, r.size)
                record(log, n, logs.PLACE, r.unit, addr, unit.block)
        elif r.kind == R_FREE:
            unit = placed[r.unit]
            if unit.addr >= 0:
                record(log, n, logs.UNPLACE, r.unit, unit.addr, unit.block)
                record(log, n, logs.DESTROY, r.unit, -1, unit.size)
                as_free(verbs[V_FREE, 0], verbs[V_FREE, 1])(S, r.unit, r.stream)
                count_device_calls(S, log, n)
                unit.addr = -1
                n.frees += 1
                n.live -= 1
                n.requested -= unit.size
        elif r.kind == R_USE:
            if verbs[V_USE, 0] and placed[r.unit].addr >= 0:
                as_use(verbs[V_USE, 0], verbs[V_USE, 1])(S, r.unit, r.stream)
        elif r.kind == R_RELEASE:
            as_release(verbs[V_RELEASE, 0], verbs[V_RELEASE, 1])(S, r.size)
            count_device_calls(S, log, n)
        elif verbs[V_COMMAND, 0]:
            as_command(verbs[V_COMMAND, 0], verbs[V_COMMAND, 1])(S, r.unit, r.size, r.stream)
            count_device_calls(S, log, n)
        sample(S, n, samples, verbs)
    return -1
