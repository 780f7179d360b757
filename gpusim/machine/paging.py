"""What a machine adds to unified memory: how its GPU faults, what the driver's work costs there, how far memory is away.

All of it is optional; what a profile does not say is derived from its link and from the nearest machine that was measured
(gpusim/machine/platforms.py).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StrictBool, StrictInt, model_validator
from pydantic.dataclasses import dataclass

from gpusim.base.errors import suggest
from gpusim.base.yaml.fields import STRICT, refuse
from gpusim.machine.driver_parameters import PARAMETERS
from gpusim.machine.quantity import Count, Rate, Size, Time


def _known(given: dict[str, int | str]) -> dict[str, int | str]:
    for name in given:
        if name not in PARAMETERS:
            raise refuse(f"nvidia-uvm has no module parameter '{name}'", suggest(name, PARAMETERS))
    return given


Parameters = Annotated[dict[str, StrictInt | str], AfterValidator(_known)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Paging:
    """Faults, migrations and remote accesses of unified memory."""

    host_page: Size | None = None
    """Page of the host's kernel: 4 KiB on x86, 64 KiB on POWER9 and most Grace."""
    coherent: StrictBool | None = None
    """CPU and GPU reach each other's memory at the link's speed (NVLink to POWER9, C2C)."""
    ats: StrictBool | None = None
    """The GPU walks the CPU's page tables: what malloc gave can be used as well (address translation services)."""

    warps: Count | None = None
    """Warps that an SM holds."""
    thread_blocks: Count | None = None
    """Thread blocks that an SM holds."""
    sms_per_utlb: Count | None = None
    """SMs that share a uTLB, which faults for them."""
    outstanding_faults: Count | None = None
    """Pages of a uTLB that may be waited for at once."""
    outstanding_entries: Count | None = None
    """Entries of a uTLB, of aligned 16 KiB each, in which these pages lie."""
    fault_buffer: Count | None = None
    """Entries of the buffer from which the driver fetches faults."""
    fault_interval: Time | None = None
    """From a fault that a uTLB reports to its next."""
    report_interval: Time | None = None
    """From a report of the GPU in the fault buffer to its next, of whatever uTLB."""

    service_pass: Time | None = None
    """The driver's work on an interrupt: top and bottom half, before the first batch."""
    batch: Time | None = None
    """A batch of faults, beside what is in it."""
    fault: Time | None = None
    """A fault in a batch: fetched, sorted, checked."""
    block: Time | None = None
    """A block of 2 MiB that is served: locked, copies waited for, mapped."""
    first_touch: Time | None = None
    """The driver's work on the first page of a block on a GPU, beside, and on finding memory for one by an eviction."""
    setup: Time | None = None
    """After it, until the GPU has page tables for the block; the driver serves other blocks meanwhile."""
    page: Time | None = None
    """A page that moves: unmapped here, mapped there."""
    page_out: Time | None = None
    """The same of a page that is evicted."""
    page_kept: Time | None = None
    """A page of what is mostly read that a service finds there already: the driver works out its permission all the same."""
    chunk: Time | None = None
    """A physically contiguous piece of host memory that moves in part or as a whole: unmapped, found for the GPU."""
    run: Time | None = None
    """Each run of adjacent pages beyond the first of a service, beside its copy."""
    replay: Time | None = None
    """Telling the GPU to try again, until it has."""
    first_fault: Time | None = None
    """What the first fault of a process takes beside."""
    cpu_fault: Time | None = None
    """A page fault of the CPU, beside what moves."""
    cpu_page: Time | None = None
    """4 KiB at their first touch, by the CPU: allocated and zeroed."""
    cpu_rate: Rate | None = None
    """A program fills or reads host memory that is there, with one thread where the source names no more."""

    start_h2d: Time | None = None
    """A copy to the device in the fault path, beside its bytes."""
    start_d2h: Time | None = None
    """A copy to the host in the fault path, beside its bytes."""
    rate_h2d: Rate | None = None
    """Large copies to the device in the fault path."""
    rate_d2h: Rate | None = None
    """Large copies to the host in the fault path."""
    remote_rate: Rate | None = None
    """Kernels that read host memory where it is, in lines of 128 bytes and wider."""
    remote_sector_rate: Rate | None = None
    """The same, in lone sectors of 32 bytes."""
    remote_store: Time | None = None
    """What a store to host memory takes beside its bytes, where it fills no line of 128."""
    scattered_rate: Rate | None = None
    """Kernels that touch sectors of 32 bytes in the device's memory, each in another page; of bytes in these sectors."""

    parameters: Parameters | None = None
    """Module parameters of nvidia-uvm on this machine, by the driver's names; those of an experiment come before."""

    @model_validator(mode="after")
    def _requests_take_time(self) -> Paging:
        line, sector = self.remote_rate, self.remote_sector_rate
        if line and sector and not line.value / 4 < sector.value <= line.value:
            raise refuse("'remote_sector_rate' must lie between a quarter of 'remote_rate' and all of it")
        return self
