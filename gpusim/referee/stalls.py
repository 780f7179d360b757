"""The stalls that the log tells of: each stands before its start, lasts as long as found here, and ends with what it names."""

from __future__ import annotations

import numpy as np

from gpusim.referee.activities import NEVER, ActivityTimes, first
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.referee.starts import Starts
from gpusim.results.log import BY_EVENT, BY_SWAP_IN, BY_SWAP_OUT, STALL, STALLS, START
from gpusim.results.result import Result
from gpusim.trace.trace import I64

ROLES = {BY_SWAP_IN: 1, BY_SWAP_OUT: 2, BY_EVENT: 0}  # of the queue whose activity was waited for; of the others none is


def told(result: Result, log: Records) -> bool:
    """Whether the log says what streams waited for: logs before version 3 do not."""
    return result.spec.get("log_version", 0) >= 3 or bool((log["kind"] == STALL).any())


def check(result: Result, log: Records, acts: ActivityTimes, s: Starts, role: I64, found: Findings) -> None:
    """Every stall; `role` of each queue: 0 stream, 1 copies to the device, 2 from it."""
    at = np.flatnonzero(log["kind"] == STALL)
    starts = np.flatnonzero(log["kind"] == START)
    turn = np.searchsorted(starts, at)
    begun = np.append(starts, len(log))[turn]
    own = np.append(log["a"], -1)[begun] == log["a"][at]
    # Nothing but others of its kind lies between a stall and its start.
    own &= begun - at == np.searchsorted(at, begun) - np.arange(len(at))
    first(found, ~own, lambda i: f"activity {log['a'][at[i]]} stalls", "its start behind that", at)
    first(found, log["bytes"][at] == 0, lambda i: f"activity {log['a'][at[i]]} stalls for 0 ns", "some time", at)
    for record, cause, given, due in s.differs[: s.count[1]].tolist():
        found.say(record, f"activity {log['a'][record]} has stalled {given} ns by {STALLS[cause]}", f"{due} ns")
    if own.all():
        _ends(log, acts, s, role, at, begun, found)
    for cause, name in enumerate(STALLS):
        claimed, total = result.metrics.get(f"stall_{name}_ns", 0), int(log["bytes"][at][log["b"][at] == cause].sum())
        if claimed != total:
            found.say(-1, f"metric stall_{name}_ns is {claimed}", f"{total}, the sum of such stalls")
    found.count("stalls", len(at))


def _ends(log: Records, acts: ActivityTimes, s: Starts, role: I64, at: I64, begun: I64, found: Findings) -> None:
    """Each stall ends when the activity that it names is done, and names one where it can."""
    cause, other, span = log["b"][at], log["addr"][at], log["bytes"][at]
    total = np.concatenate([[0], np.cumsum(span)])
    last = np.searchsorted(begun, begun, "right")  # one behind the last stall before the same start
    until = log["t"][begun] - (total[last] - total[np.arange(len(at)) + 1])
    named = np.isin(cause, list(ROLES))
    known = np.where((other >= 0) & (other < len(acts.end)), other, -1)
    done, queue = np.append(s.done, NEVER)[known], np.append(s.queue, -1)[known]
    due = np.array([ROLES.get(c, -1) for c in range(len(STALLS))])[cause]
    wrong = np.where(named, (done != until) | (np.append(role, -1)[queue] != due), other != -1)
    if wrong.any():
        i = int(np.argmax(wrong))
        expected = f"one of what it says that is done at {until[i]} ns" if named[i] else "no activity"
        found.say(at[i], f"activity {log['a'][at[i]]} stalls by {STALLS[cause[i]]} for activity {other[i]}", expected)
