"""How long a kernel takes when all its pages are there: what a program does not state follows from what its threads do.

The longest of: its bytes at the rate that so many threads reach (Little's law), its sectors that lie in a page each, its
arithmetic, the host's launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusim.machine.loads import little
from gpusim.machine.platforms import Platform
from gpusim.programs.managed.pattern import LANES, SECTOR
from gpusim.programs.managed.steps import Access, Kernel, moved_bytes, scattered_sectors


def kernel_ns(kernel: Kernel, platform: Platform, sizes: Mapping[str, int]) -> float:
    """sizes: bytes of the allocations."""
    moving = max(_streaming(kernel, platform), _scattered(kernel, platform, sizes))
    computing = kernel.flops / platform.fp32 * 1e9 if kernel.flops else 0.0
    return max(max(moving, computing) + platform.gap, platform.submit)


def resident_blocks(kernel: Kernel, platform: Platform) -> int:
    """Thread blocks that one SM holds."""
    warps = -(-kernel.block[0] * kernel.block[1] // LANES)
    return min(platform.warps // warps, platform.blocks)


def _streaming(kernel: Kernel, platform: Platform) -> float:
    moved = moved_bytes(kernel.accesses, kernel, platform.l2)
    if not moved or not platform.turn:
        return moved / platform.hbm * 1e9
    block, ctas = kernel.block[0] * kernel.block[1], kernel.grid[0] * kernel.grid[1]
    threads = min(ctas, resident_blocks(kernel, platform) * platform.sms) * block
    each = moved / (ctas * block * kernel.steps[0] * kernel.steps[1] * _rounds(kernel.accesses))
    most = platform.sms * platform.warps * LANES
    return moved / little(platform.hbm, each, threads, most, platform.turn) * 1e9


def _rounds(accesses: Sequence[Access]) -> int:
    """How often in a step a warp waits for memory: for its first loads together, and for those that need them; for no store."""
    return 1 + sum(bool(a.waits) and not a.write for a in accesses)


def _scattered(kernel: Kernel, platform: Platform, sizes: Mapping[str, int]) -> float:
    """Of arrays that L2 does not hold."""
    if not platform.scattered_rate:
        return 0.0
    far = [a for a in kernel.accesses if sizes[a.array] > platform.l2]
    return scattered_sectors(far, kernel) * SECTOR / platform.scattered_rate * 1e9
