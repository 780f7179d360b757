"""Why a request failed: causes with their bytes, each a comparison of what was live, requested, held and left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.studies.fragmentation.answer import Cause
from gpusim.studies.fragmentation.growth import Leak
from gpusim.studies.fragmentation.moment import EITHER, LARGE_POOL, SMALL, SMALL_POOL, Moment

NOTICED = 0.02     # of the device's memory: less is not a cause
CONTEXT = 1 << 30  # bytes outside PyTorch that any program has: CUDA context, libraries
MIB = 1 << 20

WORDS = {
    "pieces": "free pieces between live blocks, each too small for the request",
    "stream": "free blocks of other streams, which PyTorch gives to requests of their own stream only",
    "pool": "free blocks in segments for requests of the other size class (small: up to 1 MiB)",
    "oversize": "free blocks kept whole by max_split_size_mb",
    "private_pool": "free blocks of a private pool (CUDA graph, MemPool), which other requests cannot use",
    "rounding": "blocks are larger than what was requested",
}


def of_failure(m: Moment, limit: int, device: int, conf: str = "") -> list[Cause]:
    """Why the request failed.

    limit   what the allocator could hold at that moment, ENDLESS where unknown
    device  all of the device's memory as far as it is known, else `limit`
    """
    if limit >= ENDLESS:
        return []
    lacks = m.requested + m.size - limit
    found = []
    if lacks > 0:
        found.append(Cause("shortage", lacks, "live tensors and the request need more than the device had for PyTorch"))
        beyond = m.requested + m.size - device if device > limit else m.size - limit
        if beyond > 0:
            found.append(Cause("impossible", beyond, "no device of this size could serve it"))
    else:
        found += fragmented(m, conf)
    outside = device - limit
    if outside > normal(device) and limit - m.held + outside - normal(device) >= segment(m.size):
        found.append(Cause("foreign", outside, "memory outside PyTorch (CUDA context, NCCL, other processes)"))
    return found


def normal(device: int) -> int:
    """Bytes outside PyTorch's allocator that are nothing to wonder at."""
    return max(CONTEXT, int(NOTICED * device))


def segment(size: int) -> int:
    """What PyTorch takes from the device for a request that no free block serves."""
    if size <= SMALL:
        return 2 * MIB
    return 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB


def leaked(leaks: Sequence[Leak], least: float) -> list[Cause]:
    """All that steps leave behind, if it is worth a word; the detail names the place with most of it."""
    total = sum(leak.bytes for leak in leaks)
    if not leaks or total < least:
        return []
    first, more = leaks[0], f" and {len(leaks) - 1} more" if len(leaks) > 1 else ""
    return [Cause("leak", total, f"{show_bytes(first.per_step)} per step from {first.site}{more}, never freed")]


def fragmented(m: Moment, conf: str = "") -> list[Cause]:
    """Why free bytes could not serve the request: each reason that would have sufficed, else the largest together."""
    found = reasons(m, conf)
    if m.live > m.requested:
        found["rounding"] = m.live - m.requested
    left = max(m.left, 0)
    enough = [name for name, size in found.items() if left + size >= m.size]
    if not enough:
        reached = left
        for name, size in sorted(found.items(), key=lambda item: -item[1]):
            if reached >= m.size:
                break
            enough.append(name)
            reached += size
    return [Cause("fragmentation", found[name], f"{name}: {WORDS[name]}") for name in enough]


def reasons(m: Moment, conf: str = "") -> dict[str, int]:
    """Free bytes by the first reason for which the request could not have them."""
    h, left = m.holes, np.ones(len(m.holes.bytes), bool)
    small = SMALL_POOL if m.size <= SMALL else LARGE_POOL
    limit = "max_split_size_mb" in conf
    tests = {
        "private_pool": h.private | (h.whole & m.failed),  # before it fails, PyTorch gives back all other whole segments
        "pool": (h.pool != small) & (h.pool != EITHER),
        "pieces": h.bytes < m.size,
        "stream": h.stream != m.stream,
        # What would have served is the uncut rest of an oversize block, else of a pool that the recording does not tell.
        "oversize" if limit else "private_pool ": np.ones(len(left), bool),
    }
    found: dict[str, int] = {}
    for name, applies in tests.items():
        size = int(h.bytes[left & applies].sum())
        if size:
            found[name.strip()] = found.get(name.strip(), 0) + size
        left &= ~applies
    return found
