"""Rows of a run under unified memory, from the log of its pages and the columns of its steps.

How long each step waited, and for what, is known; when it did is not: its stalls stand at its end, one after another.
Copies of one service follow each other in the GPU's copy engine: a row for each direction has the time of all together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import ResultError
from gpusim.results import page_log as pl
from gpusim.results.activities import phases
from gpusim.results.activities.lanes import LanesFound
from gpusim.results.activities.rows import (
    EVICTION,
    FAULT_BATCH,
    HOST_FAULT,
    MIGRATION,
    NONE,
    STALL,
    STEP,
    Activities,
    Counter,
    in_order,
    level,
    table,
)
from gpusim.results.result import Result
from gpusim.trace.trace import HOST_WORK, KERNEL, Trace

AGAIN = "run again with --log"
LEVELS = {"allocated": "allocated_bytes", "reserved": "reserved_bytes", "host": "host_bytes"}
NAMES = ("pages to a GPU", "pages from a GPU", "pages between GPUs", "faults of a GPU", "faults of the CPU")
IN, OUT, BETWEEN, OF_GPU, OF_CPU = range(len(NAMES))
LINKS = ("h2d", "d2h", "peer")


def read(result: Result, trace: Trace | None) -> Activities:
    """trace: of a recorded program, else None."""
    assert result.pages is not None
    p, said = result.pages, result.spec.get("paging", {})
    if "step_stream" not in p or "until" not in p or "began_ns" not in said:
        why = "the log of pages is of an earlier version, which does not say how long things took"
        raise ResultError(why, result.key, "run again with --log")
    if said["events"] > len(p["time"]):
        raise ResultError(f"the log of pages ends after {len(p['time']):,} of {said['events']:,} records", result.key)
    if trace is not None and result.spec.get("trace_hash", trace.content_hash) != trace.content_hash:
        raise ResultError(f"the trace {trace.name} is not the one that ran", result.key)
    lanes = LanesFound()
    steps, stalls = p[pl.NAMES].tolist(), [f"stall_{cause}" for cause in pl.STALLS]
    names = (*steps, *stalls, *NAMES, *(trace.phases if trace is not None else ()))
    ran = _steps(p, trace, lanes)
    held = _stalls(p, ran, len(steps), lanes)
    log = PageLog(p, said)
    faults, copies = _faults(log, lanes), _copies(log, lanes)
    rates = _rates(copies)
    for rows in (faults, copies):
        rows["name"] += len(steps) + len(stalls)
    sections = table(0)
    if trace is not None and len(trace.phases):
        sections = phases.rows(trace, ran, len(names) - len(trace.phases), lanes.add("phases", "phase"))
    rows = in_order(np.concatenate([ran, held, faults, copies, sections]))
    return Activities(rows, tuple(lanes.found), names, _counters(result), {}, rates)


class PageLog:
    """The timed records of the log; times are ns since it was timed."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]], said: dict[str, Any]) -> None:
        self.page = int(said["page"])
        self.columns = {name: columns[name][int(said["began"]) :] for name in pl.LOG.names or ()}
        for name in ("time", "since", "until"):
            self.columns[name] = np.rint(self.columns[name] - said["began_ns"]).astype(np.int64).clip(0)

    def of(self, *kinds: int) -> dict[str, npt.NDArray[Any]]:
        at = np.flatnonzero(np.isin(self.columns["kind"], kinds))
        return {name: column[at].astype(np.int64) for name, column in self.columns.items() if name != "mask"}


def _steps(p: dict[str, npt.NDArray[Any]], trace: Trace | None, lanes: LanesFound) -> npt.NDArray[np.void]:
    """Steps of one stream run one after another; those of a recorded program carry its operators out."""
    rows = table(len(p["step_kind"]))
    rows["name"], rows["start"], rows["end"], rows["op"] = p["step_name"], p["step_start"], p["step_end"], p["step_op"]
    rows["kind"] = np.array([KERNEL, HOST_WORK, STEP])[p["step_kind"]]
    operators = rows["op"] >= 0
    if trace is not None:
        rows["kind"][operators] = trace.activity[rows["op"][operators]]
    for name, number, mine in _streams(p):
        rows["lane"][mine] = lanes.add(name, "stream", number)
        follows = rows["end"][mine[:-1]] == rows["start"][mine[1:]]
        rows["cause"][mine[1:]] = np.where(follows, mine[:-1], NONE)
    return rows


def _streams(p: dict[str, npt.NDArray[Any]]) -> list[tuple[str, int, npt.NDArray[np.int64]]]:
    """The steps of each stream with its name and number; where there is one, "program", with what the host does between."""
    of = np.stack([p["step_gpu"], p["step_stream"]], axis=1)
    kernels = np.unique(of[of[:, 0] > 0], axis=0).tolist()
    if len(kernels) <= 1:
        return [("program", 0, np.arange(len(of)))] if len(of) else []
    one_gpu = len({gpu for gpu, _ in kernels}) == 1
    found = [("program", 0, np.flatnonzero(of[:, 0] == 0))]
    for gpu, stream in kernels:
        name = f"stream {stream}" if one_gpu else f"GPU {gpu - 1}, stream {stream}"
        found.append((name, stream, np.flatnonzero((of[:, 0] == gpu) & (of[:, 1] == stream))))
    return [(name, number, mine) for name, number, mine in found if len(mine)]


def _stalls(p: dict[str, npt.NDArray[Any]], steps: npt.NDArray[np.void], names: int, lanes: LanesFound) -> npt.NDArray[np.void]:
    """What each step waited for: at its end what it did inside, before its beginning what it did before."""
    found = [table(0)]
    for name, _, mine in _streams(p):
        inside, before = (np.stack([p[f"step_{cause}"][mine] for cause in causes], axis=1) for causes in (pl.INSIDE, pl.BEFORE))
        spans = np.concatenate([before, inside], axis=1)
        number = np.append(len(pl.INSIDE) + np.arange(len(pl.BEFORE)), np.arange(len(pl.INSIDE)))
        ends = np.concatenate([_stacked(before, steps["start"][mine]), _stacked(inside, steps["end"][mine])], axis=1)
        step, cause = np.nonzero(spans)
        took, wanted = spans[step, cause], ends[step, cause] - spans[step, cause]
        if not len(step):
            continue
        rows = table(len(step))
        # Rounding may move the end of one beyond the beginning of the next: that one begins later then.
        passed = np.cumsum(took) - took
        rows["start"] = passed + np.maximum.accumulate(wanted - passed)
        rows["end"] = rows["start"] + took
        rows["kind"], rows["name"], rows["op"] = STALL, names + number[cause], steps["op"][mine][step]
        rows["lane"] = lanes.add(f"{name}: stalls", "stall")
        found.append(rows)
    return np.concatenate(found)


def _stacked(spans: npt.NDArray[np.int64], until: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """When each of the spans ends that follow each other up to these moments."""
    behind = spans[:, ::-1].cumsum(1)[:, ::-1] - spans
    ends: npt.NDArray[np.int64] = until[:, None] - behind
    return ends


def _faults(log: PageLog, lanes: LanesFound) -> npt.NDArray[np.void]:
    """Batches of GPUs from fetch to service; faults of the CPU when they came.  Bytes: of the pages that were asked for."""
    batch, asked = log.of(pl.BATCH), log.of(pl.READ, pl.WRITE)
    by_host = np.flatnonzero(asked["processor"] == pl.HOST)
    rows = table(len(batch["time"]) + len(by_host))
    gpu, cpu = rows[: len(batch["time"])], rows[len(batch["time"]) :]
    gpu["kind"], gpu["name"], gpu["bytes"] = FAULT_BATCH, OF_GPU, batch["pages"] * log.page
    gpu["start"], gpu["end"], gpu["device"] = batch["since"], batch["until"], batch["processor"] - 1
    for device in np.unique(gpu["device"]).tolist():
        gpu["lane"][gpu["device"] == device] = lanes.add(f"GPU {device}: faults", "fault", device)
    cpu["kind"], cpu["name"], cpu["bytes"] = HOST_FAULT, OF_CPU, asked["pages"][by_host] * log.page
    cpu["start"] = cpu["end"] = asked["time"][by_host]
    cpu["unit"] = asked["block"][by_host]
    if len(cpu):
        cpu["lane"] = lanes.add("CPU: faults", "fault")
    return rows


def _copies(log: PageLog, lanes: LanesFound) -> npt.NDArray[np.void]:
    """A row for the copies of each service, by direction; the copies that the driver does ahead have no length."""
    copy = log.of(pl.COPY)
    to, source = copy["processor"], copy["source"]
    device = np.where(to != pl.HOST, to, source) - 1
    way = np.where(to == pl.HOST, OUT, np.where(source == pl.HOST, IN, BETWEEN))
    order = np.lexsort((copy["until"], copy["since"], way, device))
    keys = np.stack([device, way, copy["since"], copy["until"]])[:, order]
    first = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(0))) if len(order) else np.zeros(0, np.int64)
    rows = table(len(first))
    if not len(first):
        return rows
    at = order[first]
    rows["device"], rows["name"], rows["start"], rows["end"] = device[at], way[at], copy["since"][at], copy["until"][at]
    rows["bytes"] = np.add.reduceat(copy["pages"][order], first) * log.page
    evicts = np.logical_and.reduceat((copy["cause"] == pl.EVICTION)[order], first)
    rows["kind"] = np.where(evicts, EVICTION, MIGRATION)
    block = copy["block"][order]
    one = np.minimum.reduceat(block, first) == np.maximum.reduceat(block, first)
    rows["unit"] = np.where(one, block[first], NONE)
    for number, direction in np.unique(np.stack([rows["device"], rows["name"]]), axis=1).T.tolist():
        mine = (rows["device"] == number) & (rows["name"] == direction)
        rows["lane"][mine] = lanes.add(f"GPU {number}: {NAMES[direction]}", "copy engine", number)
    return rows


def _counters(result: Result) -> dict[str, Counter]:
    """As the timeline of the result has them: between steps."""
    found = {}
    for name, column in LEVELS.items():
        if column in result.timeline:
            values = np.asarray(result.timeline[column], np.int64)
            found[name] = level(np.asarray(result.timeline["time_ns"], np.int64), np.diff(values, prepend=0))
    return found


def _rates(copies: npt.NDArray[np.void]) -> dict[str, Counter]:
    """Bytes/s by direction, over the time of each service's copies."""
    found = {}
    took = copies["end"] - copies["start"]
    for number, link in enumerate(LINKS):
        at = np.flatnonzero((copies["name"] == number) & (took > 0))
        if len(at):
            rate = np.rint(copies["bytes"][at] * (1e9 / took[at])).astype(np.int64)
            found[link] = level(np.concatenate([copies["start"][at], copies["end"][at]]), np.concatenate([rate, -rate]))
    return found
