"""From the tables of a finished run to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.engine import state
from gpusim.engine.run import recording, ways
from gpusim.machine.identity import profile_hash
from gpusim.machine.profile import Profile
from gpusim.machine.sharing import MEMORY, SMS, write
from gpusim.machine.tiers import DEFAULT, pinnable
from gpusim.policies.contract import CAPACITY, HELD, ROUNDED
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.answers import answers, lacking
from gpusim.trace.workload import Workload

if TYPE_CHECKING:
    from gpusim.engine.run.plans import Planned
    from gpusim.engine.run.simulate import Simulation
    from gpusim.engine.run.tables import Shared
    from gpusim.machine.constants import Machine
    from gpusim.trace.grain import Chunks

OUTCOMES = {
    state.FINISHED: "finished", state.OUT_OF_MEMORY: "oom", state.HOST_OUT_OF_MEMORY: "host_oom", state.DESERTED: "failed",
}  # fmt: skip


def result(simulation: Simulation, profile: Profile, seed: int, work: Workload, planned: Planned) -> Result:
    """The result of a run of `work`, or of what the plan made of it, that has stopped for good."""
    trace, machine, program = work.trace, simulation.machine, planned.program
    policies = [
        ("place", simulation.place), ("evict", simulation.evict), ("prefetch", simulation.prefetch),
        ("defrag", simulation.defrag),
    ]  # fmt: skip
    policies += [(p.kind, p) for p in (simulation.release, simulation.pool, planned.policy) if p is not None and p.acts]
    spec: dict[str, Any] = {
        "trace": trace.name,
        "trace_hash": trace.content_hash,
        "profile": profile.name,
        "profile_hash": profile_hash(profile),
        "log_version": log.VERSION,
        **{kind: policy.spec for kind, policy in policies},
        "oracles": [kind for kind, policy in policies if policy.entry.oracle],
        "capacity": machine.capacity,
        "host_capacity": machine.host_capacity,
        "footprint": work.live_peak,
        "seed": seed,
        **_sharing(simulation.shared),
        "rates": {name: rate * 1e9 for name, rate in ways.links(machine).items()},
        "slots": {"h2d": machine.slots_in, "d2h": machine.slots_out},
        **({} if machine.chain == DEFAULT else {"tiers": machine.chain, "memories": _tiers(machine)}),
        **_remote(planned),
        **({} if program is None else {"program_hash": program.content_hash}),
        **({} if planned.chunks is None else {"grain": planned.chunks.text}),
    }
    counted_here = metrics(simulation) | recording.device_times(simulation, trace)
    return Result(
        spec=spec | recording.contention(simulation, profile, trace, counted_here),
        outcome=OUTCOMES[simulation.reason],
        failure=_of_tensor(failure(simulation, profile), planned.chunks),
        metrics=counted_here
        | (counted(simulation, "plan_evictions", "plan_prefetches", "plan_skipped") if planned.policy.acts else {})
        | (counted(simulation, "prefetch_promoted", "prefetch_cancelled") if simulation.island.tenants[0]["ranked"] else {})
        | (remote_metrics(simulation) if simulation.island.tenants[0]["remote"] else {})
        | (counted(simulation, "release_evictions", "release_bytes") if _releases(simulation) else {})
        | program_copies(simulation)
        | _waits(simulation)
        | _lending(simulation)
        | sharing_metrics(simulation)
        | (tier_metrics(simulation) if machine.chain != DEFAULT else {}),
        timeline=timeline(simulation),
        log=simulation.log(),
        bounds={},
        checked=None,
        program=program,
        schedule=planned.schedule if planned.policy.acts else None,
    )


def timeline(simulation: Simulation) -> dict[str, Any]:
    """Memory over time, a row per stretch of the program, by the host's clock and by the device's.

    The host allocates and asks for copies far ahead of the device.  There a row holds when the next operator begins: it has
    waited for what had to leave and to come.  What leaves before the first does so at an even rate.
    """
    samples = simulation.policies.samples[: int(simulation.policies.buffers[0]["rows"])]
    began = np.append(simulation.island.began, state.NEVER)
    behind = np.ones(len(samples), np.int64)
    if simulation.policies.buffers[0]["bucket"] == 1:  # the row of the operator's own issue holds when it begins itself
        behind[1:] = np.diff(samples["op"]) == 0
    next_one = began[np.minimum(samples["op"] + behind, len(began) - 1)]
    device = np.where(next_one == state.NEVER, simulation.now, next_one)
    first, left = samples["op"] == 0, samples["host"]
    if first.any():
        most = int(left[first].max())
        device[first] = device[first] * (left[first] / most) if most else np.minimum(samples["time"], device)[first]
    device = np.maximum.accumulate(device)
    names = {"time": "time_ns", "op": "op"}
    columns = {names.get(name, f"{name}_bytes"): samples[name].copy() for name in samples.dtype.names}
    return columns | {"device_ns": device}


def sharing_metrics(simulation: Simulation) -> dict[str, int | float]:
    """How much longer kernels took than alone, where they share anything."""
    shares = {SMS, MEMORY} & set(simulation.shared.words)
    return {"sharing_ns": int(simulation.island.counts[0]["sharing"])} if shares else {}


def program_copies(simulation: Simulation) -> dict[str, int | float]:
    """Copies of the program that went beside another in the same direction; nothing where there were none."""
    n = simulation.island.counts[0]
    count = int(n["shared_in"]) + int(n["shared_out"])
    return {"program_copies_shared": count} if count else {}


def _waits(simulation: Simulation) -> dict[str, int | float]:
    """How long collectives waited for their other members; nothing where they did not."""
    waited = int(simulation.island.counts[0]["collective_wait"])
    return {"collective_wait_ns": waited} if waited else {}


def _lending(simulation: Simulation) -> dict[str, int | float]:
    """What lenders wanted back of the program, what its own device has lent, and how long its host waited for that."""
    if not any(tier.lender for tier in simulation.machine.tiers):
        return {}
    island = simulation.island
    lent = {"lent_peak_bytes": int(island.accounts[island.tenants[0]["account"]]["peak"])}
    return {**counted(simulation, "recalls", "recall_bytes"), "recall_wait_ns": int(island.counts[0]["recall_wait"]), **lent}


def _sharing(shared: Shared) -> dict[str, Any]:
    """What activities of the device share, and the percentage of its multiprocessors where that is limited."""
    limit = shared.active_thread_percentage
    return {"share": write(shared.words), **({} if limit == 100 else {"active_thread_percentage": limit})}


def _remote(planned: Planned) -> dict[str, Any]:
    """The tensors that kernels use below the device, for the referee."""
    remote = planned.schedule.remote
    return {"remote": remote.tolist(), "remote_access": planned.schedule.access} if len(remote) else {}


def _tiers(m: Machine) -> list[dict[str, Any]]:
    """The tiers as the referee reads them; copies of the same `queue` take turns."""
    return [
        {"name": t.name, "kind": t.kind, "capacity": t.capacity, "in": ways.passed(t)[0], "out": ways.passed(t)[1],
         "queue": t.queue, "slots": [t.slots_in, t.slots_out], **({"lender": t.lender} if t.lender else {})}
        for t in m.tiers
    ]  # fmt: skip


def tier_metrics(simulation: Simulation) -> dict[str, int | float]:
    """Swapped bytes and peaks of the tiers, by kind."""
    out: dict[str, int | float] = {}
    for tier, row in zip(simulation.machine.tiers, simulation.island.memories[1:], strict=True):
        for name, column in (("in_bytes", "into"), ("out_bytes", "out"), ("peak_bytes", "peak")):
            key = f"{tier.kind}_{name}"
            out[key] = out.get(key, 0) + int(row[column])
    return out


def remote_metrics(simulation: Simulation) -> dict[str, int | float]:
    """What kernels moved by themselves."""
    n = simulation.island.counts[0]
    return {"zero_copy_read_bytes": int(n["remote_read"]), "zero_copy_written_bytes": int(n["remote_written"])}


def _releases(simulation: Simulation) -> bool:
    """Units leave before room is needed: as a release policy has it, or a limit that has become lower."""
    return bool(simulation.policies.rules[0]["release"]) or simulation.island.counts[0]["release_evictions"] > 0


def counted(simulation: Simulation, *names: str) -> dict[str, int | float]:
    """Counts that only some runs have."""
    return {name: int(simulation.island.counts[0][name]) for name in names}


def metrics(simulation: Simulation) -> dict[str, int | float]:
    """What the island counted, under the names of results.metrics."""
    n, t, m = simulation.island.counts[0], simulation.island.tenants[0], simulation.machine
    header = simulation.policies.place
    makespan = simulation.now
    busy = int(n["busy"])
    impossible = {"sms": SMS not in simulation.shared.words, "copy_engine": not simulation.island.devices[0]["shares_engines"]}
    spans = zip(log.STALLS, simulation.island.stalls.tolist(), strict=True)
    stalls = {f"stall_{cause}_ns": ns for cause, ns in spans if not impossible.get(cause)}
    swaps = int(n["swap_ins"]) + int(n["swap_outs"])
    seconds = makespan / 1e9
    over = {"h2d": 0, "d2h": 0}  # bytes over the device's own link, the program's copies aside
    for tier, row in zip(m.tiers, simulation.island.memories[1:], strict=True):
        into, out_of = ways.passed(tier)
        over["h2d"] += int(row["into"]) * ("h2d" in into)
        over["d2h"] += int(row["out"]) * ("d2h" in out_of)
    near = ways.passed(m.tiers[0])
    over["h2d"] += int(n["remote_read"]) * ("h2d" in near[0])
    over["d2h"] += int(n["remote_written"]) * ("d2h" in near[1])
    links = ways.links(m)  # what the wire carries: more than a copy engine where kernels are faster
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
        "h2d_busy_share": (over["h2d"] + int(n["copied_in"])) / (links["h2d"] * makespan) if makespan else 0.0,
        "d2h_busy_share": (over["d2h"] + int(n["copied_out"])) / (links["d2h"] * makespan) if makespan else 0.0,
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
        "host_peak_bytes": tier_metrics(simulation).get("host_peak_bytes", 0),
        "kernels": int(t["kernels"]),
        "events": int(t["instructions"]),
    }  # fmt: skip
    return out


def _of_tensor(failed: dict[str, Any] | None, chunks: Chunks | None) -> dict[str, Any] | None:
    """A failure names the tensor, not the chunk of it."""
    if failed is None or chunks is None or "tensor" not in failed:
        return failed
    return {**failed, "tensor": chunks.tensor_of(failed["tensor"])}


# What happens to a program that goes on.
WHEN_FULL = {
    "host": "Linux would kill the program for want of memory", "nvme": "the disk is full",
    "peer": "the other GPU's memory is full", "cxl": "the CXL memory is full", "remote": "the other host's memory is full",
}  # fmt: skip


def _no_room_below(simulation: Simulation, profile: Profile) -> str:
    """Why nothing more can leave the device."""
    m, own = simulation.machine, simulation.own
    if m.chain == DEFAULT and profile.memory.unified:
        return "GPU and CPU share this machine's memory: there is nowhere to swap to"
    if m.chain == DEFAULT and not _pageable_left(m, own, profile):
        have = show_bytes(m.host_capacity + own)
        if own:
            return f"the program's own {show_bytes(own)} and what is swapped out need more than the {have} of host memory"
        return f"swapped-out tensors need more than the {have} of host memory"
    have = " and ".join(f"{show_bytes(tier.capacity)} of {tier.name}" for tier in m.tiers if not tier.lender)
    have += " and what other devices lend" if any(tier.lender for tier in m.tiers) else ""
    left = f", which the program's own {show_bytes(own)} leave," if own else ""
    return f"swapped-out tensors need more than {have}{left}: {_when_full(m, own, profile)}"


def _when_full(m: Machine, own: int, profile: Profile) -> str:
    """Why the last tier has no more room, or what becomes of the program."""
    kind = m.tiers[-1].kind
    if kind != "host" or m.host_capacity + own >= int(profile.host.capacity.value):
        return WHEN_FULL[kind]
    if _pageable_left(m, own, profile):
        return "no more host memory may be pinned; what is left is pageable: tiers=host(pageable=1) uses it"
    return "the tiers are given no more of host memory"


def _pageable_left(m: Machine, own: int, profile: Profile) -> bool:
    """Whether all host memory that may be pinned is used, and other host memory is not."""
    pinned = own + sum(tier.capacity for tier in m.tiers if tier.kind == "host" and not tier.waits)
    return pinnable(profile) <= pinned and m.host_capacity + own < int(profile.host.capacity.value)


def failure(simulation: Simulation, profile: Profile) -> dict[str, Any] | None:
    """What did not fit, where, and what would help; None for a finished run."""
    if simulation.reason == state.FINISHED:
        return None
    if simulation.reason == state.DESERTED:
        return {"time_ns": simulation.now, "advice": "a rank that it waits for ran out of memory"}
    t, header, work = simulation.island.tenants[0], simulation.policies.place, simulation.work
    request, capacity = int(t["request_bytes"]), simulation.machine.capacity
    lent = capacity - int(header[CAPACITY]) if t["lends"] else 0
    free = capacity - int(header[ROUNDED])
    below = simulation.reason == state.HOST_OUT_OF_MEMORY
    out: dict[str, Any] = {
        "memory": simulation.machine.tiers[int(t["full"]) - 1].name if below else "device",
        "tensor": int(t["request"]),
        "request": request,
        "op": int(simulation.island.counts[0]["op"]),
        "time_ns": simulation.now,
    }
    if below:
        full = simulation.island.memories[int(t["full"])]
        return {**out, "free": int(full["capacity"] - full["used"]), "advice": _no_room_below(simulation, profile)}
    widest, op = work.widest_operator
    out["free"], out["largest"] = free, int(simulation.place.largest(header))
    if lent:
        said = f"other devices' programs have {show_bytes(lent)} of this memory and nowhere else to put it"
        out["advice"] = f"{said}: write a smaller capacity for what each device lends, peer(any, capacity=...)"
    elif request > capacity:
        tensor, size = out["tensor"], show_bytes(request)
        out["advice"] = f"tensor {tensor} alone takes {size}, more than the {show_bytes(capacity)} of memory"
    elif widest > capacity:
        out["advice"] = f"operator {op} alone touches {show_bytes(widest)}, more than the memory; no eviction policy can help"
    elif free >= request:
        out["advice"] = "enough bytes are free but not in one piece: try another place policy"
    elif not answers(work.trace).accesses:
        out["advice"] = f"nothing may leave: {lacking(work.trace.name, 'accesses')}"
    elif simulation.evict.form == "none":
        out["advice"] = "nothing may leave: choose an evict policy"
    else:
        out["advice"] = "everything that is left is in use by the operator that asks"
    return out
