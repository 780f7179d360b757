"""The table of activities: its columns, its words, and what goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpusim.trace import trace as tr
from gpusim.trace.trace import I64

NONE = -1
KINDS = (
    *tr.ACTIVITIES,                               # what carries an operator out
    "swap_in", "swap_out",                        # of a tensor or a chunk
    "migration", "eviction",                      # of pages, to a processor or from one that had no room
    "fault_batch", "host_fault",                  # the driver serves faults of a GPU, of the CPU
    "stall", "device_call", "phase",
    "step",                                       # of a managed program, no kernel; of an engine that serves requests
    "queued", "waiting_for_kv", "prefill", "decode", "preempted",  # what a request does
    "computing", "saving", "blocked", "restarting", "short_of_nodes", "checkpoint_copy", "failure",  # of a long run
    "job",                                        # of a cluster, on a GPU
)  # fmt: skip
(
    SWAP_IN, SWAP_OUT, MIGRATION, EVICTION, FAULT_BATCH, HOST_FAULT, STALL, DEVICE_CALL, PHASE, STEP,
    QUEUED, WAITING_FOR_KV, PREFILL, DECODE, WAS_PREEMPTED,
    COMPUTING, SAVING, BLOCKED, RESTARTING, SHORT_OF_NODES, CHECKPOINT_COPY, FAILURE, JOB,
) = range(len(tr.ACTIVITIES), len(KINDS))  # fmt: skip
GROUPS = ("phase", "stream", "stall", "copy engine", "fault", "host", "request")  # of lanes, in the order of their display

ROW = np.dtype(
    [("device", np.int32), ("host", np.int32), ("tenant", np.int32), ("request", np.int32), ("lane", np.int32),
     ("kind", np.int8), ("name", np.int32), ("start", np.int64), ("end", np.int64), ("cause", np.int64),
     ("bytes", np.int64), ("op", np.int64), ("unit", np.int64)],
    align=True,
)  # fmt: skip

Counter = tuple[I64, I64]
"""Times in ns, rising, and values: each holds from its time until the next."""


@dataclass(frozen=True)
class ActivityLane:
    """A line of a timeline, on which rows follow one another without overlap."""

    name: str
    group: str  # of GROUPS
    number: int = 0  # of the stream that it is or, of stalls, belongs to


@dataclass(frozen=True, eq=False)
class Activities:
    """R rows by rising start; what ran last ends with the run where that ended early.

    rows      dtype ROW.  device, host, tenant: numbers from 0; request: -1 where there are none; lane, name: into `lanes` and
              `names`; kind: into KINDS; start, end: ns; cause: the row at whose end this one could begin, -1 where none is
              known; bytes: moved, or of a device call; op, unit: operator and tensor (of a program in grains its chunk; of
              pages their block of 2 MiB), -1 for none
    lanes     of the rows
    names     operators, categories of tensors, causes of stalls as in results.metrics without their unit, phases
    counters  bytes: "allocated" and "reserved" by the allocator of the device, and in each kind of memory below it; at the time
              at which the host did so
    owners    bytes of blocks on the device by the category of the tensors in them, at the same time
    rates     bytes/s on links by their direction, each copy at its own average
    device    what a number of a device is called: programs on one GPU have lanes of their own
    """

    rows: npt.NDArray[np.void]
    lanes: tuple[ActivityLane, ...]
    names: tuple[str, ...]
    counters: Mapping[str, Counter] = field(default_factory=dict)
    owners: Mapping[str, Counter] = field(default_factory=dict)
    rates: Mapping[str, Counter] = field(default_factory=dict)
    device: str = "GPU"

    def __len__(self) -> int:
        return len(self.rows)

    def of_kind(self, *kinds: str) -> npt.NDArray[np.void]:
        """The rows of these kinds."""
        return self.rows[np.isin(self.rows["kind"], [KINDS.index(kind) for kind in kinds])]

    def stalls(self) -> dict[str, int]:
        """ns by cause, as results.metrics names them: {"stall_swap_in_ns": ...}; causes that never were are left out."""
        found = self.rows[self.rows["kind"] == STALL]
        total = np.zeros(len(self.names), np.int64)
        np.add.at(total, found["name"], found["end"] - found["start"])
        return {f"{self.names[i]}_ns": int(total[i]) for i in np.flatnonzero(total)}


def table(count: int) -> npt.NDArray[np.void]:
    """So many rows of nothing on the first device of the first host."""
    rows = np.zeros(count, ROW)
    for column in ("request", "cause", "op", "unit"):
        rows[column] = NONE
    return rows


def in_order(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """The rows by rising start, what is longer first; causes follow."""
    order = np.lexsort((-rows["end"], rows["start"]))
    place = np.empty(len(rows) + 1, np.int64)
    place[order] = np.arange(len(rows))
    place[-1] = NONE
    out = rows[order]
    out["cause"] = place[out["cause"]]
    return out


def level(times: I64, changes: I64) -> Counter:
    """What a sum comes to; several changes at one time are one step."""
    order = np.argsort(times, kind="stable")
    times, total = times[order], np.cumsum(changes[order])
    last = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    times, total = times[last], total[last]
    changed = np.append(True, total[1:] != total[:-1]) if len(total) else np.zeros(0, bool)
    return times[changed], total[changed]
