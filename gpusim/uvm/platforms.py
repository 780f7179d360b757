"""Machines for unified memory: geometry, links, and what the driver's work costs.

`fitted` numbers come from the rows marked calibrate of docs' measurement table (see `calibration.py`); `derived` ones from the
link's nominal rate and the fitted machine nearest in driver and CPU; `estimated` ones are neither.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class Work:
    """What the driver spends on the host, in ns."""

    interrupt: float = 0.0   # of one service pass (bottom half): up to max_batches batches
    batch: float = 0.0       # a fault batch
    fault: float = 0.0       # a fault in it
    block: float = 0.0       # a block served
    first_touch: float = 0.0 # a GPU's first page of a block
    page: float = 0.0        # a page moved: unmapping, DMA mapping, page tables
    run: float = 0.0         # each run of adjacent pages beyond the first
    replay: float = 2000.0
    cpu_fault: float = 5000.0
    cpu_page: float = 400.0  # a page that the CPU touches first: allocation, zeroing


@dataclass(frozen=True)
class Link:
    """Host and GPU: ns to start a copy, bytes/s; each direction."""

    in_start: float
    in_rate: float
    out_start: float
    out_rate: float
    remote_rate: float          # of kernels that read host memory, in lines of 128 bytes ...
    remote_request: float = 0.0 # ... and ns that each request costs beside


@dataclass(frozen=True)
class Platform:
    name: str
    sms: int
    memory: int                # bytes that unified memory can use
    hbm: float                 # bytes/s of a streaming kernel
    link: Link
    work: Work
    warps: int = 64            # an SM holds
    blocks: int = 32           # thread blocks an SM holds
    sms_per_utlb: int = 2
    outstanding: int = 56      # pages of a uTLB that may be waited for (Allen and Ge, Volta)
    buffer: int = 8192         # entries of the fault buffer
    page: int = 4096           # of the host
    cpu_rate: float = 10e9     # bytes/s of a program that fills or reads host memory with one thread
    coherent: bool = False     # can the CPU reach GPU memory, fast (NVLink2 to POWER9, C2C)?
    unified: bool = False      # one memory for both: nothing migrates (Jetson)


def pcie(rate: float) -> Link:
    """Copies start as on the GTX 1080 Ti; kernels reach 87 % of the copy rate with full lines, 40 % with single sectors."""
    return Link(810.0, rate, 760.0, 1.06 * rate, 0.95 * rate, 0.0)


PASCAL = Work(interrupt=5000.0, batch=3300.0, fault=60.0, block=2000.0, first_touch=32_000.0, page=220.0)

GTX_1080_TI = Platform("GTX 1080 Ti", 28, 11 * GIB, 380e9, pcie(12.2e9), PASCAL)
