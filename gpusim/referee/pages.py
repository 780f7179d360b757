"""Unified memory, recomputed from its log: where every page is after each record, and what that adds up to.

It knows the log's columns (results.page_log) and how a program's allocations lie in windows of 2 MiB, and nothing else of
the driver's model.  The walk over the records is page_walk.py's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.referee import page_columns, page_flows, page_grants
from gpusim.referee import page_walk as w
from gpusim.referee.page_walk import SAYS, walk
from gpusim.referee.report import Findings, Report
from gpusim.results.page_log import (
    BATCH,
    COUNTER,
    DEMAND,
    EXPLICIT,
    HOST,
    INSIDE,
    KERNEL,
    NOTICE,
    PREFETCH,
    READ,
    STALLS,
    WINDOW,
    WRITE,
)
from gpusim.results.result import FINISHED, Result

ROUNDED = 8  # ns: the parts of a step are whole numbers that add up over all steps


def check(result: Result) -> Report:
    """Recompute a run under unified memory from its log; without one, or with one cut short, it is unchecked (ok is None)."""
    log, said = result.pages, result.spec.get("paging")
    if log is None or said is None or said["events"] > len(log["time"]):
        return Report(ok=None)
    found = Findings()
    page = int(said["page"])
    blocks, whole = _blocks(said["allocations"], page)
    whole &= said["whole"]  # some policies evict pieces of chunks, and pack blocks into what is free
    if not page_columns.check(log, said, len(blocks), found):
        return found.report()
    pages = w.pages(log, said, blocks, whole)
    for record, code, x, y in pages.out[: walk(pages)].tolist():
        what, expected = SAYS[code]
        found.say(record, what.format(x=x, y=y), expected)
    found.count("records", len(log["time"]))
    _totals(result, pages.sums, page, found)
    _served(result, found)
    _times(result, found)
    page_flows.check(result, found)
    page_grants.check(result, found)
    return found.report()


def _times(result: Result, found: Findings) -> None:
    """Steps of a stream follow one another within the makespan, what the host does goes beside nothing but streams that it does
    not wait for, and each step lasts for what it waited inside."""
    p = result.pages or {}
    if "step_stream" not in p:
        return
    start, end, gpu = p["step_start"], p["step_end"], p["step_gpu"]
    inside = np.sum([p[f"step_{cause}"] for cause in INSIDE], axis=0)
    makespan = result.metrics["makespan_ns"]
    for step in np.flatnonzero((start < 0) | (end < start) | (end > makespan)).tolist():
        found.say(-1, f"step {step} lasts from {start[step]} to {end[step]} ns", f"a time within the makespan, {makespan} ns")
    for step in np.flatnonzero(inside > end - start + ROUNDED).tolist():
        found.say(-1, f"step {step} waits {inside[step]} ns inside", f"no more than it lasts, {end[step] - start[step]} ns")
    alone = np.flatnonzero(gpu == 0)
    after = p.get("step_after", np.full(len(start), -1))
    streams = np.unique(np.stack([gpu, p["step_stream"]], axis=1)[gpu > 0], axis=0).tolist()
    for of in [*streams, [0, 0]] if (after >= 0).any() else streams:
        mine = np.flatnonzero((gpu == of[0]) & (p["step_stream"] == of[1]))
        order = np.unique(np.concatenate([mine, alone]))
        until = np.maximum.accumulate(end[order])
        waits = (after[order] < 0) | (after[order] >> min(of[1], 62) & 1 > 0) | (of[0] == 0)
        late = order[1:][(start[order[1:]] < until[:-1]) & waits[1:]]
        for step in late.tolist():
            expected = f"behind the step before it on stream {of[1]} of GPU {of[0]}" if of[0] else "behind the host's before"
            found.say(-1, f"step {step} begins at {start[step]} ns", expected)
    found.count("steps", len(start))


def _totals(result: Result, sums: npt.NDArray[np.int64], page: int, found: Findings) -> None:
    """The metrics are what the log adds up to."""
    expected = {
        "gpu_faults": sums[w.FAULTS], "cpu_faults": sums[w.HOST_FAULTS], "fault_batches": sums[w.BATCHES],
        "demanded_bytes": sums[w.IN + DEMAND] * page, "prefetched_bytes": sums[w.IN + PREFETCH] * page,
        "explicit_bytes": sums[w.IN + EXPLICIT] * page, "counter_bytes": sums[w.IN + COUNTER] * page,
        "h2d_bytes": sums[w.IN : w.IN + 5].sum() * page, "d2h_bytes": sums[w.OUT] * page,
        "evicted_bytes": sums[w.EVICTED] * page,
    }  # fmt: skip
    steps = result.pages or {}
    waited = {f"stall_{cause}_ns": int(steps[f"step_{cause}"].sum()) for cause in STALLS if f"step_{cause}" in steps}
    expected |= {name: total for name, total in waited.items() if total or name in result.metrics}
    counted = {**result.metrics, **result.spec["paging"].get("together", {})}  # of all processes that share the memory
    for name, value in expected.items():
        if counted.get(name) != value:
            found.say(-1, f"{name} is {counted.get(name)}", f"{int(value)}, as the log adds up")
    found.count("totals", len(expected))


def _served(result: Result, found: Findings) -> None:
    """Batches fetch as many faults, and take as long, as the run has counted: all of the time where nothing else is served."""
    log, said, counted = result.pages or {}, result.spec["paging"], result.metrics
    if "together" in said or result.outcome != FINISHED or not {"faults_per_batch", "fault_service_ns"} <= counted.keys():
        return
    timed = np.arange(len(log["time"])) >= said["began"]
    batches = timed & (log["kind"] == BATCH)
    fetched, expected = int(log["pages"][batches].sum()), counted["faults_per_batch"] * counted["fault_batches"]
    if abs(fetched - expected) > 0.5:
        found.say(-1, f"the batches fetched {fetched} faults", f"{expected:.0f}, as counted")
    others = timed & ((log["kind"] == NOTICE) | np.isin(log["cause"], (EXPLICIT, COUNTER)))
    others |= timed & np.isin(log["kind"], (READ, WRITE)) & (log["processor"] == HOST)
    kernels = "step_kind" in log and bool(((log["step_kind"] == KERNEL) & (log["step_op"] < 0)).all())
    most = others.any() or not kernels  # a prefetch that finds all pages there has no record, and takes time
    took, service = float((log["until"] - log["since"])[batches].sum()), counted["fault_service_ns"]
    if took > service + ROUNDED or (not most and took < service - ROUNDED):
        expected_ns = f"{service} ns{' at most' if most else ''}, as counted"
        found.say(-1, f"the batches were served for {took:.0f} ns", expected_ns)
    found.count("batches", int(batches.sum()))


def _blocks(allocations: Any, page: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pages of each block, and whether it takes a chunk of its own: the allocations begin in windows one after another."""
    pages, whole = [], []
    for size, at, kind in allocations:
        for window in range(-(-(at + size) // WINDOW)):
            first = max(at - window * WINDOW, 0) // page
            end = -(-min(at + size - window * WINDOW, WINDOW) // page)
            pages.append(end - first)
            whole.append(end - first == WINDOW // page and kind == "managed")
    return np.array(pages, np.int64), np.array(whole, np.int64)
