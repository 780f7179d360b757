"""Where the host waits for the device: the lines of the program, where its trace knows them.

The `arg` of a sync event is an index into `meta["waits"]`, or -1.  Each entry has the line ("train.py:31"), what the host waits
for there ("a value is read"), and whether the program decides by that: a condition that read it, so that the host cannot go on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.trace.trace import SYNC, Trace

KEY = "waits"


@dataclass(frozen=True)
class HostWait:
    """A line at which the host waits.

    line     "train.py:31"; "" where the trace does not tell
    what     what it waits for, in words
    decides  a condition of the program depends on it
    count    how often
    """

    line: str
    what: str
    decides: bool
    count: int


def host_waits(trace: Trace) -> list[HostWait]:
    """By line, the most frequent first; those whose line is not known are one entry."""
    number = trace.arg[trace.kind == SYNC]
    told = _told(trace)
    known = (number >= 0) & (number < len(told))
    counts = np.bincount(number[known], minlength=len(told))
    found: dict[str, HostWait] = {}
    for row, count in zip(told, counts.tolist(), strict=True):
        if count:
            line = str(row.get("line", ""))
            before = found.get(line, HostWait(line, str(row.get("what", "")), False, 0))
            found[line] = HostWait(line, before.what, before.decides or bool(row.get("decides")), before.count + count)
    if unknown := int((~known).sum()):
        before = found.get("", HostWait("", "", False, 0))
        found[""] = HostWait("", before.what, before.decides, before.count + unknown)
    return sorted(found.values(), key=lambda wait: (-wait.count, wait.line))


def at_line(trace: Trace, line: str) -> npt.NDArray[np.bool_]:
    """(E,) the sync events of this line."""
    rows = [i for i, row in enumerate(_told(trace)) if row.get("line") == line]
    found: npt.NDArray[np.bool_] = (trace.kind == SYNC) & np.isin(trace.arg, rows)
    return found


def _told(trace: Trace) -> list[dict[str, object]]:
    rows = trace.meta.get(KEY)
    return [row if isinstance(row, dict) else {} for row in rows] if isinstance(rows, list) else []
