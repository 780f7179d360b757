"""From the tables of a finished run to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusim.core import state
from gpusim.hardware.profile import Profile
from gpusim.policies.contract import CAPACITY, HELD, ROUNDED
from gpusim.results.result import Result
from gpusim.trace.workload import Workload
from gpusim.units import show_bytes

if TYPE_CHECKING:
    from gpusim.engine.plans import Planned
    from gpusim.engine.simulate import Simulation
    from gpusim.trace.grain import Chunks

OUTCOMES = {state.FINISHED: "finished", state.OUT_OF_MEMORY: "oom", state.HOST_OUT_OF_MEMORY: "host_oom"}


def result(simulation: Simulation, profile: Profile, seed: int, work: Workload, planned: Planned) -> Result:
    """The result of a run of `work`, or of what the plan made of it, that has stopped for good."""
    trace, machine, program = work.trace, simulation.machine, planned.program
    policies = [
        ("place", simulation.place), ("evict", simulation.evict), ("prefetch", simulation.prefetch),
        ("defrag", simulation.defrag), *([("plan", planned.policy)] if planned.policy.acts else []),
    ]  # fmt: skip
    spec: dict[str, Any] = {
        "trace": trace.name,
        "trace_hash": trace.content_hash,
        "profile": profile.name,
        **{kind: policy.spec for kind, policy in policies},
        "oracles": [kind for kind, policy in policies if policy.entry.oracle],
        "capacity": machine.capacity,
        "host_capacity": machine.host_capacity,
        "footprint": work.live_peak,
        "seed": seed,
        "rates": {
            "h2d": machine.h2d * 1e9, "d2h": machine.d2h * 1e9, "both": machine.both * 1e9,
            "nvme_read": machine.nvme_read * 1e9, "nvme_write": machine.nvme_write * 1e9,
            **({"peer": machine.peer * 1e9} if machine.peer else {}),
        },
        "slots": {"h2d": machine.slots_in, "d2h": machine.slots_out},
        **({} if program is None else {"program_hash": program.content_hash}),
        **({} if planned.chunks is None else {"grain": planned.chunks.text}),
    }
    rows = int(simulation.island.control[0]["rows"])
    samples = simulation.policies.samples[:rows]
    timeline = {"time_ns" if name == "time" else name: samples[name].copy() for name in samples.dtype.names}
    return Result(
        spec=spec,
        outcome=OUTCOMES[simulation.reason],
        failure=_of_tensor(failure(simulation, profile), planned.chunks),
        metrics=metrics(simulation) | (plan_metrics(simulation) if planned.policy.acts else {}),
        timeline=timeline,
        log=simulation.log(),
        bounds={},
        checked=None,
        program=program,
    )


def plan_metrics(simulation: Simulation) -> dict[str, int | float]:
    """What became of a plan's actions."""
    names = ("plan_evictions", "plan_prefetches", "plan_skipped")
    return {name: int(simulation.island.counts[0][name]) for name in names}


def metrics(simulation: Simulation) -> dict[str, int | float]:
    """What the island counted, under the names of results.metrics."""
    n, c, m = simulation.island.counts[0], simulation.island.control[0], simulation.machine
    header = simulation.policies.place
    makespan = simulation.now
    busy = int(n["busy"])
    causes = ("swap_in", "swap_out", "alloc", "launch", "sync", "event")
    stalls = {f"stall_{cause}_ns": int(n[f"stall_{cause}"]) for cause in causes}
    swaps = int(n["swap_ins"]) + int(n["swap_outs"])
    seconds = makespan / 1e9
    reserved_peak = int(n["reserved_peak"])
    streams = int(simulation.island.queues["computes"].sum())
    out: dict[str, int | float] = {
        "makespan_ns": makespan,
        "compute_busy_ns": busy,
        "compute_idle_share": 1.0 - busy / (makespan * streams) if makespan else 0.0,
        "stall_ns": sum(stalls.values()),
        **stalls,
        **{name: int(n[name]) for name in (
            "h2d_bytes", "d2h_bytes", "swap_ins", "swap_outs", "clean_drops", "prefetches", "prefetch_hits", "prefetch_late",
            "prefetch_wasted", "device_allocs", "device_frees", "defrags", "moved_bytes",
        )},
        "program_h2d_bytes": int(n["copied_in"]),
        "program_d2h_bytes": int(n["copied_out"]),
        "collective_bytes": int(n["collective"]),
        "nvme_read_bytes": int(n["nvme_read"]),
        "nvme_written_bytes": int(n["nvme_written"]),
        "program_transfer_ns": int(n["transfer"]),
        "host_work_ns": int(n["host_work"]),
        "h2d_busy_share": int(n["h2d_bytes"] + n["copied_in"]) / (m.h2d * makespan) if makespan else 0.0,
        "d2h_busy_share": int(n["d2h_bytes"] + n["copied_out"]) / (m.d2h * makespan) if makespan else 0.0,
        "swaps_per_s": swaps / seconds if makespan else 0.0,
        "allocated_current_bytes": int(header[ROUNDED]),
        "allocated_peak_bytes": int(n["allocated_peak"]),
        "allocated_total_bytes": int(n["allocated_total"]),
        "reserved_current_bytes": int(header[HELD]),
        "reserved_peak_bytes": reserved_peak,
        "requested_current_bytes": int(n["requested"]),
        "requested_peak_bytes": int(n["requested_peak"]),
        "requested_total_bytes": int(n["requested_total"]),
        "frag_internal": float(n["internal_at_peak"]),
        "frag_utilisation": int(n["requested_peak"]) / reserved_peak if reserved_peak else 1.0,
        "frag_external": float(n["external_sum"]) / max(1, int(n["external_samples"])),
        "frag_failures": int(n["failures"]),
        "ooms": int(simulation.reason in (state.OUT_OF_MEMORY, state.HOST_OUT_OF_MEMORY)),
        "host_peak_bytes": int(n["host_peak"]),
        "kernels": int(c["kernels"]),
        "events": int(c["instructions"]),
    }  # fmt: skip
    return out


def _of_tensor(failed: dict[str, Any] | None, chunks: Chunks | None) -> dict[str, Any] | None:
    """A failure names the tensor, not the chunk of it."""
    return failed if failed is None or chunks is None else {**failed, "tensor": chunks.tensor_of(failed["tensor"])}


def failure(simulation: Simulation, profile: Profile) -> dict[str, Any] | None:
    """What did not fit, where, and what would help; None for a finished run."""
    if simulation.reason == state.FINISHED:
        return None
    c, header, work = simulation.island.control[0], simulation.policies.place, simulation.work
    request, capacity = int(c["request_bytes"]), int(header[CAPACITY])
    free = capacity - int(header[ROUNDED])
    on_host = simulation.reason == state.HOST_OUT_OF_MEMORY
    out: dict[str, Any] = {
        "memory": "host" if on_host else "device",
        "tensor": int(c["request"]),
        "request": request,
        "op": int(simulation.island.counts[0]["op"]),
        "time_ns": simulation.now,
    }
    if on_host:
        out["free"] = simulation.machine.host_capacity - int(c["host_used"])
        have = show_bytes(simulation.machine.host_capacity + simulation.own)
        if profile.memory.unified:
            out["advice"] = "GPU and CPU share this machine's memory: there is nowhere to swap to"
        elif simulation.own:
            kept = show_bytes(simulation.own)
            out["advice"] = f"the program's own {kept} and what is swapped out need more than the {have} of host memory"
        else:
            out["advice"] = f"swapped-out tensors need more than the {have} of host memory"
        return out
    widest, op = work.widest_operator
    out["free"], out["largest"] = free, int(simulation.place.largest(header))
    if request > capacity:
        out["advice"] = f"the tensor alone is larger than the {show_bytes(capacity)} of memory"
    elif widest > capacity:
        out["advice"] = f"operator {op} alone touches {show_bytes(widest)}, more than the memory; no eviction policy can help"
    elif free >= request:
        out["advice"] = "enough bytes are free but not in one piece: try another place policy"
    elif simulation.evict.form == "none":
        out["advice"] = "nothing may leave: choose an evict policy"
    else:
        out["advice"] = "everything that is left is in use by the operator that asks"
    return out
