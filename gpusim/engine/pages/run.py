"""One run of an experiment under unified memory: a program, a machine and `driver(...)` become a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.engine.pages import account, device_memory, page_tables, raster, recorded, step_columns, traffic, victims
from gpusim.engine.pages.before import between, footprint, program_of, room
from gpusim.engine.pages.driver_tables import COUNTER, CPU, DEMAND, EXPLICIT, PREFETCH
from gpusim.engine.pages.settings import DRIVER, DriverSettings
from gpusim.engine.pages.simulate import StepResult, UvmResult, fits, memory, simulate_uvm
from gpusim.engine.pages.step_columns import of_gpus
from gpusim.engine.pages.tensors import Foreseen, known
from gpusim.engine.pages.timeline import Timeline
from gpusim.engine.run import outcome
from gpusim.engine.run.simulate import Simulation
from gpusim.engine.run.simulate import prepared as run_of
from gpusim.engine.state import NEVER
from gpusim.machine import platforms, sharing
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.machine.platforms import Platform
from gpusim.machine.profile import Profile
from gpusim.machine.topology.topology import Topology
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import HostTouch, Kernel, ManagedProgram, Start, Wait, gpus_of
from gpusim.results.page_log import BEFORE, COPY, NOTICE
from gpusim.results.result import FINISHED, HOST_OOM, OOM, Result
from gpusim.trace.trace import HOST_WORK, MOVES, OP
from gpusim.trace.workload import Workload

EVENTS = 1 << 24  # that a log keeps at most


def simulate_unified(
    source: Workload | ManagedProgram,
    profile: Profile,
    *,
    settings: DriverSettings = DRIVER,
    capacity_bytes: int | None = None,
    place: Any = "pytorch",
    share: Any = sharing.WORDS,
    active_thread_percentage: int = 100,
    seed: int = 0,
    log: bool = False,
    machine: Topology | None = None,
) -> Result:
    """Run a managed program, or a recorded one whose allocator takes managed memory, under the driver's rules.

    capacity_bytes  GPU memory for managed pages; None: what the profile's device leaves
    place           the allocator of a recorded program
    share           what the activities of a recorded program share, words of `gpusim.machine.sharing`
    active_thread_percentage  of the multiprocessors, what its kernels may use together
    machine         whose first GPUs a managed program of several has, with the links that they share; None: each its own way

    Memory that is full and may not be evicted is a result, not an error.  Raises UvmError, ProfileError, PolicyError.
    """
    available = room(source, profile, capacity_bytes)
    program = program_of(source, profile, settings, place, available)
    # More chunks than the program has windows stay free: tables for them would be memory wasted.
    platform = platforms.of(profile, min(max(available, BLOCK_BYTES), 2 * program.footprint))
    options: dict[str, Any] = {
        "evict": settings.evict, "prefetcher": settings.prefetch, "migrate": settings.migrate, "own": settings.own,
        "seed": seed + 1, "log": EVENTS if log else 0,
    }  # fmt: skip
    if isinstance(source, Workload):
        how = {"place": place, "share": share, "active_thread_percentage": active_thread_percentage, "seed": seed}
        return _of_recorded(source, profile, program, platform, settings, available, options, how)
    timeline = Timeline(len(program.steps))
    gpus = gpus_of(program.steps)
    ran = simulate_uvm(
        program.arrays, program.steps, platform, settings.parameters, gpus=gpus, watch=timeline.watch,
        between=between(machine, gpus), **options,
    )  # fmt: skip
    return of_managed(Ran(source, profile, program, ran, settings, available, seed, timeline), log=log)


@dataclass(frozen=True)
class Ran:
    """A run that is over, and what its result says of it.

    program    as it ran: what `source` became, with the advice of `settings`
    available  bytes of GPU memory for managed pages
    together   what the referee has to know of all processes that share the memory, where there are several
    """

    source: Workload | ManagedProgram
    profile: Profile
    program: ManagedProgram
    found: UvmResult
    settings: DriverSettings
    available: int
    seed: int
    timeline: Timeline
    together: Mapping[str, Any] = field(default_factory=dict)


def _of_recorded(
    work: Workload, profile: Profile, program: ManagedProgram, platform: Platform, settings: DriverSettings, available: int,
    options: dict[str, Any], how: dict[str, Any],
) -> Result:  # fmt: skip
    """A recorded program: the island's run, with pages."""
    fits(program.arrays, platform)
    room_for_all = max(available, 2 * work.live_peak + (1 << 30))  # managed memory has no bound of its own
    prepared = run_of(
        work.trace, profile, evict="none", capacity_bytes=room_for_all, work=work, log=bool(options["log"]), **how
    )
    M, told, asked = memory(program.arrays, program.steps, platform, settings.parameters, **options)
    timeline = Timeline(work.trace.ops)
    found = recorded.replay(prepared, work, program, platform, M, timeline, told)
    asked.check()
    events = int(M.state["logged"][0])
    ran = UvmResult(
        platform, found.steps, M.counts, lay_out(program.arrays), M.ranges, M.sizes, raster.of(M, found.earlier),
        M.log[:events], events, told, page_tables.entries(M), found.reason, found.began, found.logged_before, found.where,
        traffic.of([prepared.simulation]) if options["log"] else None,
    )  # fmt: skip
    done = Ran(work, profile, program, ran, settings, available, how["seed"], timeline)
    return of_recorded(done, work, prepared.simulation, log=bool(options["log"]))


def of_managed(done: Ran, *, log: bool = False) -> Result:
    """The result of a managed program."""
    program, ran = done.program, done.found
    numbers = metrics(program, ran) | _peaks(done.timeline)
    kept = None
    if log:
        kept = _logged(ran) | _steps(program, ran, numbers)
    return _result(_spec(done, log), ran, numbers, kept, done.timeline, together=False)


def of_recorded(done: Ran, work: Workload, simulation: Simulation, *, log: bool = False) -> Result:
    """The result of a recorded program, which was a run of the island."""
    ran = done.found
    pairs = list(zip(_kernels_of(work), ran.steps, strict=False))
    numbers = metrics(done.program, ran, known(work)) | _of_island(simulation, pairs) | _peaks(done.timeline)
    numbers["stall_ns"] = sum(ns for name, ns in numbers.items() if name.startswith("stall_") and name != "stall_ns")
    kept = None
    if log:
        waited = step_columns.waits(pairs) | step_columns.before(simulation.log(), work.trace.ops)
        kept = _logged(ran)
        kept |= step_columns.columns(pairs, ran.began, waited, numbers)
    return _result(_spec(done, log), ran, numbers, kept, done.timeline, together=True)


def _logged(ran: UvmResult) -> dict[str, Any]:
    """The columns of the log of pages, and of what flowed, since the run is timed."""
    found = {name: ran.log[name].copy() for name in ran.log.dtype.names}
    if ran.traffic is not None:
        found |= ran.traffic.columns
        found["grant_time"] = found["grant_time"] - round(ran.began)
        for name in ("flow_begin", "flow_end"):
            found[name] = np.where(found[name] < NEVER, found[name] - round(ran.began), NEVER)
    return found


def _kernels_of(work: Workload) -> list[Kernel]:
    """A step for each operator, for what is asked of steps."""
    t = work.trace
    streams = t.stream[t.kind == OP].tolist()
    return [Kernel(t.op_names[name], [], (1, 1), stream=streams[op], operator=op) for op, name in enumerate(t.op)]


def _of_island(simulation: Simulation, pairs: Sequence[tuple[Kernel, StepResult]]) -> dict[str, int | float]:
    """What the island counted: the time, what kernels waited for before they began, and inside."""
    mine = outcome.metrics(simulation)
    names = (
        "makespan_ns", "compute_busy_ns", "compute_idle_share", "program_transfer_ns", "host_work_ns",
        *(f"stall_{cause}_ns" for cause in BEFORE),
    )  # fmt: skip
    waited = {cause: round(sum(ns)) for cause, ns in step_columns.waits(pairs).items() if cause != "host"}
    kinds = simulation.work.trace.activity
    stood = [sum(result.stalled for step, result in pairs if kinds[step.operator] in those) for those in (MOVES, (HOST_WORK,))]
    mine["program_transfer_ns"] -= round(stood[0])
    mine["host_work_ns"] -= round(stood[1])
    return {name: mine[name] for name in names if name in mine} | {f"stall_{c}_ns": max(ns, 0) for c, ns in waited.items()}


def _spec(done: Ran, log: bool) -> dict[str, Any]:
    source, profile, ran, link = done.source, done.profile, done.found, done.found.platform.link
    rates = {"h2d": link.in_rate, "d2h": link.out_rate}
    return {
        "trace": done.program.name,
        "trace_hash": source.trace.content_hash if isinstance(source, Workload) else source.content_hash,
        "profile": profile.name,
        "oracles": ["unified"] if done.settings.oracle else [],
        "capacity": done.available,
        "host_capacity": int(profile.host.capacity.value),
        "footprint": footprint(source),
        "seed": done.seed,
        "rates": {**rates, "both": sum(rates.values())},
        "told": ran.told,
        **({"paging": {**_for_referee(done.program, ran, done.settings.evict), **done.together}} if log else {}),
    }


def _result(
    spec: dict[str, Any], ran: UvmResult, numbers: dict[str, int | float], kept: Any, timeline: Timeline, *, together: bool
) -> Result:
    return Result(
        spec=spec,
        outcome=FINISHED if not ran.failed else HOST_OOM if ran.full == "host" else OOM,
        failure={"memory": ran.full, "time_ns": round(ran.ns), "advice": ran.failed} if ran.failed else None,
        metrics=numbers,
        faults=account.of(ran, together=together),
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


def counted(counts: Any, page: int) -> dict[str, int]:
    """What the log of pages adds up to, of all processes that share a memory."""
    gpu, cpu = of_gpus(counts), counts[CPU]
    faults = {"gpu_faults": int(gpu["faults"]), "cpu_faults": int(cpu["faults"]), "fault_batches": int(gpu["batches"])}
    return faults | moved(counts, page)


def _for_referee(program: ManagedProgram, ran: UvmResult, evict: str) -> dict[str, Any]:
    """What the referee has to know of a run, beside its log."""
    taken = device_memory.chunks(program.arrays, ran.platform)
    return {
        "page": ran.platform.page,
        "chunks": 0 if ran.platform.unified else ran.platform.memory // BLOCK_BYTES - taken,
        "whole": not hasattr(victims.module(evict), "PIECES"),
        "processors": len(ran.counts),
        "allocations": [[array.bytes, array.at, array.kind] for array in program.arrays],
        "events": ran.events,
        "ordered": _ordered(program, ran),
        "began": ran.logged_before,
        "began_ns": ran.began,
        **({"traffic": ran.traffic.said} if ran.traffic else {}),
    }


def _ordered(program: ManagedProgram, ran: UvmResult) -> bool:
    """Whether the records of the log are in the order of time: one thread wrote them, with nothing that decides ahead of it.

    Others do: drivers of several GPUs, a host beside kernels, notices behind a kernel's end, and what is done while the link
    is idle, of one stream where another faults.
    """
    ahead = (ran.log["kind"] == COPY) & (ran.log["since"] == ran.log["until"])
    streams = {step.stream for step in program.steps if isinstance(step, Kernel)}
    beside = any(getattr(step, "after", None) is not None for step in program.steps) or (len(streams) > 1 and ahead.any())
    return len(ran.counts) == 2 and not beside and not (ran.log["kind"] == NOTICE).any()


def metrics(program: ManagedProgram, ran: UvmResult, recorded: Foreseen | None = None) -> dict[str, int | float]:
    """What the driver and the GPU counted, under the names of results.metrics.

    recorded  what is known of a recorded program: that stands for what the steps made of it, when all of them were carried out
    """
    page, link = ran.platform.page, ran.platform.link
    gpu, cpu = of_gpus(ran.counts), ran.counts[CPU]
    makespan = round(ran.ns)
    own = Foreseen(
        {
            "compute_busy_ns": round(float(gpu["busy"])),
            "kernels": sum(isinstance(step, Kernel) for step, _ in _pairs(program, ran)),
            "events": len(ran.steps),
            "host_work_ns": round(sum(r.ns for s, r in _pairs(program, ran) if isinstance(s, HostTouch))),
        },
        streams=max(len({(step.gpu, step.stream) for step, _ in _pairs(program, ran) if isinstance(step, Kernel)}), 1),
    )
    about = own if recorded is None or ran.failed else recorded
    stalls = {**_stalls(program, ran), **about.stalls}
    busy = about.metrics["compute_busy_ns"]
    pages_moved = moved(ran.counts, page)
    into_link, out_link = pages_moved["h2d_bytes"] + about.copied_in, pages_moved["d2h_bytes"] + about.copied_out
    batches = int(gpu["batches"])
    return {
        "makespan_ns": makespan,
        **about.metrics,
        "compute_idle_share": 1 - busy / (makespan * about.streams) if makespan else 0.0,
        "stall_ns": sum(stalls.values()),
        **stalls,
        **pages_moved,
        "h2d_busy_share": into_link / link.in_rate * 1e9 / makespan if makespan else 0.0,
        "d2h_busy_share": out_link / link.out_rate * 1e9 / makespan if makespan else 0.0,
        **_faults(gpu, cpu),
        "wasted_bytes": int(gpu["wasted"]) * page,
        "evicted_clean_bytes": int(gpu["left_clean"]) * page,
        "refetched_bytes": int(gpu["refetched"]) * page,
        "remote_bytes": int(gpu["remote_bytes"]),
        "touched_bytes": int(gpu["touched_bytes"]),
        "touched_per_s": int(gpu["touched_bytes"]) / makespan * 1e9 if makespan else 0.0,
        "evictions": int(gpu["evictions"]),
        "faults_per_batch": int(gpu["fetched"]) / batches if batches else 0.0,
    }


def moved(counts: Any, page: int) -> dict[str, int]:
    """Bytes that moved over the link: in all, and by cause."""
    gpu, cpu = of_gpus(counts), counts[CPU]
    came = [int(pages) * page for pages in gpu["came"]]
    return {
        "h2d_bytes": sum(came), "d2h_bytes": (int(cpu["came"].sum()) + int(gpu["left"])) * page,
        "demanded_bytes": came[DEMAND], "prefetched_bytes": came[PREFETCH], "explicit_bytes": came[EXPLICIT],
        "counter_bytes": came[COUNTER], "evicted_bytes": int(gpu["left"]) * page,
    }  # fmt: skip


def _faults(gpu: Any, cpu: Any) -> dict[str, int]:
    """How many faults there were, and what the driver did about them."""
    return {
        "gpu_faults": int(gpu["faults"]),
        "cpu_faults": int(cpu["faults"]),
        "fault_batches": int(gpu["batches"]),
        "fault_duplicates": int(gpu["duplicates"]),
        "faults_satisfied": int(gpu["satisfied"]),
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


def _steps(program: ManagedProgram, ran: UvmResult, stalls: Mapping[str, Any]) -> dict[str, Any]:
    """The steps with their parts of the stalls."""
    pairs = _pairs(program, ran)
    return step_columns.columns(pairs, ran.began, step_columns.waits(pairs), stalls)


def _pairs(program: ManagedProgram, ran: UvmResult) -> step_columns.Pairs:
    return list(zip(_timed(program), ran.steps, strict=False))  # a run that failed has fewer


def _timed(program: ManagedProgram) -> list[Any]:
    """The steps behind the last start."""
    steps = list(program.steps)
    last = max((i + 1 for i, step in enumerate(steps) if isinstance(step, Start)), default=0)
    return [step for step in steps[last:] if not isinstance(step, Wait)]
