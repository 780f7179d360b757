"""A machine as unified memory meets it: plain numbers, from a profile's section `paging` or derived.

What the section does not say follows from the link, and from the nearest machine that says more:

    C2C ────────────────▶ gh200-96gb ──┐
    Blackwell, desktop ─▶ rtx-5070-ti ─┼─▶ t4 (Turing and later) ─▶ gtx-1080-ti (Pascal, Volta; fitted, knows all)
    any other ─────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.base.yaml import values
from gpusim.base.yaml.find import find, folders
from gpusim.machine import loads, streaming, variant
from gpusim.machine.paging import Paging
from gpusim.machine.profile import Profile, load_file
from gpusim.machine.quantity import Time


@dataclass(frozen=True)
class DriverWork:
    """What the driver spends on the host, in ns."""

    interrupt: float = 0.0   # of one service pass (bottom half): up to max_batches batches
    batch: float = 0.0       # a fault batch
    fault: float = 0.0       # a fault in it
    block: float = 0.0       # a block served
    first_touch: float = 0.0 # a GPU's first page of a block, and memory found by an eviction
    setup: float = 0.0       # from a block's first page until the GPU has page tables for it, while the driver goes on
    page: float = 0.0        # a page moved: unmapping, page tables ...
    page_out: float | None = None  # ... one that is evicted; None: as one that comes
    chunk: float = 0.0       # a contiguous piece of host memory in it: unmapping, DMA mapping
    run: float = 0.0         # each run of adjacent pages beyond the first
    replay: float = 2000.0
    first_fault: float = 0.0 # once in a process
    cpu_fault: float = 5000.0
    cpu_page: float = 400.0  # a page that the CPU touches first: allocation, zeroing
    fault_interval: float = 0.0  # of the GPU: from a uTLB's fault to its next; 0: all at once
    report_interval: float = 0.0  # of all its uTLBs together: from a report in the fault buffer to the next
    invalidate: float = 0.0  # of the GPU: its page tables and TLBs lose entries, before what was there is copied


@dataclass(frozen=True)
class HostLink:
    """Host and GPU: ns to start a copy, bytes/s; each direction."""

    in_start: float
    in_rate: float
    out_start: float
    out_rate: float
    remote_rate: float          # of kernels that read host memory, in lines of 128 bytes ...
    remote_request: float = 0.0 # ... and ns that each request costs beside
    remote_store: float = 0.0   # ns beside of a store that fills no line


@dataclass(frozen=True)
class Platform:
    name: str
    sms: int
    memory: int                # bytes that unified memory can use
    hbm: float                 # bytes/s of a streaming kernel
    link: HostLink
    work: DriverWork
    warps: int = 64            # an SM holds
    blocks: int = 32           # thread blocks an SM holds
    sms_per_utlb: int = 1
    gpcs: int = 1              # graphics processing clusters, which report faults in turn
    outstanding: int = 56      # pages of a uTLB that may be waited for ...
    entries: int = 56          # ... and entries, of aligned 16 KiB, in which they lie
    buffer: int = 8192         # entries of the fault buffer
    page: int = 4096           # of the host
    cpu_rate: float = 10e9     # bytes/s of a program that fills or reads host memory with one thread
    coherent: bool = False     # can the CPU reach GPU memory, fast (NVLink2 to POWER9, C2C)?
    peer_rate: float = 0.0     # bytes/s from GPU to GPU (NVLink); 0: they do not reach each other's memory
    ats: bool = False          # does the GPU walk the CPU's page tables?
    host_memory: int = 0       # bytes; 0: as much as is needed
    gap: float = 0.0           # ns between two kernels of a stream
    submit: float = 0.0        # ns of the host for a launch: kernels of a loop come no faster
    turn: float = 0.0          # ns from a load of a thread to its next in a loop; 0: any number of threads fills the memory
    scattered_rate: float = 0.0  # bytes/s of sectors that lie in a page each; 0: as all others
    fp32: float = 0.0          # flop/s of a kernel that computes
    l2: int = 0
    unified: bool = False      # one memory for both: nothing migrates (Jetson)
    parameters: Mapping[str, int | str] = field(default_factory=dict)  # of the driver, as the profile sets them


@dataclass(frozen=True)
class Number:
    """One number of a machine's paging, in base units, with where it comes from."""

    value: float
    basis: str
    source: str


# Resident at once on an SM, warps and thread blocks, by compute capability: CUDA C++ Programming Guide, technical
# specifications.  Others are as the nearest before.
RESIDENT = {
    "6.0": (64, 32), "7.5": (32, 16), "8.0": (64, 32), "8.6": (48, 16), "8.9": (48, 24), "9.0": (64, 32), "12.0": (48, 24),
}  # fmt: skip
# SMs of a whole GPC, by compute capability: NVIDIA's architecture whitepapers (GP100, GP102, GV100, TU102, GA100, GA102, AD102,
# GH100, GB203).  Others are as the nearest before.
SMS_OF_GPC = {"6.0": 10, "6.1": 5, "7.0": 14, "7.5": 12, "8.0": 16, "8.6": 12, "9.0": 18, "12.0": 12}
ON_CPU = {
    "service_pass", "batch", "fault", "block", "first_touch", "page", "page_out", "chunk", "run", "first_fault", "cpu_fault",
    "cpu_page",
}  # fmt: skip
ON_GPU = {"replay", "invalidate", "start_h2d", "start_d2h"}
# Rates that are a share of the link's.
OF_LINK = {"rate_h2d": "h2d", "rate_d2h": "d2h", "remote_rate": "h2d"}
NUMBERS = [f.name for f in fields(Paging) if f.name not in ("coherent", "ats", "parameters")]


# The catalogue's machines from which others follow; FIRST says all.
COHERENT, DESKTOP, LATER, FIRST = "gh200-96gb", "rtx-5070-ti", "t4", "gtx-1080-ti"


def nearest(profile: Profile) -> str:
    """The catalogue's profile from which follows what this one does not say of unified memory."""
    if "C2C" in profile.link.kind and profile.name != COHERENT:
        return COHERENT
    if _order(profile.gpu.compute_capability)[0] == 12 and profile.name != DESKTOP:  # Blackwell's servers have 10, Thor 11
        return DESKTOP
    return FIRST if profile.gpu.architecture in ("Pascal", "Volta") or profile.name == LATER else LATER


def origins() -> list[Path]:
    """The files of those machines: what a run under unified memory depends on beside its own profile."""
    return [folders("profile")[0] / f"{name}.yaml" for name in (COHERENT, DESKTOP, LATER, FIRST)]


def numbers(profile: Profile) -> dict[str, Number]:
    """All numbers of the section `paging`: as the profile says, else estimated from the nearest machine's."""
    said = {name: getattr(profile.paging, name, None) for name in NUMBERS}
    found = {name: Number(q.value, q.basis, q.source) for name, q in said.items() if q is not None}
    if len(found) == len(NUMBERS):
        return found
    near = _profile(nearest(profile))
    theirs = numbers(near)
    capability = profile.gpu.compute_capability
    resident = _by_capability(RESIDENT, capability)
    for name in NUMBERS:
        value, rule = theirs[name].value, f"as {near.name}"
        if name in ("warps", "thread_blocks"):
            value, rule = resident[name == "thread_blocks"], f"compute capability {capability}"
        elif name in OF_LINK:
            value *= getattr(profile.link, OF_LINK[name]).value / getattr(near.link, OF_LINK[name]).value
            rule = f"the share of the link's rate of {near.name}"
        elif name == "remote_sector_rate":
            value *= found["remote_rate"].value / theirs["remote_rate"].value
            rule = f"the share of remote_rate of {near.name}"
        elif name == "scattered_rate":
            value *= profile.memory.bandwidth.value / near.memory.bandwidth.value
            rule = f"the share of the memory's nominal rate of {near.name}"
        found.setdefault(name, Number(value, "estimated", rule))
    return found


def completed(profile: Profile) -> Profile:
    """The profile with the driver's costs that it does not name, as estimates like its own; rates follow its link as before."""
    said = profile.paging or Paging()
    made: dict[str, Any] = {
        name: _estimate(number)
        for name, number in numbers(profile).items()
        if name in ON_CPU | ON_GPU and getattr(said, name) is None
    }
    new = copy(profile)
    object.__setattr__(new, "paging", replace(said, **made))  # its sources are rules: the table of sources need not have them
    return new


def _estimate(number: Number) -> Time:
    text: Any = f"{number.value!r} ns"  # as the file of a profile would have it
    return Time(value=text, basis="estimated", source=number.source)


def of(profile: Profile, memory: int | None = None) -> Platform:
    """The machine of a profile.  memory: bytes of the GPU for managed memory; all but the context's when None."""
    v = {name: number.value for name, number in numbers(profile).items()}
    said = profile.paging or Paging()
    near_host = profile.link.kind.startswith("NVLink")
    # A request costs its time and its bytes': two unknowns, from lines of 128 bytes and sectors of 32.
    line, sector = 128e9 / v["remote_rate"], 32e9 / v["remote_sector_rate"]
    byte = (line - sector) / 96
    return Platform(
        name=profile.name,
        sms=int(profile.gpu.sm_count.value),
        memory=int(profile.memory.capacity.value - profile.context.value) if memory is None else memory,
        hbm=profile.memory.copy.value,
        host_memory=profile.host.capacity.value,
        gap=profile.launch.gap.value,
        submit=profile.launch.submit.value,
        turn=loads.memory_latency(profile) + loads.LOOP / profile.gpu.boost_clock.value * 1e9,
        scattered_rate=v["scattered_rate"],
        fp32=streaming.multiply_adds(profile) if profile.gpu.fma or "fp32" in profile.gpu.peak else 0.0,
        l2=int(profile.gpu.l2.value),
        link=HostLink(
            v["start_h2d"], v["rate_h2d"], v["start_d2h"], v["rate_d2h"], 1e9 / byte, sector - 32 * byte, v["remote_store"],
        ),
        work=DriverWork(
            v["service_pass"], v["batch"], v["fault"], v["block"], v["first_touch"], v["setup"], v["page"], v["page_out"],
            v["chunk"], v["run"], v["replay"], v["first_fault"], v["cpu_fault"], v["cpu_page"], v["fault_interval"],
            v["report_interval"], v["invalidate"],
        ),
        warps=int(v["warps"]),
        blocks=int(v["thread_blocks"]),
        sms_per_utlb=int(v["sms_per_utlb"]),
        gpcs=-(-int(profile.gpu.sm_count.value) // _by_capability(SMS_OF_GPC, profile.gpu.compute_capability)),
        outstanding=int(v["outstanding_faults"]),
        entries=int(v["outstanding_entries"]),
        buffer=int(v["fault_buffer"]),
        page=int(v["host_page"]),
        cpu_rate=v["cpu_rate"],
        coherent=near_host if said.coherent is None else said.coherent,
        ats=near_host if said.ats is None else said.ats,
        unified=profile.memory.unified,
        parameters=said.parameters or {},
    )  # fmt: skip


def load(machine: str) -> Platform:
    """The machine that a name means, "gtx-1080-ti" or "gtx-1080-ti(gpu.sm_count=14)"."""
    return of(variant.load(find("profile", values.machine(machine)[0]), machine))


@cache
def _profile(name: str) -> Profile:
    """The catalogue's own, whatever lies in the working directory."""
    return load_file(next(path for path in origins() if path.stem == name))


def _by_capability(table: Mapping[str, Any], capability: str) -> Any:
    return table[max((c for c in table if _order(c) <= _order(capability)), key=_order, default="6.0")]


def _order(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))
