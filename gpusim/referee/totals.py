"""The metrics of a result against what its log adds up to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gpusim.referee.activities import NEVER, ActivityTimes
from gpusim.referee.rates import remote
from gpusim.referee.records import Records
from gpusim.referee.report import Findings
from gpusim.referee.tiers import INTO, Tiers
from gpusim.results.log import ISSUE, OOM
from gpusim.results.metrics import METRICS
from gpusim.results.result import Result
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, I64, KERNEL, NVME_READ, NVME_WRITE, Trace

# A host call that is recorded when it begins may end this much later, ns: the longest are device calls.
LAST_CALL = 50_000_000

# What the log does not decide, but all runs have.
UNSEEN = ("frag_external", "frag_failures")
OF_TIERS = ("_in_bytes", "_out_bytes")  # of runs with more tiers than the host's
OF_PROGRAM = ("kernel_", "recorded_ns", "duration_error")  # of runs that come from an experiment

# Metric -> entry of the ledger that it must equal.
SAME = {
    "kernels": "kernels", "swap_ins": "copies_in", "swap_outs": "copies_out", "clean_drops": "drops",
    "h2d_bytes": "bytes_in", "d2h_bytes": "bytes_out", "device_allocs": "reserves", "device_frees": "releases",
    "moved_bytes": "moved_bytes",
    "ooms": "ooms",
    "allocated_current_bytes": "allocated_now", "allocated_peak_bytes": "allocated_peak",
    "allocated_total_bytes": "allocated_total", "requested_current_bytes": "requested_now",
    "requested_peak_bytes": "requested_peak", "requested_total_bytes": "requested_total",
    "reserved_current_bytes": "reserved_now", "reserved_peak_bytes": "reserved_peak",
}  # fmt: skip


def totals(
    result: Result, log: Records, acts: ActivityTimes, trace: Trace, tiers: Tiers,
    ledger: Mapping[str, int], timed: Mapping[str, int | float], found: Findings,
) -> None:
    """Every metric that the log determines, recomputed; `timed`: those that follow from times.check."""
    expected: dict[str, int | float] = {name: ledger[entry] for name, entry in SAME.items()}
    for m, kind in enumerate(tiers.kinds, 1):
        for way in ("in", "out", "peak"):
            name = f"{kind}_{way}_bytes"
            expected[name] = expected.get(name, 0) + ledger[f"{way} {m}"]
    if ledger["reserves"] == 0:  # an allocator that holds all from the start makes no calls
        del expected["reserved_current_bytes"], expected["reserved_peak_bytes"]
    elif ledger["reserved_peak"]:
        expected["frag_utilisation"] = ledger["requested_peak"] / ledger["reserved_peak"]
    if ledger["allocated_peak"]:
        expected["frag_internal"] = 1.0 - ledger["requested_at_peak"] / ledger["allocated_peak"]
    if result.finished:
        expected["events"] = trace.events
        expected |= _times(result, acts, trace, tiers)
    expected |= timed
    if "recorded_device_ns" in timed:
        expected |= _beside_recording(acts, int(timed["recorded_device_ns"]) if result.finished else 0)
    causes = [value for name, value in result.metrics.items() if name.startswith("stall_") and name != "stall_ns"]
    if causes and result.metrics.get("stall_ns") != sum(causes):
        found.say(-1, f"metric stall_ns is {result.metrics.get('stall_ns')}", "the sum of its causes")
    if "makespan_ns" in timed:
        _absent(result, expected, found)
    for name, value in expected.items():
        if name in result.metrics:
            found.count("metrics", 1)
            claimed = result.metrics[name]
            exact = isinstance(value, int)  # counts, bytes and ns are exact; shares went through floats
            if claimed != value if exact else not math.isclose(claimed, value, rel_tol=1e-9, abs_tol=1e-12):
                found.say(-1, f"metric {name} is {claimed}", f"{value}, as the log adds up")
    _makespan(result, log, acts, trace, found)
    _ending(result, log, ledger["allocated_now"], found)


def _absent(result: Result, expected: Mapping[str, int | float], found: Findings) -> None:
    """Every run has its metrics, but for those that its trace does not answer, and counts of what cannot happen in it."""
    spec = result.spec
    unanswered = set(spec.get("unanswered", ()))
    for name in (*expected, *UNSEEN):
        if "transform" not in spec and name.startswith(OF_PROGRAM):  # a bare simulation has nothing of those
            continue
        counted = expected.get(name, 1) != 0 and not ("tiers" not in spec and name.endswith(OF_TIERS))
        if counted and name not in result.metrics and not unanswered & set(METRICS[name].needs):
            found.say(-1, f"there is no metric {name}", f"{expected.get(name, 'one')}, as of any such run")


def _times(result: Result, acts: ActivityTimes, trace: Trace, tiers: Tiers) -> dict[str, int | float]:
    """Busy and stalled time of the streams with kernels, the program's transfers, and what follows from the makespan."""
    operator = acts.op >= 0
    activity = np.append(trace.activity, 255)[acts.op]  # the last of them for swaps, -1
    took = acts.end - acts.start
    copied = {name: np.isin(activity, codes) for name, codes in (
        ("h2d", COPY_IN), ("d2h", COPY_OUT), ("peer", (COLLECTIVE, COPY_PEER)), ("read", NVME_READ), ("written", NVME_WRITE),
    )}  # fmt: skip
    moved = {name: int(acts.size[at].sum()) for name, at in copied.items()}
    kernel = operator & (activity == KERNEL)
    streams = np.unique(acts.queue[kernel]) if kernel.any() else np.zeros(1, np.int64)
    last = np.zeros(int(acts.queue.max(initial=0)) + 1, np.int64)
    np.maximum.at(last, acts.queue[operator], acts.end[operator])
    busy = int(took[kernel].sum())
    out: dict[str, int | float] = {
        "compute_busy_ns": busy,
        # Up to its last operator, a stream stands still when it runs none.
        "stall_ns": int(last[streams].sum()) - int(took[operator & np.isin(acts.queue, streams)].sum()),
        "program_h2d_bytes": moved["h2d"],
        "program_d2h_bytes": moved["d2h"],
        "collective_bytes": moved["peer"],
        "nvme_read_bytes": moved["read"],
        "nvme_written_bytes": moved["written"],
        "program_copies_shared": sum(_beside(acts, np.flatnonzero(activity == kind)) for kind in (COPY_IN, COPY_OUT)),
        "program_transfer_ns": int(took[np.logical_or.reduce(list(copied.values()))].sum()),
        "host_work_ns": int(took[activity == HOST_WORK].sum()),
    }
    makespan = result.metrics.get("makespan_ns", 0)
    if makespan > 0:
        out["compute_idle_share"] = 1.0 - busy / (makespan * len(streams))
        swap = ~operator & ~acts.cancelled & ~tiers.is_recall(acts.copy)
        out["swaps_per_s"] = int(swap.sum()) / (makespan / 1e9)
        to_device, by_kernels = acts.copy & 255 == 0, remote(acts, trace, tiers)
        out["zero_copy_read_bytes"], out["zero_copy_written_bytes"] = (int(moved.sum()) for moved in by_kernels)
        for way, (name, tier) in enumerate((("h2d", acts.copy >> 8 & 255), ("d2h", acts.copy & 255))):
            rate = result.spec.get("rates", {}).get(name)
            if rate:
                passing = [m for m, routes in enumerate(tiers.routes, 1) if name in routes[way]]
                swaps = (acts.copy >= 0) & (to_device == (way == INTO)) & np.isin(tier, passing) & ~tiers.is_recall(acts.copy)
                swapped = int(acts.size[swaps].sum()) + int(by_kernels[way].sum()) * (name in tiers.routes[0][way])
                out[f"{name}_busy_share"] = (swapped + moved[name]) / (rate / 1e9 * makespan)
    return out


def _beside_recording(acts: ActivityTimes, recorded: int) -> dict[str, int | float]:
    """From the first start of an operator to the last end, where the recording says the same of itself, ns."""
    operator = acts.op >= 0
    here = int(acts.end[operator].max() - acts.start[operator].min()) if recorded and operator.any() else 0
    return {"device_ns": here, "recorded_device_ns": recorded}


def _beside(acts: ActivityTimes, rows: I64) -> int:
    """How many of these activities start while another of them runs."""
    record = np.concatenate([acts.start_record[rows], acts.end_record[rows]])
    step = np.repeat([1, -1], len(rows))[np.argsort(record, kind="stable")]
    return int(((step > 0) & (np.cumsum(step) > 1)).sum())


def _makespan(result: Result, log: Records, acts: ActivityTimes, trace: Trace, found: Findings) -> None:
    """The run ends with its last activity, or with the host's last call, whichever is later."""
    if "makespan_ns" not in result.metrics:
        return
    claimed = result.metrics["makespan_ns"]
    ended = acts.end[acts.end < NEVER]
    last = max(int(log["t"][-1]) if len(log) else 0, int(ended.max(initial=0)))
    latest = max(last, int(trace.time.max(initial=0))) + LAST_CALL
    found.count("metrics", 1)
    if not last <= claimed <= latest:
        found.say(-1, f"metric makespan_ns is {claimed}", f"{last}, when the last record of the log was made")


def _ending(result: Result, log: Records, allocated: int, found: Findings) -> None:
    """A run that ran out of a memory says so in its log, last."""
    at = np.flatnonzero(log["kind"] == OOM)
    below = {"oom": False, "host_oom": True}.get(result.outcome)
    if below is None:
        if len(at):
            found.say(at[0], "the log ends out of memory", f"a log of a run with outcome '{result.outcome}'")
    elif not len(at) or (log["b"][at[-1]] > 0) != below:
        found.say(-1, f"outcome '{result.outcome}' without a record of it", "a last record 'oom' of that memory")
    elif result.failure:
        _failure(result, log, int(at[-1]), allocated, found)


def _failure(result: Result, log: Records, at: int, allocated: int, found: Findings) -> None:
    """What did not fit, and when, is what the last record says; free is what no block holds."""
    failure, on_device = result.failure or {}, log["b"][at] == 0
    issued = log["a"][:at][log["kind"][:at] == ISSUE]
    expected = {"request": log["bytes"][at], "time_ns": log["t"][at], "op": issued[-1] if len(issued) else 0}
    if "grain" not in result.spec:  # else the failure names the tensor, and the record a chunk of it
        expected["tensor"] = log["a"][at]
    if on_device:
        expected |= {"largest": log["addr"][at], "free": int(result.spec.get("capacity", 0)) - allocated}
    for name, value in expected.items():
        if failure.get(name, value) != value:
            found.say(at, f"the failure's {name} is {failure[name]}", f"{value}, as the log has it")
