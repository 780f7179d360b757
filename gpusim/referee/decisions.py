"""What policies decided at times of their own: a release policy, a plan, a defragmentation; each with what came of it."""

from __future__ import annotations

import numpy as np

from gpusim.referee.activities import first
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.results.log import (
    CALLED_BACK,
    COPY,
    DECIDE,
    DEFRAG,
    MOVE,
    PLACE,
    PLANNED_IN,
    PLANNED_OUT,
    RELEASE,
    RELEASED,
    RESERVE,
    SKIPPED,
    UNPLACE,
)
from gpusim.trace.trace import I64


def check(log: Records, found: Findings) -> dict[str, int]:
    """Every decision is that of the records beside it; returns the metrics that count them."""
    _rearrangements(log, found)
    at = np.flatnonzero(log["kind"] == DECIDE)
    if not len(at):
        return _counts(log, at)
    calls = np.isin(log["kind"], (RESERVE, RELEASE))  # of the same step, and of no tensor
    latest = np.maximum.accumulate(np.where(calls, 0, np.arange(len(log))))
    what, before = log["b"][at], latest[np.maximum(at - 1, 0)]
    kind, to = log["kind"][before], log["b"][before]
    own = (log["a"][before] == log["a"][at]) & (log["t"][before] == log["t"][at]) & (at > 0)
    left = (kind == UNPLACE) & (to == 0) & (log["bytes"][before] == log["bytes"][at])
    came = ((kind == PLACE) & (to == 0)) | ((kind == COPY) & (to & 255 == 0))
    wrong = np.isin(what, (RELEASED, PLANNED_OUT)) & ~(own & left)
    first(found, wrong, lambda i: f"a policy has tensor {log['a'][at[i]]} leave", "its block given back just before", at)
    wrong = (what == PLANNED_IN) & ~(own & came)
    first(found, wrong, lambda i: f"the plan has tensor {log['a'][at[i]]} come", "its block or its copy just before", at)
    return _counts(log, at)


def _counts(log: Records, at: I64) -> dict[str, int]:
    """The metrics that count the decisions, at these records."""
    what, released = log["b"][at], log["b"][at] == RELEASED
    recall = (log["kind"] == COPY) & (log["b"] >> 8 & 255 != 0) & (log["b"] & 255 != 0)
    return {
        "defrags": int(np.count_nonzero(log["kind"] == DEFRAG)),
        "release_evictions": int(released.sum()), "release_bytes": int(log["bytes"][at][released].sum()),
        "plan_evictions": int((what == PLANNED_OUT).sum()), "plan_prefetches": int((what == PLANNED_IN).sum()),
        "plan_skipped": int((what == SKIPPED).sum()),
        "recalls": int((what == CALLED_BACK).sum()), "recall_bytes": int(log["bytes"][recall].sum()),
    }  # fmt: skip


def _rearrangements(log: Records, found: Findings) -> None:
    """Blocks move only in a defragmentation, whose records stand behind it."""
    at = np.flatnonzero(log["kind"] == DEFRAG)
    if not len(at) and not (log["kind"] == MOVE).any():
        return
    last = at + log["a"][at]
    inside = np.zeros(len(log) + 1, np.int64)
    np.add.at(inside, np.minimum(at + 1, len(log)), 1)
    np.add.at(inside, np.minimum(last + 1, len(log)), -1)
    covered = np.cumsum(inside[:-1])
    first(found, last >= len(log), lambda i: f"a defragmentation of {log['a'][at[i]]} records", "as many after it", at)
    of_it = np.isin(log["kind"], (MOVE, RESERVE, RELEASE))
    first(found, (covered == 1) & ~of_it, lambda i: "a defragmentation does something else", "moves or device calls")
    first(found, (covered != 1) & (log["kind"] == MOVE), lambda i: f"the block of tensor {log['a'][i]} moves",
          "a defragmentation")  # fmt: skip
