"""The timeline of a result against its log: each row is a state that the run was in at that time of the host.

Which moment of its stretch of the program a row shows is the run's choice: that at which most was allocated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.results.log import ISSUE, PLACE, RELEASE, RESERVE, UNPLACE
from gpusim.results.result import Result
from gpusim.trace.trace import I64, Trace

LEVELS = ("op", "allocated_bytes", "requested_bytes", "host_bytes", "reserved_bytes")
ROWS = 4096  # at most; a stretch has so many events that these suffice


def check(result: Result, log: Records, acts: ActivityTimes, trace: Trace, found: Findings) -> None:
    """Every row of the timeline, if it has times."""
    rows = result.timeline
    if "time_ns" not in rows or not len(log):
        return
    names = [name for name in LEVELS if name in rows and (name != "reserved_bytes" or (log["kind"] == RESERVE).any())]
    levels = _levels(log, trace)
    first, last = (np.searchsorted(log["t"], rows["time_ns"], side) for side in ("left", "right"))
    for row in range(len(first)):
        states = [levels[name][first[row] : last[row] + 1] for name in names]
        said = [int(rows[name][row]) for name in names]
        if not np.logical_and.reduce([state == value for state, value in zip(states, said, strict=True)]).any():
            was = ", ".join(f"{name} {state[-1]}" for name, state in zip(names, states, strict=True))
            what = ", ".join(f"{name} {value}" for name, value in zip(names, said, strict=True))
            found.say(-1, f"row {row} of the timeline at {rows['time_ns'][row]} ns has {what}", f"a state of the log, {was}")
            break
    _device(result, acts, trace, found)
    found.count("rows of the timeline", len(first))


def _levels(log: Records, trace: Trace) -> dict[str, I64]:
    """(records + 1,) before the first record and after each."""
    kind, device, size = log["kind"], log["b"] == 0, log["bytes"]
    change = (kind == PLACE) * 1 - (kind == UNPLACE) * 1
    asked = trace.size[np.where(change != 0, log["a"], 0)] if trace.tensors else 0 * change
    issued = np.maximum.accumulate(np.where(kind == ISSUE, log["a"], 0))
    reserved = (kind == RESERVE) * 1 - (kind == RELEASE) * 1

    def summed(by: Any) -> I64:
        return np.concatenate([[0], np.cumsum(by)])

    return {
        "op": np.concatenate([[0], issued]), "allocated_bytes": summed(change * device * size),
        "requested_bytes": summed(change * device * asked), "host_bytes": summed(change * ~device * size),
        "reserved_bytes": summed(reserved * size),
    }  # fmt: skip


def _device(result: Result, acts: ActivityTimes, trace: Trace, found: Findings) -> None:
    """By the device's clock a row holds when the next operator begins; what leaves before the first does so at an even rate."""
    rows = result.timeline
    if "device_ns" not in rows or "op" not in rows or not len(rows["op"]):
        return
    began = np.full(max(1, trace.ops) + 1, NEVER)
    operators = acts.op >= 0
    began[acts.op[operators]] = acts.start[operators]
    after = np.ones(len(rows["op"]), np.int64)
    if trace.events <= ROWS:  # a row an event: that of the operator's own submission holds when it begins itself
        after[1:] = np.diff(rows["op"]) == 0
    due = began[np.clip(rows["op"] + after, 0, len(began) - 1)]
    due = np.where(due == NEVER, result.metrics.get("makespan_ns", int(acts.end[acts.end < NEVER].max(initial=0))), due)
    first, below = rows["op"] == 0, rows["host_bytes"]
    if first.any():
        most = int(below[first].max())
        due[first] = due[first] * (below[first] / most) if most else np.minimum(rows["time_ns"], due)[first]
    due = np.maximum.accumulate(due)
    wrong = np.flatnonzero(np.abs(rows["device_ns"] - due) > 1)
    if len(wrong):
        row = int(wrong[0])
        found.say(-1, f"row {row} of the timeline is at {rows['device_ns'][row]} ns of the device",
                  f"{due[row]}, when the next operator begins")  # fmt: skip
