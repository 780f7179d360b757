"""Results made by hand for the tests of figures and tables: the numbers are round, nothing is simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.results import fault_picture as picture
from gpusim.results import faults as report
from gpusim.results.log import CREATE, LOG, PLACE, RESERVE, UNPLACE
from gpusim.results.ranks import of_all
from gpusim.results.result import Result

GIB = 2**30
MS = 1_000_000


def run(evict="lru", memory=8 * GIB, slowdown=1.5, outcome="finished", oracle=(), timeline=True, log=None, **spec):
    """A run of 100 ms without limit, `slowdown` times as long here; half of what it loses is swap-in."""
    makespan = round(100 * MS * slowdown)
    lost = makespan - 100 * MS
    metrics = {
        "makespan_ns": makespan,
        "compute_busy_ns": 90 * MS,
        "stall_ns": lost + 10 * MS,
        "stall_swap_in_ns": lost // 2,
        "stall_swap_out_ns": lost // 4,
        "stall_alloc_ns": lost - lost // 2 - lost // 4,
        "stall_launch_ns": 10 * MS,
        "stall_sync_ns": 0,
        "stall_event_ns": 0,
        "h2d_bytes": round((slowdown - 1) * 4 * GIB),
        "d2h_bytes": round((slowdown - 1) * 3 * GIB),
        "requested_peak_bytes": min(memory, 7 * GIB),
        "allocated_peak_bytes": min(memory, 8 * GIB),
        "reserved_peak_bytes": memory,
        "frag_internal": 0.05,
        "frag_utilisation": 0.8,
        "frag_external": 0.4,
        "frag_failures": 3,
        "ooms": int(outcome != "finished"),
    }
    failure = None
    if outcome != "finished":
        failure = {
            "memory": "hbm",
            "request": 2 * GIB,
            "free": 3 * GIB,
            "largest": GIB,
            "op": 17,
            "advice": "Use more.",
        }
    time = np.linspace(0, makespan, 50).astype(np.int64)
    shape = np.sin(np.linspace(0, np.pi, 50))
    columns = {
        "time_ns": time,
        "op": np.arange(50),
        "requested_bytes": (shape * min(memory, 7 * GIB)).astype(np.int64),
        "allocated_bytes": (shape * min(memory, 7.5 * GIB)).astype(np.int64),
        "reserved_bytes": np.maximum.accumulate((shape * memory).astype(np.int64)),
        "host_bytes": np.maximum(0, (shape - 0.7) * 6 * GIB).astype(np.int64),
    }
    return Result(
        spec={
            "trace": "gpt2", "trace_hash": "00", "profile": "A100", "place": "pytorch", "evict": evict,
            "prefetch": "none", "memory": memory, "capacity": memory, "seed": 0, "oracle": list(oracle), **spec,
        },
        outcome=outcome,
        metrics=metrics,
        failure=failure,
        timeline=columns if timeline else {},
        log=log,
        bounds={"bound_no_limit_ns": 100 * MS, "bound_swap_in_bytes": GIB},
    )  # fmt: skip


def faulting(evict="lru", makespan=10 * MS, **spec):
    """A run under unified memory: two allocations of four blocks; the first came twice, its first half was evicted between."""
    mib = 2**20
    nothing = dict.fromkeys(report.FAULTS, 0)
    none = dict.fromkeys(report.CAUSES, 0)
    pages = np.zeros((4, 8, 10), np.int64)
    pages[picture.CAME, :4, 1] = pages[picture.EVICTED, :2, 5] = pages[picture.CAME, :2, 8] = 512
    pages[picture.FAULTED, :4, 1] = pages[picture.FAULTED, 0, 8] = 6
    pages[picture.FAULTED, 1, 8] = 300
    b = report.AllocationFaults("b", 8 * mib, 8 * mib, nothing, none, none, 0, 0, 0, 0, 0, 0, 0, 0.0)
    a = replace(
        b, name="a", first=0, faults=nothing | {"gpu_reads": 330, "faults_again": 306}, went=none | {"eviction": 4 * mib},
        came=none | {"demand": 324 * 4096, "prefetch": 12 * mib - 324 * 4096}, again=4 * mib, evicted_clean=4 * mib,
        service_ns=5e6, swept=1,
    )  # fmt: skip
    counts = {"duplicates": 10, "satisfied": 0, "dropped": 0, "replays": 9, "passes": 1, "evictions": 2}
    times = {"gpu": 1e6, "remote": 0.0, "cpu": 0.0, "driver": 4e6, "copy_in": 3e6, "copy_out": makespan - 8e6, "waited": 0.0}
    found = report.FaultReport(
        makespan, 6 * mib, 16 * mib, times, [(1, 6), (12, 2), (310, 1)], counts, [a, b],
        picture=picture.Picture(pages, np.zeros((4, 8), np.int64), makespan / 10, 2 * mib, 4096),
    )  # fmt: skip
    return replace(run(evict, unified="driver", **spec), faults=found)


def sweep(**spec):
    """Five policies at four memory sizes; random runs out of memory at 4 GiB, clock ties with lru."""
    runs = []
    for memory, lost in ((4 * GIB, 1.0), (6 * GIB, 0.5), (8 * GIB, 0.2), (10 * GIB, 0.0)):
        for evict, factor in (("lru", 0.8), ("clock", 0.8), ("sieve", 0.6), ("random", 1.2)):
            failed = evict == "random" and memory == 4 * GIB
            runs.append(run(evict, memory, 1 + factor * lost, "oom" if failed else "finished", **spec))
        runs.append(run("belady", memory, 1 + 0.3 * lost, oracle=["belady"], **spec))
    return runs


def heap_log():
    """One segment of 8 GiB over 100 ms: eight blocks of 1 GiB, every second one freed at 40 ms: 4 GiB in four holes."""
    rows = [(0, RESERVE, -1, 0, 0, 8 * GIB)]
    for unit in range(8):
        rows.append((unit * MS, CREATE, unit, -1, -1, GIB))
        rows.append((unit * MS, PLACE, unit, 0, unit * GIB, GIB))
    rows += [(40 * MS, UNPLACE, unit, 0, unit * GIB, GIB) for unit in range(0, 8, 2)]
    return np.array(rows, LOG)


def rank_of_run(held, capacity=10 * GIB):
    """One that holds so many bytes from 0, 1, 2 ms on, to 4 ms."""
    time = np.arange(len(held)) * MS
    spec = {"trace": "made", "profile": "dgx-1-v100", "capacity": capacity, "parallel": "data=4"}
    levels = ("reserved_bytes", "allocated_bytes", "requested_bytes", "host_bytes")
    timeline = {"time_ns": time, "op": np.arange(len(held)), **dict.fromkeys(levels, np.array(held))}
    return Result(spec, "finished", {"makespan_ns": 4 * MS, "reserved_peak_bytes": max(held)}, timeline=timeline)


def ranked(**said):
    """Three equal ranks and one that holds more."""
    made = of_all([rank_of_run([GIB, 2 * GIB])] * 3 + [rank_of_run([GIB, 5 * GIB, 4 * GIB], 8 * GIB)])
    return replace(made, spec={**made.spec, **said})
