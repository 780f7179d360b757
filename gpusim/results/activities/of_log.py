"""Rows of a run with explicit memory, from its event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import ResultError
from gpusim.results import log as lg
from gpusim.results.activities import memory, phases
from gpusim.results.activities.lanes import LanesFound
from gpusim.results.activities.rows import DEVICE_CALL, NONE, STALL, SWAP_IN, SWAP_OUT, Activities, in_order, table
from gpusim.results.result import Result
from gpusim.trace.grain import cut, parse
from gpusim.trace.trace import I64, Trace

NEVER = 2**62
CALLS = ("reserve", "release")
TOLD = 3  # the first version of the log that says what streams waited for


def read(result: Result, trace: Trace) -> Activities:
    """Linear in the records of the log, but for two sorts."""
    assert result.log is not None
    spec = result.spec
    if spec.get("trace_hash", trace.content_hash) != trace.content_hash:
        raise ResultError(f"the trace {trace.name} is not the one that ran", result.key)
    if spec.get("log_version", TOLD) < TOLD:
        why = f"the event log is of version {spec['log_version']}, which does not say what streams waited for"
        raise ResultError(why, result.key, "run again with --log")
    trace = result.program or trace
    if "grain" in spec:
        trace = cut(trace, parse(spec["grain"]))
    return _rows(result, _spans(result.log), trace)


@dataclass(frozen=True)
class Spans:
    """A activities of the log by number; times in ns, NEVER of what did not begin or end."""

    log: npt.NDArray[Any]
    copy: I64     # `b` of a swap's COPY, -1 of an operator
    of: I64       # operator or tensor
    bytes: I64
    submit: I64
    queue: I64    # stream, or below 0 that of a swap
    start: I64
    end: I64


def _spans(log: npt.NDArray[Any]) -> Spans:
    kind = log["kind"]
    made = log[(kind == lg.ISSUE) | (kind == lg.COPY)]
    begun, ended = log[kind == lg.START], log[kind == lg.END]
    start, end, queue = np.full(len(made), NEVER), np.full(len(made), NEVER), np.zeros(len(made), np.int64)
    start[begun["a"]], end[ended["a"]], queue[begun["a"]] = begun["t"], ended["t"], begun["b"]
    copy = np.where(made["kind"] == lg.COPY, made["b"], NONE)
    return Spans(log, copy, made["a"].copy(), made["bytes"].copy(), made["t"].copy(), queue, start, end)


def _rows(result: Result, s: Spans, trace: Trace) -> Activities:
    ended = max(int(s.log["t"][-1]) if len(s.log) else 0, int(result.metrics.get("makespan_ns", 0)))
    names, lanes = ActivityNames.of(trace), LanesFound()
    ran = np.flatnonzero(s.start < NEVER)
    row_of = np.full(len(s.start) + 1, NONE)  # of each activity; of number -1 none
    row_of[ran] = np.arange(len(ran))
    rows = _ran(s, ran, trace, names, ended)
    swap = s.copy[ran] >= 0
    rows["lane"][~swap] = lanes.streams(s.queue[ran][~swap])
    rows["lane"][swap] = lanes.engines(result.spec, s.copy[ran][swap], rows[swap])
    stalls = s.log[s.log["kind"] == lg.STALL]
    held = _stalls(s, stalls, row_of, lanes)
    held["name"] += names.stalls
    rows["cause"] = _waited(rows, s.submit[ran], held, stalls["b"], row_of[stalls["a"]])
    calls = _calls(s.log, names, lanes)
    sections = phases.rows(trace, rows, names.phases, lanes.add("phases", "phase") if len(trace.phases) else NONE)
    found = in_order(np.concatenate([rows, held, calls, sections]))
    return Activities(
        found, tuple(lanes.found), names.all,
        memory.counters(s.log, result.spec), memory.owners(s.log, trace), memory.rates(rows, s.copy[ran], result.spec),
    )  # fmt: skip


@dataclass(frozen=True)
class ActivityNames:
    """All names of a timeline, and where those of a sort begin."""

    all: tuple[str, ...]
    categories: int
    stalls: int
    calls: int
    phases: int

    @classmethod
    def of(cls, trace: Trace) -> ActivityNames:
        parts = (trace.op_names, trace.categories, tuple(f"stall_{cause}" for cause in lg.STALLS), CALLS, trace.phases)
        first = np.cumsum([0, *map(len, parts)]).tolist()
        return cls(tuple(name for part in parts for name in part), *first[1:5])


def _ran(s: Spans, ran: I64, trace: Trace, names: ActivityNames, ended: int) -> npt.NDArray[np.void]:
    """Rows of the activities that began."""
    rows, of = table(len(ran)), s.of[ran]
    operator = s.copy[ran] < 0
    op, unit = of[operator], of[~operator]
    rows["op"][operator], rows["unit"][~operator] = op, unit
    rows["kind"][operator], rows["name"][operator] = trace.activity[op], trace.op[op]
    rows["kind"][~operator] = np.where(s.copy[ran][~operator] & 255 == 0, SWAP_IN, SWAP_OUT)
    rows["name"][~operator] = names.categories + trace.category[unit]
    rows["start"], rows["bytes"] = s.start[ran], s.bytes[ran]
    rows["end"] = np.where(s.end[ran] == NEVER, ended, s.end[ran])
    return rows


def _stalls(s: Spans, stalls: npt.NDArray[Any], row_of: I64, lanes: LanesFound) -> npt.NDArray[np.void]:
    """A row for each STALL, by its cause alone in `name`."""
    held = table(len(stalls))
    act, span = stalls["a"], stalls["bytes"]
    # Those before one start follow each other, and end with it.
    total = np.concatenate([[0], np.cumsum(span)])
    last = np.append(np.flatnonzero(act[1:] != act[:-1]), len(act) - 1) if len(act) else np.zeros(0, np.int64)
    behind = total[last[np.searchsorted(last, np.arange(len(act)))] + 1] if len(act) else total[:0]
    held["end"] = s.start[act] - (behind - total[1:])
    held["start"] = held["end"] - span
    held["kind"], held["name"], held["op"] = STALL, stalls["b"], s.of[act]
    held["cause"] = row_of[stalls["addr"]]
    swap = (stalls["addr"] >= 0) & (s.copy[stalls["addr"]] >= 0)
    held["unit"][swap] = s.of[stalls["addr"][swap]]
    held["lane"] = lanes.streams(s.queue[act], stalls=True)
    return held


def _waited(
    rows: npt.NDArray[np.void], submit: I64, held: npt.NDArray[np.void], cause: I64, stalled: I64
) -> I64:
    """Of each activity the row at whose end it began; NONE where the host let it, or where it may have been one of several.

    cause    of each stall, into STALLS
    stalled  and the row of the activity that stalled

    Stalls for multiprocessors, or for a turn in a copy engine, get their cause by this as well.
    """
    ends = np.argsort(rows["end"], kind="stable")
    at = rows["end"][ends]
    first, behind = (np.searchsorted(at, rows["start"], side) for side in ("left", "right"))
    only = np.append(ends, NONE)[np.where(behind - first == 1, first, -1)]
    only[only == np.arange(len(rows))] = NONE  # one that took no time
    before = _before(rows["lane"], rows["start"])
    follows = (before >= 0) & (np.append(rows["end"], NONE)[before] == rows["start"])
    out = np.where(rows["start"] > submit, np.where(follows, before, only), NONE)
    by_turn = np.isin(cause, (lg.BY_SMS, lg.BY_COPY_ENGINE))
    held["cause"][by_turn] = only[stalled[by_turn]]
    last = held["end"] == rows["start"][stalled]
    out[stalled[last]] = held["cause"][last]
    return out


def _before(lane: I64, start: I64) -> I64:
    """Of each row the one before it in its lane, NONE of the first."""
    order = np.lexsort((np.arange(len(lane)), start, lane))
    out = np.full(len(lane), NONE)
    same = lane[order][1:] == lane[order][:-1]
    out[order[1:][same]] = order[:-1][same]
    return out


def _calls(log: npt.NDArray[Any], names: ActivityNames, lanes: LanesFound) -> npt.NDArray[np.void]:
    """Memory that the allocator takes from the device, or gives back: the log has when, not how long."""
    asked = log[np.isin(log["kind"], (lg.RESERVE, lg.RELEASE))]
    rows = table(len(asked))
    rows["kind"], rows["start"], rows["end"], rows["bytes"] = DEVICE_CALL, asked["t"], asked["t"], asked["bytes"]
    rows["name"] = names.calls + (asked["kind"] == lg.RELEASE)
    if len(rows):
        rows["lane"] = lanes.add("allocator", "host")
    return rows
