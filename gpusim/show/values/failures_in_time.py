"""What a long run does over time, as the activities that a timeline shows: the job, its copies, what fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.engine.failures import tables as t
from gpusim.engine.failures.run import FailingRun
from gpusim.results.activities import Activities, ActivityLane
from gpusim.results.activities.rows import CHECKPOINT_COPY, COMPUTING, FAILURE, in_order, table

LANES = 8  # of failures that are not over: what finds none of them free is left out
MOST = 200_000  # rows: what is later is left out
PHASES = ("computing", "saving", "blocked by a copy on its way", "restarting", "waiting for nodes")
COPIES = ("", "copy to neighbours", "copy to storage")


def failures_in_time(run: FailingRun) -> tuple[Activities, str]:
    """Rows of a run that has kept its log; what is left out, as a sentence."""
    records, end = run.records(), run.now
    until = int(records["t"][MOST]) if len(records) > MOST else end
    records = records[records["t"] < until] if until < end else records
    names = [*PHASES, *COPIES[1:], *(kind.name for kind in run.kinds)]
    failures, lanes, left = _failures(records, run, until)
    rows = in_order(np.concatenate([_job(records, until), _copies(records, until), failures]))
    said = f"{left:,} failures found none of {LANES} lines free and are not shown. " if left else ""
    if until < end:
        said += f"The first {until / 3.6e12:,.4g} h of {end / 3.6e12:,.4g} are shown."
    fails = (ActivityLane(f"failures {i + 1}", "fault", i) for i in range(lanes))
    every = (ActivityLane("job", "phase"), ActivityLane("copies", "copy engine"), *fails)
    return Activities(rows, every, tuple(names), {}, {}), said.strip()


def _job(records: Any, until: int) -> Any:
    """Its phases, one after the other."""
    began = records[records["kind"] == t.BEGAN]
    start = np.append(0, began["t"])
    rows = table(len(start))
    rows["start"], rows["end"] = start, np.append(began["t"], until)
    rows["name"] = np.append(t.COMPUTING, began["cause"])
    rows["kind"] = COMPUTING + rows["name"]  # kinds are in the order of phases
    return rows[rows["end"] > rows["start"]]


def _copies(records: Any, until: int) -> Any:
    """Until they have come, or until a failure has ended them."""
    sent = records[np.isin(records["kind"], (t.SENT, t.SAFE, t.FAILED, t.ENDED))]
    ends = np.append(sent["t"][1:], until)
    mine = sent["kind"] == t.SENT
    rows = table(int(mine.sum()))
    rows["start"], rows["kind"], rows["lane"] = sent["t"][mine], CHECKPOINT_COPY, 1
    rows["end"] = np.minimum(ends[mine], sent["value"][mine].astype(np.int64))
    rows["name"] = len(PHASES) + sent["cause"][mine] - 1
    return rows[rows["end"] > rows["start"]]


def _failures(records: Any, run: FailingRun, until: int) -> tuple[Any, int, int]:
    """(a row each, until the job computes again or its slow node is well; lanes; how many found none)."""
    failed = records[records["kind"] == t.FAILED]
    computes = records["t"][(records["kind"] == t.BEGAN) & (records["cause"] == t.COMPUTING)]
    following = np.append(computes, until)[np.searchsorted(computes, failed["t"], side="right")]
    rows, free, left = table(len(failed)), np.zeros(LANES, np.int64), 0
    rows["start"], rows["kind"], rows["unit"] = failed["t"], FAILURE, failed["node"]
    for row, one, back in zip(rows, failed, following, strict=True):
        kind = run.kinds[int(one["cause"])]
        slow = int(min(one["t"] + kind.lasts, until)) if kind.effect in ("slow", "degrade") else 0
        row["end"] = max(slow, int(back) if kind.interrupts else 0, int(one["t"]) + 1)
        row["name"] = len(PHASES) + len(COPIES) - 1 + int(one["cause"])
        open_ = np.flatnonzero(free <= row["start"])
        row["lane"] = 2 + int(open_[0]) if len(open_) else -1
        if len(open_):
            free[open_[0]] = row["end"]
        else:
            left += 1
    return rows[rows["lane"] >= 0], int(np.count_nonzero(free)), left
