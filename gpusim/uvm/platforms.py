"""Machines for unified memory: geometry, links, and what the driver's work costs.

`fitted` numbers come from the rows marked calibrate of docs' measurement table (see `calibration.py`); `derived` ones from the
link's nominal rate and the fitted machine nearest in driver and CPU; `estimated` ones are neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    first_fault: float = 0.0 # once in a process
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
    sms_per_utlb: int = 1
    outstanding: int = 56      # pages of a uTLB that may be waited for (Allen and Ge, Volta)
    buffer: int = 8192         # entries of the fault buffer
    page: int = 4096           # of the host
    cpu_rate: float = 10e9     # bytes/s of a program that fills or reads host memory with one thread
    coherent: bool = False     # can the CPU reach GPU memory, fast (NVLink2 to POWER9, C2C)?
    unified: bool = False      # one memory for both: nothing migrates (Jetson)


def pcie(rate: float) -> Link:
    """A PCIe link whose copies reach `rate`: they start as those of the GTX 1080 Ti, and kernels get as much in full lines."""
    return Link(1404.0, rate, 780.0, 1.044 * rate, 0.9 * rate)


# Fitted: the rows of the GTX 1080 Ti give the sum of pass, batch, fault, block and replay, 12.17 us; its parts are estimated.
# A process' first fault beyond a block's first: 126 us on the same machine (a row marked context).
PASCAL = Work(interrupt=5110.0, batch=3000.0, fault=60.0, block=2000.0, first_touch=32_240.0, page=231.0,
              first_fault=126_300.0)
GEN3, GEN4, GEN5 = 12.79e9, 25.6e9, 51.2e9  # copies on x16: fitted, and what that becomes at twice and four times the clock

# A later driver and CPU.  Fitted: the five median batches of the T4, with the shares of the above kept.
TURING = replace(
    PASCAL, **{k: 0.95 * getattr(PASCAL, k) for k in ("interrupt", "batch", "fault", "block", "first_touch", "page")}
)

# Estimated: a desktop CPU of 2025 does about 2.2 times as much per thread as the cloud CPU of the T4.
DESKTOP = replace(
    PASCAL, cpu_fault=2500.0, cpu_page=300.0,
    **{k: getattr(TURING, k) / 2.2 for k in ("interrupt", "batch", "fault", "block", "first_touch", "page", "first_fault")},
)  # fmt: skip

GTX_1080_TI = Platform("GTX 1080 Ti", 28, 11 * GIB, 380e9, pcie(GEN3), PASCAL)
GTX_1080 = replace(GTX_1080_TI, name="GTX 1080", sms=20, memory=8 * GIB, hbm=250e9)
P4000 = replace(GTX_1080_TI, name="Quadro P4000", sms=14, memory=8 * GIB, hbm=190e9)
P100 = Platform("Tesla P100 SXM2", 56, 16 * GIB, 550e9, pcie(GEN3), PASCAL)
TITAN_V = Platform("Titan V", 80, 12 * GIB, 580e9, pcie(GEN3), PASCAL)
V100_PCIE = Platform("V100 PCIe 16 GB", 80, 16 * GIB, 800e9, pcie(GEN3), PASCAL)
V100_P9 = Platform("V100 SXM2, POWER9", 80, 16 * GIB, 800e9, Link(1404.0, 63e9, 780.0, 63e9, 68e9), PASCAL, page=65536,
                   coherent=True)  # fmt: skip
T4 = Platform("T4", 40, 15 * GIB, 260e9, pcie(GEN3 / 2), TURING, warps=32, blocks=16)
RTX_2080_SUPER = Platform("RTX 2080 Super", 48, 8 * GIB, 430e9, pcie(GEN3), TURING, warps=32, blocks=16)
A5000 = Platform("RTX A5000", 64, 24 * GIB, 690e9, pcie(GEN4), DESKTOP, warps=48, blocks=16)
RTX_5070_TI = Platform("RTX 5070 Ti", 70, 15_584 << 20, 800e9, pcie(GEN5), DESKTOP, warps=48, blocks=24)
RTX_5090 = Platform("RTX 5090", 170, 32_150 << 20, 1600e9, pcie(GEN5), DESKTOP, warps=48, blocks=24)
GH200 = Platform("GH200", 132, 94 * GIB, 3728e9, Link(1404.0, 377e9, 780.0, 297e9, 331e9), TURING, page=65536, coherent=True,
                 cpu_rate=348e9)  # fmt: skip
JETSON_ORIN = Platform("Jetson AGX Orin", 16, 60 * GIB, 190e9, pcie(GEN3), TURING, warps=48, blocks=16, unified=True)

PLATFORMS = {
    p.name: p
    for p in (GTX_1080_TI, GTX_1080, P4000, P100, TITAN_V, V100_PCIE, V100_P9, T4, RTX_2080_SUPER, A5000, RTX_5070_TI, RTX_5090,
              GH200, JETSON_ORIN)
}  # fmt: skip
