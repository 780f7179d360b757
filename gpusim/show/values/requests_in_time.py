"""What requests and engines do over time, as the activities that a timeline and the viewers show."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.engine.serving import tables as t
from gpusim.results.activities import Activities, ActivityLane
from gpusim.results.activities.rows import DECODE, PREFILL, QUEUED, STEP, WAITING_FOR_KV, WAS_PREEMPTED, in_order, table
from gpusim.show.values.served_memory import KV, engines_share, memory_by_owner
from gpusim.studies.serving.answer import ServingAnswer

I64 = npt.NDArray[np.int64]
LANES = 40  # of requests, of each engine: what finds none of them free is left out
MOST = 400_000  # rows: what is later is left out
_STATES = {
    t.ARRIVED: QUEUED, t.SENT_FOR: WAITING_FOR_KV, t.HAS_COME: QUEUED, t.ADMITTED: PREFILL, t.FIRST_TOKEN: DECODE,
    t.PREEMPTED: WAS_PREEMPTED, t.RESUMED: DECODE,
}  # fmt: skip
_LAST = (t.REJECTED, t.ENDED, t.WENT_AWAY)


def requests_in_time(found: ServingAnswer) -> tuple[Activities, str]:
    """The steps of each engine, and of its requests as many as find one of `LANES` lines free; what is left out, as a sentence.

    After a preemption a request that has no token yet goes on with its prompt, any other decodes, its recomputation included.
    `found` has kept its log.
    """
    records = found.records
    until = int(records["t"][MOST]) if len(records) > MOST else found.served.makespan_ns
    steps, kept = _steps(records, until), _states(records, found.served.first, until)
    lane, lanes, left = _lanes(kept, len(found.served.engines))
    there = lane >= 0
    kept, names = kept[there], ["step"]
    kept["lane"] = lane[there]
    numbers, at = np.unique(kept["request"], return_inverse=True)
    kept["name"] = at + 1
    names += [f"request {number}" for number in numbers]
    said = f"{left:,} requests found none of {LANES} lines free and are not shown. " if left else ""
    if until < found.served.makespan_ns:
        said += f"The first {until / 1e9:,.4g} s of {found.served.makespan_ns / 1e9:,.4g} are shown."
    owners = memory_by_owner(found, until)
    times = owners[KV][0]
    total = sum(values for _, values in owners.values())
    rows = in_order(np.concatenate([steps, kept]))
    counters = {"allocated": (times, np.asarray(total)), "reserved": (times[:1], np.array([engines_share(found)]))}
    return Activities(rows, lanes, tuple(names), counters, owners, device="replica"), said.strip()


def _steps(records: Any, until: int) -> Any:
    found = records[(records["kind"] == t.STEP) & (records["t"] < until)]
    rows = table(len(found))
    rows["device"], rows["kind"], rows["start"] = found["engine"], STEP, found["t"]
    rows["end"] = found["t"] + found["value"]
    later = records[records["kind"] == t.LATER]
    for e in np.unique(later["engine"]):  # a step that copies have slowed down ends at the time of that record
        mine, ends = np.flatnonzero(found["engine"] == e), later["t"][later["engine"] == e]
        at = np.searchsorted(found["t"][mine], ends) - 1
        rows["end"][mine[at]] = np.where(ends <= until, ends, rows["end"][mine[at]])
    return rows


def _states(records: Any, first: I64, until: int) -> Any:
    """A row for each state of each request, its states one after the other."""
    found = records[~np.isin(records["kind"], (t.STEP, t.LATER)) & (records["t"] < until)]
    found = found[np.argsort(found["request"], kind="stable")]
    same = np.append(found["request"][1:] == found["request"][:-1], False)
    ends = np.where(same, np.append(found["t"][1:], 0), until)
    states = np.array([_STATES.get(kind, -1) for kind in range(max(*_STATES, *_LAST) + 1)])[found["kind"]]
    states[(found["kind"] == t.RESUMED) & (found["t"] <= first[found["request"]])] = PREFILL
    shown = (states >= 0) & (ends > found["t"])
    rows = table(int(shown.sum()))
    rows["device"], rows["request"], rows["kind"] = found["engine"][shown], found["request"][shown], states[shown]
    rows["start"], rows["end"] = found["t"][shown], ends[shown]
    return rows


def _lanes(rows: Any, engines: int) -> tuple[I64, tuple[ActivityLane, ...], int]:
    """Of each row its lane, -1 for none; a request keeps one line of its engine from its first to its last row there."""
    lanes = (ActivityLane("steps", "stream"), *(ActivityLane(f"requests {i}", "request", i) for i in range(LANES)))
    place, left = np.full(len(rows), -1, np.int64), 0
    begins = np.flatnonzero(np.append(True, (np.diff(rows["request"]) != 0) | (np.diff(rows["device"]) != 0))[: len(rows)])
    ends = np.append(begins[1:], len(rows))
    free = np.zeros((engines, LANES), np.int64)
    for stay in np.argsort(rows["start"][begins], kind="stable"):
        low, high = begins[stay], ends[stay]
        open_ = np.flatnonzero(free[rows["device"][low]] <= rows["start"][low])
        if not len(open_):
            left += 1
            continue
        free[rows["device"][low], open_[0]] = rows["end"][high - 1]
        place[low:high] = open_[0] + 1
    return place, lanes, left
