"""The hardware profile: one machine, every number with its unit, its basis and its source (see `quantity`).

Values are held in base units: bytes (int), bytes/s, ns, flop/s, Hz, W (float).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool, model_validator
from pydantic.dataclasses import dataclass

from gpusim.base.errors import ProfileError, suggest
from gpusim.base.yaml import document, fields, validate
from gpusim.base.yaml.fields import STRICT, refuse
from gpusim.machine.paging import Paging
from gpusim.machine.quantity import Compute, Count, Frequency, Power, Quantity, Rate, Share, Size, Time

GIVEN = "given"  # the source of a number that a run's own text or caller sets
Word = Annotated[str, Field(min_length=1)]
Curve = tuple[tuple[fields.Bytes, fields.BytesPerSecond], ...]
TimeCurve = tuple[tuple[fields.Bytes, fields.Nanoseconds], ...]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Gpu:
    """The processor."""

    architecture: Word
    compute_capability: Word
    """CUDA's version of the processor, in quotes: "8.0"."""
    sm_count: Count
    """Streaming multiprocessors that are on."""
    boost_clock: Frequency
    """Highest clock of the processor."""
    l2: Size
    """Second-level cache."""
    tdp: Power
    """Power limit."""
    peak: dict[str, Compute]
    """The vendor's dense peak by element type: fp32, tf32, fp16, bf16, fp8."""
    achieved: dict[str, Compute] | None = None
    """Reached by a large matrix product of a library, by element type; absent: what is usual for such a GPU."""
    fma: Compute | None = None
    """Reached by loops of fp32 multiply-adds; absent: the share of the peak that is usual for its generation."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class DeviceMemory:
    """The GPU's memory.  Rates count the bytes that cross its pins: a copy of n bytes within it moves 2 n."""

    kind: Word
    """HBM3, GDDR6, LPDDR5 and so on."""
    capacity: Size
    """As the driver reports it where that is known, else the vendor's figure; vendors print GiB as GB."""
    bandwidth: Rate
    """Nominal: pins times clock."""
    read: Rate
    """Reached by kernels that only read."""
    write: Rate
    """Reached by kernels that only write."""
    copy: Rate
    """Reached by kernels that read as much as they write (read and written bytes together)."""
    copy_engine: Rate
    """Reached by copies within the memory that a copy engine or the driver makes (read and written bytes together)."""
    copy_curve: Curve = ()
    """Measured rate of kernels that read as much as they write by the bytes they touch, start-up excluded: L2, then memory."""
    read_curve: Curve = ()
    """The same of kernels that only read."""
    shared_curve: Curve = ()
    """The same of kernels all of whose multiprocessors read the same bytes."""
    in_step_curve: Curve = ()
    """The same with one thread block each, which go through the bytes side by side: L1, then L2."""
    latency_curve: TimeCurve = ()
    """Measured time of a load that depends on the one before, at random among so many bytes: L1, L2, then memory."""
    turnaround: Time | None = None
    """From one load of a thread to its next in a kernel that streams through memory; absent: a rule from its latency."""
    unified: StrictBool = False
    """The memory is the CPU's as well: a copy between host and device is a copy within it."""

    @model_validator(mode="after")
    def _below_nominal(self) -> DeviceMemory:
        for name in ("read", "write", "copy", "copy_engine"):
            _no_faster(name, getattr(self, name), "bandwidth", self.bandwidth)
        return self


_CPU_REMOTE: Any = {
    "value": "44 %", "low": "30 %", "high": "93 %", "basis": "estimated",
    "source": "reads of the other socket's memory and of the own on four hosts: 34 of 112 GB/s (Xeon 8160, J. McCalpin), 34.5 "
    "of 90.9 (github.com/cncf/cnf-testbed/issues/129), 34.4 of 69.3 and 76.7 of 82.5 (Intel MLC); the median",
}  # fmt: skip


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Host:
    """The CPU's memory, as the GPU meets it."""

    capacity: Size
    """What it can lend to swapped bytes."""
    bandwidth: Rate
    """Reached by the CPU on the memory of the socket next to the GPU."""
    pageable_h2d: Rate
    """Copies to the device from memory that is not pinned: the CPU stages them."""
    pageable_d2h: Rate
    """Copies from the device to memory that is not pinned."""
    pageable_curve: Curve = ()
    """Measured rate of copies to the device from memory that is not pinned by their size, latency included."""
    pageable_curve_d2h: Curve = ()
    """The same of copies to the host; without it they have the curve of copies to the device."""
    numa_remote: Share
    """Share of the link's rate that is left when the pinned memory is on another socket."""
    numa_nodes: Count | None = None
    """NUMA nodes, of which one is next to the GPU; absent: unknown, and no memory is spread over them."""
    cpu_remote: Share = Share(**_CPU_REMOTE)
    """Share of `bandwidth` that is left when the CPU works on the memory of another socket."""
    compute: Compute | None = None
    """Reached by the CPU's cores together in the work that programs leave to it; absent: unknown, its bytes decide."""
    pinned: Share | None = None
    """Share of the capacity that may be pinned; absent: all of it, as under Linux (Windows pins half)."""
    all_h2d: Rate | None = None
    """To all GPUs of the node together when all copy at once; absent: each has its own link's rate."""
    all_d2h: Rate | None = None
    """The same from all GPUs."""
    all_both: Rate | None = None
    """The same when all copy in both directions, both of them together."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Nvme:
    """The disk below the host's memory."""

    capacity: Size
    """As sold."""
    read: Rate
    """Large reads, many at once."""
    write: Rate
    """Large writes, many at once."""
    latency: Time
    """Of one read of an idle disk."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Link:
    """Between GPU and host memory.  Rates are those of large copies of pinned memory by a copy engine."""

    kind: Word
    """PCIe 4.0 x16, NVLink-C2C and so on."""
    nominal: Rate
    """Per direction."""
    h2d: Rate
    """Host to device, alone."""
    d2h: Rate
    """Device to host, alone."""
    both: Rate
    """Both directions together when both are busy."""
    latency_queued: Time
    """What a copy costs beside its bytes when it waits in a queue with others."""
    latency_synchronised: Time
    """What a copy costs beside its bytes when the host waits for it, from call to return."""
    size_curve: Curve = ()
    """Measured rate of queued copies to the device by their size, latency included: [[1 MB, 11.7 GB/s], ...]."""
    size_curve_d2h: Curve = ()
    """The same of copies to the host; without it they have the curve of copies to the device."""
    kernel_read: Rate | None = None
    """Kernels that read host memory in place, 128 bytes and more at once; absent: as fast as copies to the device."""
    kernel_write: Rate | None = None
    """Kernels that write host memory in place; absent: as fast as copies to the host."""
    load: Time | None = None
    """A load of a kernel from host memory that depends on the one before."""
    peer: Rate | None = None
    """To another GPU that has no links of its own, past the host's memory; absent: as fast as copies to the host."""
    peer_both: Rate | None = None
    """The same when both copy to each other, both together; absent: twice that."""
    staged: Rate | None = None
    """To another GPU by way of the host's memory; absent: a share of the slower direction."""
    staged_both: Rate | None = None
    """The same when both copy to each other, both together."""
    staged_latency: Time | None = None
    """A small write to another GPU by way of the host's memory."""

    @model_validator(mode="after")
    def _below_nominal(self) -> Link:
        _no_faster("h2d", self.h2d, "nominal", self.nominal)
        _no_faster("d2h", self.d2h, "nominal", self.nominal)
        for name in ("kernel_read", "kernel_write", "peer", "staged"):
            if getattr(self, name) is not None:
                _no_faster(name, getattr(self, name), "nominal", self.nominal)
        if self.both.value > self.h2d.value + self.d2h.value:
            raise refuse(f"'both' ({self.both.text()}) is above the sum of 'h2d' and 'd2h'")
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class CopyEngines:
    """How many copies of a direction run at once; the others of that direction wait in order."""

    h2d: Count
    """Copies to the device at once."""
    d2h: Count
    """Copies to the host at once."""


EAGER_RULE = "5 to 10 us in PyTorch; docs/traces.md"
_EAGER: Any = {"value": "6 us", "low": "5 us", "high": "10 us", "basis": "estimated", "source": EAGER_RULE}


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Launch:
    """What a kernel costs beside its work."""

    submit: Time
    """Host time of one launch."""
    eager: Time = Time(**_EAGER)
    """Host time of one operator of an eager framework, its launch included; below `submit` it is `submit`."""
    gap: Time
    """Device time between two kernels of a stream, from the end of one to the start of the next."""
    queue: Count
    """Launches by which the host may be ahead of the device."""
    empty: Time | None = None
    """What a kernel without work takes from start to end; recorded and modelled times of operators have it in them."""
    copy: Time | None = None
    """The same of a copy within the device's memory that the driver makes, beside its bytes; absent: as of such a kernel."""
    barrier: Time | None = None
    """What a pass of a looping kernel costs beside its bytes: all thread blocks wait for each other; absent: a rule."""


_UNKNOWN: Any = {"value": "0 us", "basis": "estimated", "source": "unknown, counted as nothing: not measured apart from sizes"}
_HOST_FREE: Any = {
    "value": "25 ms", "high": "284 ms", "basis": "estimated",
    "source": "unmapping and releasing memory of the host's node on an RTX 4050 laptop: 24.2 us per MiB (call latency study, "
    "public GitHub file); high: 8.52 s for 30 GiB (github.com/novitalabs/pegaflow/pull/275)",
}  # fmt: skip
_FIRST_TOUCH: Any = {
    "value": "48 ms", "basis": "estimated",
    "source": "1.42 ms for the 32 MB of a new bytearray (github.com/rapidsai/dask-cuda/issues/106)",
}  # fmt: skip


@dataclass(frozen=True, config=STRICT, kw_only=True)
class AllocationCosts:
    """Host time of memory calls."""

    malloc: Time
    """cudaMalloc, beside what grows with the size."""
    malloc_per_gib: Time
    """cudaMalloc, what each GiB adds."""
    free: Time
    """cudaFree, beside its wait for the device and what grows with the size."""
    free_per_gib: Time
    """cudaFree, what each GiB adds."""
    host_alloc_per_gib: Time
    """Allocating and pinning host memory (cudaHostAlloc): what each GiB adds."""
    host_alloc: Time = Time(**_UNKNOWN)
    """cudaHostAlloc, beside what grows with the size."""
    host_free_per_gib: Time = Time(**_HOST_FREE)
    """Giving pinned host memory back: what each GiB adds."""
    first_touch_per_gib: Time = Time(**_FIRST_TOUCH)
    """The first write to host memory that is not pinned: the system clears and maps its pages."""
    map: Time
    """One physical block of 2 MiB: create, map, set access."""
    unmap: Time
    """One physical block of 2 MiB: unmap, release."""
    cached_alloc: Time
    """A request that a caching allocator serves from what it holds."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Peer:
    """The way to other GPUs of the same node."""

    kind: Word
    nominal: Rate
    """Per direction, all links of one GPU."""
    rate: Rate
    """Reached in one direction to one peer."""
    latency: Time
    """A small write to a peer."""
    both: Rate | None = None
    """Reached by two GPUs that copy to each other, both together; absent: twice `rate`."""
    load: Time | None = None
    """A load of a kernel from a peer's memory that depends on the one before."""

    @model_validator(mode="after")
    def _below_nominal(self) -> Peer:
        _no_faster("rate", self.rate, "nominal", self.nominal)
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Cxl:
    """Memory that the CPU reaches over CXL: the GPU's copies cross its own link as well."""

    kind: Word
    capacity: Size
    read: Rate
    """Reached by large reads of it."""
    write: Rate
    """Reached by large writes to it."""
    latency: Time
    """What an access takes that misses all caches."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Network:
    """The network card next to the GPU, which reads and writes memory of another host (RDMA)."""

    kind: Word
    nominal: Rate
    """Per direction."""
    rate: Rate
    """Reached in one direction between the memory of a GPU and another host's."""
    latency: Time
    """A small message, one way."""

    @model_validator(mode="after")
    def _below_nominal(self) -> Network:
        _no_faster("rate", self.rate, "nominal", self.nominal)
        return self


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Collective:
    """NCCL's collectives among the GPUs of the node, by the bytes that one GPU sends."""

    rate: Rate
    """Of large ones."""
    latency: Time
    """What a collective costs beside its bytes, among others in a stream, `launch.gap` excluded."""
    size_curve: Curve = ()
    """Measured rate by the bytes that one GPU sends, latency included."""
    channels: Count | None = None
    """Multiprocessors that a collective takes, one for each of its channels; absent: it takes none."""


# Sources of the numbers that all profiles have unless they say another one.
RULES = frozenset(str(number["source"]) for number in (_EAGER, _CPU_REMOTE, _UNKNOWN, _HOST_FREE, _FIRST_TOUCH))


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Profile:
    """One machine: a GPU, the host that it sits in, and a disk."""

    name: Word
    summary: Word
    """One line."""
    sources: dict[str, Word]
    """Key -> author, machine, method, where to read it; or the rule of an estimate."""
    gpu: Gpu
    memory: DeviceMemory
    context: Size
    """What the CUDA context and its modules take from the memory's capacity."""
    host: Host
    nvme: Nvme
    link: Link
    copy_engines: CopyEngines
    launch: Launch
    allocation: AllocationCosts
    peer: Peer | None = None
    """Absent where GPUs meet only over the link."""
    collective: Collective | None = None
    """Absent where collectives were not measured: then they are copies to a peer."""
    cxl: Cxl | None = None
    """Absent where there is none, or nothing is known of it."""
    network: Network | None = None
    """Absent where nothing is known of it."""
    paging: Paging | None = None
    """Unified memory; what it does not say is derived from the link and the nearest machine that was measured."""

    @model_validator(mode="after")
    def _room(self) -> Profile:
        if self.context.value >= self.memory.capacity.value:
            raise refuse(f"'context' ({self.context.text()}) leaves nothing of the memory's capacity")
        return self


def load_file(path: Path) -> Profile:
    """The profile in a YAML file.  Raises ConfigError with all its mistakes."""
    doc = document.read(path)
    sources: Any = doc.data.get("sources") if isinstance(doc.data, dict) else None
    return validate.build(Profile, doc, context=sources if isinstance(sources, dict) else {})


def changed(profile: Profile, path: str, value: float) -> Profile:
    """A copy in which the number at `path` ("host.capacity", "link.h2d") is `value`, in base units.

    It counts as estimated, its source reads "given".  Raises ProfileError for a path that leads to no number.
    """
    new: Profile = _changed(profile, path.split("."), value, path)
    return new


def _changed(part: Any, steps: list[str], value: float, path: str) -> Any:
    new = copy.copy(part)
    if isinstance(part, Quantity) and not steps:
        for name, given in {"value": value, "basis": "estimated", "source": GIVEN, "low": None, "high": None}.items():
            object.__setattr__(new, name, given)  # frozen everywhere else; the text of units is not read again
        return new
    known = part if isinstance(part, dict) else {f: getattr(part, f) for f in getattr(part, "__dataclass_fields__", ())}
    if not steps or isinstance(part, Quantity) or known.get(steps[0]) is None:
        hint = "" if not steps or isinstance(part, Quantity) else suggest(steps[0], known)
        raise ProfileError(f"'{path}' is not a number of a profile", hint=hint)
    item = _changed(known[steps[0]], steps[1:], value, path)
    if isinstance(part, dict):
        return part | {steps[0]: item}
    object.__setattr__(new, steps[0], item)
    return new


def _no_faster(name: str, quantity: Quantity, limit: str, most: Quantity) -> None:
    if quantity.value > most.value:
        raise refuse(f"'{name}' ({quantity.text()}) is above '{limit}' ({most.text()})")
