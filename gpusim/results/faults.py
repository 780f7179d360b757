"""What a run under unified memory paid for: faults by cause, batches and their sizes, bytes, time, and for which allocations.

    UvmResult ─engine.pages.account.of─▶ FaultReport ─plain─▶ faults.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from gpusim.results.fault_picture import Picture
from gpusim.results.page_log import CAUSES

FAULTS = {
    "gpu_reads": "GPU reads", "gpu_writes": "GPU writes", "cpu_reads": "CPU reads", "cpu_writes": "CPU writes",
    "faults_new": "first touch", "faults_again": "evicted before", "faults_permission": "write to what was readable only",
    "throttled": "throttled",
}  # fmt: skip
TIMES = {
    "gpu": "GPU's own work", "remote": "GPU waits for remote memory", "cpu": "CPU's own work", "driver": "driver's host work",
    "for_cpu": "driver's work for the CPU",
    "copy_in": "copies in", "copy_out": "copies out", "waited": "throttled waits",
    "idle": "no kernel on the GPU",
}  # fmt: skip
BESIDE = {
    "kernels": "times of all kernels, added up", "standing": "of these, waiting for pages", "working": "of these, at work",
    "any": "time with at least one kernel", "cpu": "the CPU touches memory beside kernels",
    "copies": "times of all copies, added up", "hidden": "of these, beside work of kernels or the driver",
}  # fmt: skip


@dataclass(frozen=True)
class AllocationFaults:
    """What one allocation saw; sizes in bytes, faults in pages, time in ns.

    first       its address, in windows of 2 MiB one after the other
    came, went  bytes to GPUs and to the CPU, by cause
    again       bytes that came to a GPU after they had been evicted from it
    ping_pong   bytes that came to a GPU after the CPU had taken them from it
    wasted      bytes that were prefetched and left untouched
    service_ns  serving faults of GPUs on it, making room for it included; cpu_service_ns those of the CPU
    swept       it was brought in by rising addresses (1) or falling ones (-1); 0: in no such order, or unknown
    """

    name: str
    first: int
    bytes: int
    faults: dict[str, int]
    came: dict[str, int]
    went: dict[str, int]
    zeroed: int
    again: int
    ping_pong: int
    wasted: int
    evicted_clean: int
    remote: int
    pinned: int
    service_ns: float
    cpu_service_ns: float = 0.0
    swept: int = 0

    @property
    def thrashed(self) -> int:
        """Bytes that moved although they had been where they were needed before."""
        return self.again + self.ping_pong

    @property
    def brought(self) -> int:
        return sum(self.came.values())


@dataclass(frozen=True)
class ProcessFaults:
    """A process among several that have one GPU, and one memory or a slice each.

    made_room  root chunks that were evicted for its faults, of whatever process
    came       bytes that came to the GPU for it, and again: of these what had been evicted before
    lost       bytes of its own that were evicted
    """

    name: str
    makespan_ns: float
    faults: int
    batches: int
    made_room: int
    came: int
    again: int
    lost: int


@dataclass(frozen=True)
class Activity:
    """Steps of one name together."""

    name: str
    times: int
    ns: float
    faults: int
    again: int  # bytes that came again after an eviction


@dataclass(frozen=True)
class FaultReport:
    """One run.  Times in ns add up to the makespan: of a time that several kernels share each has its part.

    `batches` has the sizes (faults fetched) with their counts.
    """

    makespan_ns: float
    memory_bytes: int
    footprint_bytes: int
    times: dict[str, float]
    batches: list[tuple[int, int]]
    counts: dict[str, int]  # duplicates, satisfied, dropped, replays, passes, evictions, of all GPUs
    allocations: list[AllocationFaults]  # worst first
    steps: list[Activity] = field(default_factory=list)  # longest first
    told: list[str] = field(default_factory=list)
    beside: dict[str, float] = field(default_factory=dict)  # kernel time where kernels went side by side: see BESIDE
    processes: list[ProcessFaults] = field(default_factory=list)  # of several on the GPU, this run's own first
    failed: str = ""
    picture: Picture | None = field(default=None, compare=False)

    def total(self, name: str) -> int:
        """Faults of one kind, over allocations."""
        return sum(a.faults[name] for a in self.allocations)

    def moved(self, which: str, *causes: str) -> int:
        """Bytes that came to GPUs (which = "came") or went to the CPU ("went"), for these causes or all."""
        return sum(getattr(a, which)[c] for a in self.allocations for c in causes or CAUSES)

    def sum(self, name: str) -> int:
        return sum(getattr(a, name) for a in self.allocations)

    def plain(self) -> dict[str, Any]:
        """As JSON values, without the picture."""
        values = asdict(replace(self, picture=None))
        del values["picture"]
        return values


def from_plain(values: Mapping[str, Any]) -> FaultReport:
    given = dict(values)
    given["batches"] = [(int(size), int(count)) for size, count in given["batches"]]
    given["allocations"] = [AllocationFaults(**a) for a in given["allocations"]]
    given["steps"] = [Activity(**a) for a in given["steps"]]
    given["processes"] = [ProcessFaults(**a) for a in given.get("processes", ())]
    return FaultReport(**given)


def ranked(allocations: Sequence[AllocationFaults]) -> list[AllocationFaults]:
    """Those that thrash first, by bytes; then by the time that serving them took."""
    return sorted(allocations, key=lambda a: (-a.thrashed, -a.service_ns, a.name))


def merged(allocations: Sequence[AllocationFaults], picture: Picture) -> list[AllocationFaults]:
    """Allocations that lie one after the other and differ only in the number behind their name as one."""
    groups: dict[str, list[AllocationFaults]] = {}
    for a in allocations:
        name, _, number = a.name.rpartition("_")
        groups.setdefault(f"{name}_*" if number.isdigit() else a.name, []).append(a)
    return [_merged(name, found, picture) for name, found in groups.items()]


def _merged(name: str, parts: Sequence[AllocationFaults], picture: Picture) -> AllocationFaults:
    def added(field: str) -> Any:
        values = [getattr(part, field) for part in parts]
        if isinstance(values[0], dict):
            return {key: sum(value[key] for value in values) for key in values[0]}
        return sum(values)

    counted = [f.name for f in fields(AllocationFaults) if f.name not in ("name", "first", "swept")]
    first, end = min(p.first for p in parts), max(p.first + p.bytes for p in parts)
    total = {field: added(field) for field in counted}
    return AllocationFaults(name=name, first=first, swept=picture.swept(first, end - first), **total)


def percentile(batches: Sequence[tuple[int, int]], share: float) -> int:
    """The smallest size that this share of the batches does not exceed; 0 without batches."""
    total, seen = sum(count for _, count in batches), 0
    for size, count in batches:
        seen += count
        if seen >= share * total:
            return size
    return 0
