"""One run of an experiment under unified memory: a program, a machine and `driver(...)` become a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.engine.pages import account, step_columns, victims
from gpusim.engine.pages.before import footprint, program_of, room
from gpusim.engine.pages.driver_tables import COUNTER, CPU, DEMAND, EXPLICIT, PREFETCH
from gpusim.engine.pages.settings import DRIVER, DriverSettings
from gpusim.engine.pages.simulate import UvmResult, simulate_uvm
from gpusim.engine.pages.tensors import Foreseen, known, launched
from gpusim.engine.pages.timeline import Timeline
from gpusim.machine import platforms
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.machine.profile import Profile
from gpusim.programs.managed.steps import HostTouch, Kernel, ManagedProgram, Start
from gpusim.results.result import FINISHED, HOST_OOM, OOM, Result
from gpusim.trace.workload import F64, Workload

GPU = 1
EVENTS = 1 << 24  # that a log keeps at most


def simulate_unified(
    source: Workload | ManagedProgram,
    profile: Profile,
    *,
    settings: DriverSettings = DRIVER,
    capacity_bytes: int | None = None,
    place: Any = "pytorch",
    seed: int = 0,
    log: bool = False,
) -> Result:
    """Run a managed program, or a recorded one whose allocator takes managed memory, under the driver's rules.

    capacity_bytes  GPU memory for managed pages; None: what the profile's device leaves
    place           the allocator of a recorded program

    Memory that is full and may not be evicted is a result, not an error.  Raises UvmError, ProfileError, PolicyError.
    """
    available = room(source, profile, capacity_bytes)
    program = program_of(source, profile, settings, place, available)
    host = int(profile.host.capacity.value)
    # More chunks than the program has windows stay free: tables for them would be memory wasted.
    platform = platforms.of(profile, min(max(available, BLOCK_BYTES), 2 * program.footprint))
    timeline = Timeline(len(program.steps))
    recorded = known(source, profile) if isinstance(source, Workload) else None
    ran = simulate_uvm(
        program.arrays, program.steps, platform, settings.parameters, evict=settings.evict,
        prefetcher=settings.prefetch, migrate=settings.migrate, own=settings.own, seed=seed + 1, log=EVENTS if log else 0,
        watch=timeline.watch,
    )  # fmt: skip
    rates = {"h2d": platform.link.in_rate, "d2h": platform.link.out_rate}
    numbers = metrics(program, ran, recorded) | _peaks(timeline)
    kept = None
    if log:
        launch = launched(source, profile) - source.duration if isinstance(source, Workload) else None
        kept = {name: ran.log[name].copy() for name in ran.log.dtype.names} | _steps(program, ran, launch, numbers)
    return Result(
        spec={
            "trace": program.name,
            "trace_hash": source.trace.content_hash if isinstance(source, Workload) else source.content_hash,
            "profile": profile.name,
            "oracles": ["unified"] if settings.oracle else [],
            "capacity": available,
            "host_capacity": host,
            "footprint": footprint(source),
            "seed": seed,
            "rates": {**rates, "both": sum(rates.values())},
            "told": ran.told,
            **({"paging": _for_referee(program, ran, settings.evict)} if log else {}),
        },
        outcome=FINISHED if not ran.failed else HOST_OOM if ran.full == "host" else OOM,
        failure={"memory": ran.full, "time_ns": round(ran.ns), "advice": ran.failed} if ran.failed else None,
        metrics=numbers,
        faults=account.of(ran, together=isinstance(source, Workload)),
        pages=kept,
        timeline={name: column.copy() for name, column in timeline.columns.items()},
    )  # fmt: skip


def _peaks(timeline: Timeline) -> dict[str, int | float]:
    """The most that was seen between two steps."""
    names = {
        "allocated_bytes": "resident_peak_bytes", "reserved_bytes": "chunks_peak_bytes",
        "host_bytes": "host_resident_peak_bytes",
    }  # fmt: skip
    return {name: int(timeline.columns[column].max(initial=0)) for column, name in names.items()}


def _for_referee(program: ManagedProgram, ran: UvmResult, evict: str) -> dict[str, Any]:
    """What the referee has to know of a run, beside its log."""
    return {
        "page": ran.platform.page,
        "chunks": 0 if ran.platform.unified else ran.platform.memory // BLOCK_BYTES,
        "whole": not hasattr(victims.module(evict), "PIECES"),
        "processors": len(ran.counts),
        "allocations": [[array.bytes, array.at, array.kind] for array in program.arrays],
        "events": ran.events,
        "began": ran.logged_before,
        "began_ns": ran.began,
    }


def metrics(program: ManagedProgram, ran: UvmResult, recorded: Foreseen | None = None) -> dict[str, int | float]:
    """What the driver and the GPU counted, under the names of results.metrics.

    recorded  what is known of a recorded program: that stands for what the steps made of it, when all of them were carried out
    """
    page, link = ran.platform.page, ran.platform.link
    gpu, cpu = ran.counts[GPU], ran.counts[CPU]
    came = [int(pages) * page for pages in gpu["came"]]
    out = (int(cpu["came"].sum()) + int(gpu["left"])) * page
    makespan = round(ran.ns)
    own = Foreseen(
        {
            "compute_busy_ns": round(float(gpu["busy"])),
            "kernels": sum(isinstance(step, Kernel) for step, _ in _pairs(program, ran)),
            "events": len(ran.steps),
            "host_work_ns": round(sum(r.ns for s, r in _pairs(program, ran) if isinstance(s, HostTouch))),
        }
    )
    about = own if recorded is None or ran.failed else recorded
    stalls = {**_stalls(program, ran), **about.stalls}
    busy = about.metrics["compute_busy_ns"]
    into_link, out_link = sum(came) + about.copied_in, out + about.copied_out
    batches = int(gpu["batches"])
    return {
        "makespan_ns": makespan,
        **about.metrics,
        "compute_idle_share": 1 - busy / (makespan * about.streams) if makespan else 0.0,
        "stall_ns": sum(stalls.values()),
        **stalls,
        "h2d_bytes": sum(came),
        "d2h_bytes": out,
        "h2d_busy_share": into_link / link.in_rate * 1e9 / makespan if makespan else 0.0,
        "d2h_busy_share": out_link / link.out_rate * 1e9 / makespan if makespan else 0.0,
        **_faults(gpu, cpu),
        "demanded_bytes": came[DEMAND],
        "prefetched_bytes": came[PREFETCH],
        "explicit_bytes": came[EXPLICIT],
        "counter_bytes": came[COUNTER],
        "wasted_bytes": int(gpu["wasted"]) * page,
        "evicted_bytes": int(gpu["left"]) * page,
        "evicted_clean_bytes": int(gpu["left_clean"]) * page,
        "refetched_bytes": int(gpu["refetched"]) * page,
        "remote_bytes": int(gpu["remote_bytes"]),
        "touched_bytes": int(gpu["touched_bytes"]),
        "touched_per_s": int(gpu["touched_bytes"]) / makespan * 1e9 if makespan else 0.0,
        "evictions": int(gpu["evictions"]),
        "faults_per_batch": int(gpu["fetched"]) / batches if batches else 0.0,
    }


def _faults(gpu: Any, cpu: Any) -> dict[str, int]:
    """How many faults there were, and what the driver did about them."""
    return {
        "gpu_faults": int(gpu["faults"]),
        "cpu_faults": int(cpu["faults"]),
        "fault_batches": int(gpu["batches"]),
        "fault_duplicates": int(gpu["duplicates"]),
        "faults_dropped": int(gpu["dropped"]),
        "fault_replays": int(gpu["replays"]),
        "throttles": int(gpu["throttled"]) + int(cpu["throttled"]),
        "pins": int(gpu["pinned"]) + int(cpu["pinned"]),
        "fault_service_ns": round(float(gpu["service"] + cpu["service"])),
        "fault_copy_ns": round(float(gpu["copy_in"] + gpu["copy_out"])),
    }


def _stalls(program: ManagedProgram, ran: UvmResult) -> dict[str, int]:
    """What the steps waited for, by cause."""
    found = step_columns.waits(_pairs(program, ran))
    return {f"stall_{cause}_ns": max(round(sum(ns)), 0) for cause, ns in found.items()}


def _steps(program: ManagedProgram, ran: UvmResult, launch: F64 | None, stalls: Mapping[str, Any]) -> dict[str, Any]:
    """The steps with their parts of the stalls; launch: of each operator of a recorded program, ns."""
    pairs = _pairs(program, ran)
    waited: dict[str, Any] = dict(step_columns.waits(pairs))
    if launch is not None and "stall_launch_ns" in stalls:
        operators = np.array([step.operator if isinstance(step, Kernel) else -1 for step, _ in pairs], np.int64)
        waited["launch"] = step_columns.first_of(operators, launch)
    return step_columns.columns(pairs, ran.began, waited, stalls)


def _pairs(program: ManagedProgram, ran: UvmResult) -> step_columns.Pairs:
    return list(zip(_timed(program), ran.steps, strict=False))  # a run that failed has fewer


def _timed(program: ManagedProgram) -> list[Any]:
    """The steps behind the last start."""
    steps = list(program.steps)
    return steps[max((i + 1 for i, step in enumerate(steps) if isinstance(step, Start)), default=0) :]
