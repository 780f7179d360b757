"""From the counters of a run under unified memory to its fault report."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.engine.pages.simulate import UvmResult
from gpusim.programs.managed.layout import Span
from gpusim.results.fault_picture import Picture
from gpusim.results.faults import FAULTS, Activity, AllocationFaults, FaultReport, merged, ranked
from gpusim.results.page_log import CAUSES


def of(result: UvmResult, together: bool = False) -> FaultReport:
    """The report of a run.

    together  allocations "parameter_0", "parameter_1", ... are one, "parameter_*", as advice may name them
    """
    page = result.platform.page
    gpus = result.counts[1:]
    fetched = result.batch_sizes[1:].sum(0)
    each = zip(result.spans.items(), result.ranges, strict=True)
    allocations = [_allocation(name, span, seen, page, result.picture) for (name, span), seen in each]
    if together:
        allocations = merged(allocations, result.picture)
    return FaultReport(
        makespan_ns=result.ns,
        memory_bytes=result.platform.memory,
        footprint_bytes=sum(a.bytes for a in allocations),
        times=_times(result),
        batches=[(int(size), int(fetched[size])) for size in np.flatnonzero(fetched)],
        counts={
            name: int(gpus[name].sum())
            for name in ("touches", "duplicates", "satisfied", "dropped", "replays", "passes", "evictions", "touched_bytes")
        },
        allocations=ranked(allocations),
        steps=_steps(result),
        told=list(result.told),
        failed=result.failed,
        picture=result.picture,
    )


def _allocation(name: str, span: Span, seen: Any, page: int, picture: Picture) -> AllocationFaults:
    return AllocationFaults(
        name=name,
        first=span.first,
        bytes=span.bytes,
        faults={kind: int(seen[kind]) for kind in FAULTS},
        came={cause: int(n) * page for cause, n in zip(CAUSES, seen["came"], strict=True)},
        went={cause: int(n) * page for cause, n in zip(CAUSES, seen["went"], strict=True)},
        zeroed=int(seen["zeroed"]) * page,
        again=int(seen["refetched"]) * page,
        ping_pong=int(seen["ping_pong"]) * page,
        wasted=int(seen["wasted"]) * page,
        evicted_clean=int(seen["left_clean"]) * page,
        remote=int(seen["remote_bytes"]),
        pinned=int(seen["pinned"]),
        service_ns=float(seen["service"]),
        swept=picture.swept(span.first, span.bytes),
    )


def _times(result: UvmResult) -> dict[str, float]:
    """Where the makespan went; of copies, what no work hides.  What is left is the driver's: batches, faults, page tables."""
    gpus, cpu = result.counts[1:], result.counts[0]
    waited = float(result.counts["copy_wait"].sum())
    copies = float((result.counts["copy_in"] + result.counts["copy_out"]).sum())
    times = {
        "gpu": float(gpus["busy"].sum()),
        "remote": float(gpus["lagged"].sum()),
        "cpu": float(cpu["busy"]),
        "driver": 0.0,
        "copy_in": waited * float(result.counts["copy_in"].sum()) / max(copies, 1.0),
        "copy_out": waited * float(result.counts["copy_out"].sum()) / max(copies, 1.0),
        "waited": float(result.counts["waited"].sum()),
    }
    times["driver"] = max(result.ns - sum(times.values()), 0.0)
    return times


def _steps(result: UvmResult) -> list[Activity]:
    found: dict[str, Activity] = {}
    for step in result.steps:
        before = found.get(step.name, Activity(step.name, 0, 0.0, 0, 0))
        found[step.name] = Activity(
            step.name, before.times + 1, before.ns + step.ns, before.faults + int(step.counts["faults"].sum()),
            before.again + int(step.counts["refetched"].sum()) * result.platform.page,
        )  # fmt: skip
    return sorted(found.values(), key=lambda a: -a.ns)
