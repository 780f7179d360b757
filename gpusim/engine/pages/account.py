"""From the counters of a run under unified memory to its fault report."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.engine.pages.simulate import StepResult, UvmResult, occupied
from gpusim.programs.managed.layout import Span
from gpusim.results.fault_picture import Picture
from gpusim.results.faults import FAULTS, TIMES, Activity, AllocationFaults, FaultReport, merged, ranked
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
            for name in (
                "touches", "batches", "fetched", "duplicates", "satisfied", "dropped", "replays", "passes", "evictions",
                "touched_bytes",
            )
        },
        allocations=ranked(allocations),
        steps=_steps(result),
        told=list(result.told),
        beside=_beside(result),
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
        cpu_service_ns=float(seen["cpu_service"]),
        swept=picture.swept(span.first, span.bytes),
    )


def _times(result: UvmResult) -> dict[str, float]:
    """Where the makespan went.  Time in which several kernels are on GPUs is divided among them, by how long each of them is;
    so is that in which kernels run beside the CPU.

    Of copies it is what no work hides, of a kernel what it stands for; the rest of that is the driver's.
    """
    kernels, hosts = [step for step in result.steps if step.gpu], [step for step in result.steps if not step.gpu]
    counts, host = [step.counts for step in kernels], [step.counts for step in hosts]
    stood, ran = sum(step.stalled for step in kernels), sum(step.ns for step in kernels)
    lagged, waited = _sum(counts, "lagged"), _sum(counts, "waited")
    copies = min(_sum(counts, "copy_wait"), max(stood - waited, 0.0))
    share, beside = occupied(kernels) / ran if ran else 0.0, _divided(kernels, hosts)
    lagged = min(lagged, max(ran - stood, 0.0))
    parts = {
        "gpu": share * (ran - stood - lagged), "remote": share * lagged, "cpu": _sum(host, "busy"),
        "copies": share * copies + _sum(host, "copy_wait"), "waited": share * waited + _sum(host, "waited"),
    }  # fmt: skip
    served = sum(step.ns for step in hosts) - sum(_sum(host, name) for name in ("busy", "copy_wait", "waited"))
    parts["driver"], parts["for_cpu"] = share * (stood - copies - waited), served
    moved = {way: float(result.counts[way].sum()) for way in ("copy_in", "copy_out")}
    times = dict.fromkeys(TIMES, 0.0)
    for name, ns in ((name, ns * beside) for name, ns in parts.items()):
        for way, part in moved.items() if name == "copies" else ():
            times[way] = ns * part / max(sum(moved.values()), 1.0)
        if name != "copies":
            times[name] = max(ns, 0.0)
    times["idle"] = max(result.ns - sum(times.values()), 0.0)
    return times


def _divided(kernels: list[StepResult], hosts: list[StepResult]) -> float:
    """By how much less the time is in which there are kernels or steps of the host than what they have apart."""
    apart = occupied(kernels) + sum(step.ns for step in hosts)
    return occupied([*kernels, *hosts]) / apart if apart else 1.0


def _sum(counts: list[Any], name: str) -> float:
    return float(sum(count[name].sum() for count in counts))


def _beside(result: UvmResult) -> dict[str, float]:
    """What went on side by side: times of kernels, added up over kernels, and the time in which there was any; copies, and what
    of them lay beside work."""
    kernels, found = [step for step in result.steps if step.gpu], dict[str, float]()
    hosts = [step for step in result.steps if not step.gpu]
    ran, any_of_them = sum(step.ns for step in kernels), occupied(kernels)
    both = any_of_them + sum(step.ns for step in hosts) - occupied(result.steps)
    if ran - any_of_them >= 1.0:
        stood = sum(step.stalled for step in kernels)
        found = {"kernels": ran, "working": ran - stood, "standing": stood, "any": any_of_them}
    if both >= 1.0:
        found["cpu"] = both
    copies = float(result.counts["copy_in"].sum() + result.counts["copy_out"].sum())
    hidden = copies - _sum([step.counts for step in result.steps], "copy_wait")
    return found | ({"copies": copies, "hidden": hidden} if hidden >= 1.0 else {})


def _steps(result: UvmResult) -> list[Activity]:
    found: dict[str, Activity] = {}
    for step in result.steps:
        before = found.get(step.name, Activity(step.name, 0, 0.0, 0, 0))
        found[step.name] = Activity(
            step.name, before.times + 1, before.ns + step.ns, before.faults + int(step.counts["faults"].sum()),
            before.again + int(step.counts["refetched"].sum()) * result.platform.page,
        )  # fmt: skip
    return sorted(found.values(), key=lambda a: -a.ns)
