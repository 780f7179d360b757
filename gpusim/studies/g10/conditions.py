"""What a paged replay assumes of the machine, as its study states it, and what follows per tick."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Conditions:
    """The machine of the study.  Sizes in GiB and bytes, rates in GB/s (10^9) as its configuration files give them."""

    hertz: int = 1_200_000_000  # of the clock whose cycles are all times
    page: int = 4096            # bytes
    burst: int = 50             # pages that a tick moves in, and out, at most
    device_gib: float = 40.0
    host_gib: float = 128.0
    pcie: float = 15.754        # GB/s each way
    ssd: float = 3.2            # GB/s each way
    alloc_us: float = 8.14e-7   # us per byte to make a page on the device
    fault_us: float = 45.0      # of a far fault; these two only weigh the SSD's share, and serve the planner
    ssd_us: float = 20.0
    loosen: float = 1.0         # the planner's target over 99 % of the device, which the study sets by network and batch
    line: float = 1.0           # the same of what FlashNeuron plans for
    unprofiled: float = 1_063_004_400.0  # bytes/ms at which faults are served that were not seen to cost whole seconds

    @property
    def tick(self) -> int:
        """Cycles in which PCIe moves a burst."""
        return int(self.burst * self.page / (self.pcie * 1e9 / self.hertz))

    @property
    def ssd_pages(self) -> int:
        """Pages of a burst that the SSD can move."""
        return int(self.burst / self.pcie * self.ssd)

    @property
    def allocs(self) -> int:
        """Pages that a tick can make."""
        return self.tick // round(self.alloc_us * self.page / 1e6 * self.hertz)

    @property
    def target(self) -> int:
        """Bytes that the planner aims at."""
        return int(int(self.device_gib * GIB) * 0.99)

    @property
    def device_pages(self) -> int:
        return round(self.device_gib * GIB / self.page)

    @property
    def host_pages(self) -> int:
        return int(self.host_gib * GIB / self.page)
