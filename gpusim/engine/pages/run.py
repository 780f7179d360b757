"""One run of an experiment under unified memory: a program, a machine and `driver(...)` become a result."""

from __future__ import annotations

from typing import Any

from gpusim.engine.pages import account, prefetchers, victims
from gpusim.engine.pages.before import footprint, program_of, room
from gpusim.engine.pages.settings import DRIVER, Settings
from gpusim.engine.pages.simulate import UvmResult, simulate_uvm
from gpusim.engine.pages.tables import COUNTER, CPU, DEMAND, EXPLICIT, PREFETCH
from gpusim.engine.pages.tensors import known
from gpusim.engine.pages.timeline import Timeline
from gpusim.machine import platforms
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.machine.profile import Profile
from gpusim.programs.managed.program import HostTouch, Kernel, ManagedProgram, Prefetch, Start
from gpusim.results.result import FINISHED, HOST_OOM, OOM, Result
from gpusim.trace.workload import Workload

GPU = 1
EVENTS = 1 << 24  # that a log keeps at most


def simulate_unified(
    source: Workload | ManagedProgram,
    profile: Profile,
    *,
    settings: Settings = DRIVER,
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
    program = program_of(source, profile, settings, place)
    host = int(profile.host.capacity.value)
    # More chunks than the program has windows stay free: tables for them would be memory wasted.
    platform = platforms.of(profile, min(max(available, BLOCK_BYTES), 2 * program.footprint))
    timeline = Timeline(len(program.steps))
    ran = simulate_uvm(
        program.arrays, program.steps, platform, settings.parameters, evict=settings.evict,
        prefetcher=settings.prefetch, seed=seed + 1, log=EVENTS if log else 0, watch=timeline.watch,
    )  # fmt: skip
    peak = {name: int(column.max(initial=0)) for name, column in timeline.columns.items()}
    rates = {"h2d": platform.link.in_rate, "d2h": platform.link.out_rate}
    return Result(
        spec={
            "trace": program.name,
            "trace_hash": source.trace.content_hash if isinstance(source, Workload) else source.content_hash,
            "profile": profile.name,
            "oracles": ["unified"] if settings.evict in victims.ORACLES or settings.prefetch in prefetchers.ORACLES else [],
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
        metrics=_with(metrics(program, ran), known(source, profile) if isinstance(source, Workload) else {}) | {
            f"{name}_peak_bytes": peak[f"{name}_bytes"] for name in ("allocated", "reserved", "host")
        },
        faults=account.of(ran, together=isinstance(source, Workload)),
        pages={name: ran.log[name].copy() for name in ran.log.dtype.names} if log else None,
        timeline={name: column.copy() for name, column in timeline.columns.items()},
    )  # fmt: skip


def _with(found: dict[str, int | float], known: dict[str, int | float]) -> dict[str, int | float]:
    """The metrics of a recorded program: what is known of it stands for what the steps made of it."""
    found |= known
    found["stall_ns"] = sum(value for name, value in found.items() if name.startswith("stall_") and name != "stall_ns")
    found["compute_idle_share"] = 1 - found["compute_busy_ns"] / found["makespan_ns"] if found["makespan_ns"] else 0.0
    return found


def _for_referee(program: ManagedProgram, ran: UvmResult, evict: str) -> dict[str, Any]:
    """What the referee has to know of a run, beside its log."""
    return {
        "page": ran.platform.page,
        "chunks": 0 if ran.platform.unified else ran.platform.memory // BLOCK_BYTES,
        "whole": not hasattr(victims.POLICIES[evict], "PIECES"),
        "processors": len(ran.counts),
        "allocations": [[array.bytes, array.at, array.kind] for array in program.arrays],
        "events": ran.events,
        "began": ran.logged_before,
    }


def metrics(program: ManagedProgram, ran: UvmResult) -> dict[str, int | float]:
    """What the driver and the GPU counted, under the names of results.metrics."""
    page, link = ran.platform.page, ran.platform.link
    gpu, cpu = ran.counts[GPU], ran.counts[CPU]
    came = [int(pages) * page for pages in gpu["came"]]
    into = sum(came)
    out = (int(cpu["came"].sum()) + int(gpu["left"])) * page
    makespan, busy = round(ran.ns), round(float(gpu["busy"]))
    stalls = _stalls(program, ran)
    batches = int(gpu["batches"])
    return {
        "makespan_ns": makespan,
        "compute_busy_ns": busy,
        "compute_idle_share": 1 - busy / makespan if makespan else 0.0,
        "stall_ns": sum(stalls.values()),
        **stalls,
        "kernels": sum(isinstance(step, Kernel) for step in _timed(program)),
        "events": len(ran.steps),
        "h2d_bytes": into,
        "d2h_bytes": out,
        "h2d_busy_share": min(1.0, into / link.in_rate * 1e9 / makespan) if makespan else 0.0,
        "d2h_busy_share": min(1.0, out / link.out_rate * 1e9 / makespan) if makespan else 0.0,
        "host_work_ns": round(sum(r.ns for s, r in _pairs(program, ran) if isinstance(s, HostTouch))),
        "gpu_faults": int(gpu["faults"]),
        "cpu_faults": int(cpu["faults"]),
        "fault_batches": batches,
        "faults_per_batch": int(gpu["fetched"]) / batches if batches else 0.0,
        "fault_duplicates": int(gpu["duplicates"]),
        "faults_dropped": int(gpu["dropped"]),
        "fault_replays": int(gpu["replays"]),
        "throttles": int(gpu["throttled"]) + int(cpu["throttled"]),
        "pins": int(gpu["pinned"]) + int(cpu["pinned"]),
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
        "fault_service_ns": round(float(gpu["service"] + cpu["service"])),
        "fault_copy_ns": round(float(gpu["copy_in"] + gpu["copy_out"])),
    }


def _stalls(program: ManagedProgram, ran: UvmResult) -> dict[str, int]:
    """What kernels waited for: pages to come (faults, remote accesses, prefetches), pages to leave, and the host."""
    into, out, host = 0.0, 0.0, 0.0
    for step, result in _pairs(program, ran):
        counts = result.counts[GPU]
        if isinstance(step, Kernel):
            leaving = float(counts["copy_out"])
            out += leaving
            into += result.ns - float(counts["busy"]) - leaving
        elif isinstance(step, Prefetch) and step.to == CPU:
            out += result.ns
        elif isinstance(step, Prefetch):
            into += result.ns
        else:
            host += result.ns
    return {"stall_swap_in_ns": round(into), "stall_swap_out_ns": round(out), "stall_sync_ns": round(host)}


def _pairs(program: ManagedProgram, ran: UvmResult) -> Any:
    return zip(_timed(program), ran.steps, strict=False)  # a run that failed has fewer


def _timed(program: ManagedProgram) -> list[Any]:
    """The steps behind the last start."""
    steps = list(program.steps)
    return steps[max((i + 1 for i, step in enumerate(steps) if isinstance(step, Start)), default=0) :]
