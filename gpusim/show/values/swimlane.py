"""What streams, engines and the driver did: of each column of time the share in which a lane was busy, and with what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.results.activities import KINDS, Activities

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
STALL = KINDS.index("stall")
# What is told apart: words -> kinds of activities; a stall is told by its cause.
CLASSES = {
    "kernel": ("kernel", "step"), "swap in": ("swap_in",), "swap out": ("swap_out",),
    "migration": ("migration",), "eviction": ("eviction",),
    "program's own copy": ("copy_in", "copy_out", "copy_peer", "nvme_read", "nvme_write"), "collective": ("collective",),
    "host": ("host",), "faults served": ("fault_batch", "host_fault"), "device call": ("device_call",),
}  # fmt: skip
# ... and stalls by their cause, in the words of the metrics.
STALLS = {
    "stall_swap_in": "waits for swap-in", "stall_swap_out": "waits for swap-out", "stall_launch": "waits for its launch",
    "stall_fault": "waits for faults", "stall_migration": "waits for migration", "stall_host": "waits for the CPU",
}  # fmt: skip
OTHERWISE = "waits otherwise"
ALL = (*CLASSES, *STALLS.values(), OTHERWISE)
SKIPPED = "phase"  # a group of lanes: they name spans, nothing runs in them


@dataclass(frozen=True, eq=False)
class Swimlanes:
    """L lanes over N columns of equal width.

    lanes    (name, group), groups in the order of results.activities.GROUPS
    classes  of ALL those that occur
    busy     (L, K, N) the share of the column in which the lane was busy with this class
    start    ns, of the first column; `end` of the last
    """

    lanes: tuple[tuple[str, str], ...]
    classes: tuple[str, ...]
    busy: F64
    start: int
    end: int


def swimlanes(found: Activities, columns: int, start: int = 0, end: int | None = None) -> Swimlanes:
    """The lanes in which something happens between start and end (ns; the last end by default)."""
    rows = found.rows
    end = int(rows["end"].max(initial=1)) if end is None else end
    kept = [i for i, lane in enumerate(found.lanes) if lane.group != SKIPPED]
    of_kind = np.full(len(KINDS), -1)
    for k, kinds in enumerate(CLASSES.values()):
        of_kind[[KINDS.index(kind) for kind in kinds]] = k
    what = np.where(rows["kind"] == STALL, _causes(found)[rows["name"]], of_kind[rows["kind"]])
    inside = (rows["end"] > start) & (rows["start"] < end) & (what >= 0) & np.isin(rows["lane"], kept)
    width = max(end - start, 1) / columns
    table = np.zeros((len(found.lanes), len(ALL), columns))
    for lane in np.unique(rows["lane"][inside]):
        for k in np.unique(what[inside & (rows["lane"] == lane)]):
            mine = rows[inside & (rows["lane"] == lane) & (what == k)]
            table[lane, k] = _covered((mine["start"] - start) / width, (mine["end"] - start) / width, columns)
    there, seen = table.sum(axis=(1, 2)) > 0, table.sum(axis=(0, 2)) > 0
    lanes = [i for i in kept if there[i]]
    classes = np.flatnonzero(seen)
    names = tuple(ALL[k] for k in classes)
    return Swimlanes(tuple((_named(found, i), found.lanes[i].group) for i in lanes), names,
                     np.minimum(table[lanes][:, classes], 1.0), start, end)  # fmt: skip


def _named(found: Activities, lane: int) -> str:
    """A lane, with its device where there are several."""
    name, of = found.lanes[lane].name, found.rows["device"][found.rows["lane"] == lane]
    return f"{found.device} {of[0]} {name}" if found.rows["device"].any() and len(of) else name


def _causes(found: Activities) -> I64:
    """By name: the class of a stall of that name."""
    return np.array([ALL.index(STALLS.get(name, OTHERWISE)) for name in found.names], np.int64)


def _covered(begins: F64, ends: F64, columns: int) -> F64:
    """The share of each column that spans which do not overlap cover; in units of columns."""
    begins, ends = np.clip(begins, 0, columns), np.clip(ends, 0, columns)
    edges = np.zeros(columns + 1)
    for at, sign in ((begins, -1.0), (ends, 1.0)):
        # Time up to each edge: what began before it, less what ended before it.
        whole = np.minimum(at.astype(np.int64), columns - 1)
        np.add.at(edges, whole + 1, sign * (at - whole))
        # ... and a full column for all columns before.
        counts = np.zeros(columns + 1)
        np.add.at(counts, whole, sign)
        edges[1:] += counts[::-1].cumsum()[::-1][1:]
    return np.maximum(edges[1:], 0.0)


def busiest(found: Activities, width: int) -> tuple[int, int]:
    """The span of this width in ns in which stalls take most time, or where there are none, most is under way.

    Of spans that are about equal, the one in which more begins.
    """
    rows = found.rows
    stalls = rows[rows["kind"] == STALL]
    used = stalls if len(stalls) else rows
    end = int(rows["end"].max(initial=1))
    if not len(used) or width >= end:
        return 0, end
    steps = 4 * max(end // width, 1)
    share = _covered(used["start"] * (steps / end), used["end"] * (steps / end), steps)
    total = np.convolve(share, np.ones(4), "valid")
    begun = np.convolve(np.bincount(np.minimum(rows["start"] * steps // end, steps - 1), minlength=steps), np.ones(4), "valid")
    start = int(np.argmax(total + 0.2 * begun / begun.max()) * end / steps)
    return start, min(start + width, end)
