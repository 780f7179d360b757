"""The hardware profile: one machine, every number with its unit, its basis and its source.

    basis       measured   somebody ran it; the source says who, on what, and how
                published  the vendor's figure
                estimated  neither is known; the source states the rule it follows from

Values are held in base units: bytes (int), bytes/s, ns, flop/s, Hz, W (float).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass

from gpusim.config import document, fields, validate
from gpusim.config.fields import STRICT, refuse
from gpusim.errors import suggest
from gpusim.units import BYTES, FLOPS, FRACTION, FREQUENCY, POWER, RATE, TIME, Kind

Basis = Literal["measured", "published", "estimated"]


def _known_source(key: str, info: ValidationInfo) -> str:
    known = (info.context or {}).get("sources", ())
    if info.context is not None and key not in known:
        raise refuse(f"'{key}' is not in the table 'sources'", suggest(key, known))
    return key


SourceKey = Annotated[str, AfterValidator(_known_source)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Quantity:
    """A number of the machine: `{value: 450 GB/s, basis: measured, source: key}`, with error bars where known."""

    kind: ClassVar[Kind | None] = None
    value: float
    basis: Basis
    source: SourceKey
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Size(Quantity):
    """Bytes."""

    kind: ClassVar[Kind | None] = BYTES
    value: fields.Bytes
    low: fields.Bytes | None = None
    high: fields.Bytes | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Rate(Quantity):
    """Bytes per second."""

    kind: ClassVar[Kind | None] = RATE
    value: fields.BytesPerSecond
    low: fields.BytesPerSecond | None = None
    high: fields.BytesPerSecond | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Time(Quantity):
    """Nanoseconds."""

    kind: ClassVar[Kind | None] = TIME
    value: fields.Nanoseconds
    low: fields.Nanoseconds | None = None
    high: fields.Nanoseconds | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Compute(Quantity):
    """Floating point operations per second."""

    kind: ClassVar[Kind | None] = FLOPS
    value: fields.FlopPerSecond
    low: fields.FlopPerSecond | None = None
    high: fields.FlopPerSecond | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Frequency(Quantity):
    """Hz."""

    kind: ClassVar[Kind | None] = FREQUENCY
    value: fields.Hertz
    low: fields.Hertz | None = None
    high: fields.Hertz | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Power(Quantity):
    """W."""

    kind: ClassVar[Kind | None] = POWER
    value: fields.Watts
    low: fields.Watts | None = None
    high: fields.Watts | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Share(Quantity):
    """A fraction of 1."""

    kind: ClassVar[Kind | None] = FRACTION
    value: fields.Fraction
    low: fields.Fraction | None = None
    high: fields.Fraction | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Count(Quantity):
    """A number of things, without a unit."""

    value: fields.Natural
    low: fields.Natural | None = None
    high: fields.Natural | None = None


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Gpu:
    """The processor."""

    architecture: str
    compute_capability: str
    sm_count: Count
    boost_clock: Frequency
    l2: Size
    tdp: Power
    peak: dict[str, Compute]  # dense, by element type: fp32, tf32, fp16, bf16, fp8


@dataclass(frozen=True, config=STRICT, kw_only=True)
class DeviceMemory:
    """The GPU's memory.  Rates count the bytes that cross the memory's pins: a copy of n bytes moves 2 n."""

    kind: str  # HBM3, GDDR6, LPDDR5, ...
    capacity: Size
    bandwidth: Rate  # nominal: pins times clock
    read: Rate  # reached by kernels that only read
    write: Rate  # ... only write
    copy: Rate  # ... read as much as they write (read + written bytes)
    copy_engine: Rate  # device-to-device by a copy engine (read + written bytes)
    unified: bool = False  # it is the CPU's memory as well: host copies are copies within it


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Host:
    """The CPU's memory, as the GPU meets it."""

    capacity: Size
    bandwidth: Rate  # of the socket next to the GPU
    pageable_h2d: Rate  # copies from memory that is not pinned: the CPU stages them
    pageable_d2h: Rate
    numa_remote: Share  # of the link's rate, when the pinned memory is on the other socket


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Nvme:
    """The disk below the host's memory."""

    capacity: Size
    read: Rate
    write: Rate
    latency: Time


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Link:
    """Between GPU and host memory; rates are those of large copies of pinned memory."""

    kind: str  # PCIe 4.0 x16, NVLink-C2C, ...
    nominal: Rate  # per direction
    h2d: Rate
    d2h: Rate
    both: Rate  # both directions together, at once
    latency_queued: Time  # from the end of one copy in a queue to the first byte of the next
    latency_synchronised: Time  # of a small copy that the host waits for, call to return
    size_curve: tuple[tuple[fields.Bytes, fields.BytesPerSecond], ...] = ()  # measured rate (H2D) of a copy by its size


@dataclass(frozen=True, config=STRICT, kw_only=True)
class CopyEngines:
    """How many copies of a direction run at once; the others of that direction wait in order."""

    h2d: Count
    d2h: Count


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Launch:
    """What a kernel costs beside its work."""

    submit: Time  # host time of one launch
    gap: Time  # device time between two kernels that follow each other in a stream
    queue: Count  # launches that the host may be ahead


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Allocation:
    """Host time of memory calls."""

    malloc: Time  # cudaMalloc
    malloc_per_gib: Time
    free: Time  # cudaFree, beside its wait for the device
    free_per_gib: Time
    host_alloc_per_gib: Time  # pinning host memory
    map: Time  # one 2 MiB physical block: create, map, set access
    unmap: Time
    cached_alloc: Time  # a request that a caching allocator serves from what it holds


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Peer:
    """NVLink to GPUs of the same node."""

    kind: str
    nominal: Rate  # per direction, all links of one GPU
    rate: Rate  # reached in one direction to one peer
    latency: Time


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Profile:
    """One machine."""

    name: str
    summary: str
    sources: dict[str, str]  # key -> who, where, how
    gpu: Gpu
    memory: DeviceMemory
    context: Size  # what the CUDA context and its modules take from the capacity
    host: Host
    nvme: Nvme
    link: Link
    copy_engines: CopyEngines
    launch: Launch
    allocation: Allocation
    peer: Annotated[Peer | None, Field(description="absent where GPUs meet only over the link")] = None


def load_file(path: Path) -> Profile:
    """The profile in a YAML file.  Raises ConfigError with all its mistakes."""
    doc = document.read(path)
    sources = doc.data.get("sources") if isinstance(doc.data, dict) else None
    return validate.build(Profile, doc, context={"sources": tuple(sources) if isinstance(sources, dict) else ()})
