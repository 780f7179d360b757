"""How much a run can change when its machine does: a bound that tells which runs need not be simulated again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.base.yaml.values import NONE
from gpusim.experiment.spec import KINDS, RunSpec
from gpusim.machine.constants import Machine
from gpusim.machine.tiers import DEFAULT
from gpusim.policies.registry import Registry

TIMELESS = {"size", "uses", "dirty"}  # facts that are the same on a slower machine
Curve = tuple[tuple[float, float], ...]  # bytes, bytes/ns
LARGER = 20 << 20  # bytes by which PyTorch's allocator takes more from the device than it was asked for, at most


@dataclass(frozen=True)
class TrafficCounts:
    """Of a program: its operators, those of them that move bytes over a link, and its events."""

    ops: int
    moves: int
    events: int


def weighs_times(spec: RunSpec, own: Registry) -> bool:
    """Whether what the run does may depend on how long things take: a score or plan reads times, a user's policy may.

    Copies that nothing waits for yet are reordered and cancelled by what has started.
    """
    if (spec.prefetch, spec.plan, spec.release) != (NONE, NONE, NONE):
        return True
    entries = {kind: own.find(kind, getattr(spec, kind).name) for kind in KINDS}
    return not all(entry.builtin for entry in entries.values()) or not set(entries["evict"].facts) <= TIMELESS


def reach(
    run: Mapping[str, int | float], counts: TrafficCounts, weighs: bool, kernels: float, a: Machine, b: Machine
) -> float:
    """ns by which the makespan on `a` and on `b` can differ at most; `kernels` is by how much all kernel times do.

    Work is done in order, and as long as the same is done a run is longer by no more than the work that is added.  Other
    things are done with more memory, and by policies that weigh times.
    """
    if a.chain != DEFAULT or (a.capacity, a.host_capacity, a.slots_in, a.slots_out, a.queue) != (
        b.capacity, b.host_capacity, b.slots_in, b.slots_out, b.queue,
    ):  # fmt: skip
        return float("inf")
    if weighs and (kernels or _links(a) != _links(b)):
        return float("inf")
    swaps = run["swap_ins"] + run["swap_outs"]
    into, out = run["h2d_bytes"] + run["program_h2d_bytes"], run["d2h_bytes"] + run["program_d2h_bytes"]
    around = run["collective_bytes"]
    allocs, frees = run["device_allocs"], run["device_frees"]
    held = run["reserved_peak_bytes"] + run["allocated_total_bytes"] + allocs * LARGER
    beside = run.get("sharing_ns", 0) if kernels else 0  # what kernels ask of the memory decides what copies take from them
    most = kernels + beside + sum((
        counts.ops * abs(a.operator - b.operator),
        swaps * abs(a.submit - b.submit),
        counts.ops * abs(a.gap - b.gap),
        counts.events * abs(a.cached - b.cached),
        (counts.moves + swaps) * abs(a.latency - b.latency),
        counts.moves * abs(a.wait - b.wait),
        counts.moves * abs(a.peer_latency - b.peer_latency),
        counts.moves * abs(a.collective_latency - b.collective_latency),
        counts.moves * abs(a.nvme_latency - b.nvme_latency),
        allocs * abs(a.malloc - b.malloc) + held * abs(a.malloc_per_byte - b.malloc_per_byte),
        frees * abs(a.free - b.free) + held * abs(a.free_per_byte - b.free_per_byte),
        run["moved_bytes"] * abs(a.move_per_byte - b.move_per_byte),
        (into + around) * _per_byte(a.h2d, a.curve, b.h2d, b.curve),
        (out + around) * _per_byte(a.d2h, a.curve_out, b.d2h, b.curve_out),
        around * _per_byte(a.collective, a.curve_collective, b.collective, b.curve_collective),
        (into + out + 2 * around) * abs(1 / a.both - 1 / b.both),
        around * abs(1 / a.peer - 1 / b.peer) if a.peer and b.peer else 0.0,
        run["nvme_read_bytes"] * abs(1 / a.nvme_read - 1 / b.nvme_read),
        run["nvme_written_bytes"] * abs(1 / a.nvme_write - 1 / b.nvme_write),
    ))  # fmt: skip
    return most + counts.moves + swaps if most else 0.0  # copies end at whole nanoseconds


def _links(m: Machine) -> tuple[object, ...]:
    return m.h2d, m.d2h, m.both, m.latency, m.wait, m.curve, m.curve_out


def _per_byte(a: float, curve_a: Curve, b: float, curve_b: Curve) -> float:
    """ns by which a byte can take longer, on the large end of a way or the slow end of its curve."""
    slow_a, slow_b = (min([rate, *(r for _, r in curve)]) for rate, curve in ((a, curve_a), (b, curve_b)))
    return max(abs(1 / a - 1 / b), abs(1 / slow_a - 1 / slow_b))
