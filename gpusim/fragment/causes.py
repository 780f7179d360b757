"""Why a request failed, or what is wrong although none did: causes with their bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from gpusim.fragment.answer import Cause
from gpusim.fragment.growth import Leak
from gpusim.fragment.moment import EITHER, LARGE_POOL, SMALL, SMALL_POOL, Moment
from gpusim.fragment.replay import ENDLESS
from gpusim.units import show_bytes

NOTICED = 0.02  # of the device's memory: less is not a cause
WASTED = 0.10   # of what is held: where nothing failed, less is what caching costs any program
OTHER_SEGMENT = 20 << 20  # beyond the request, an allocator may leave a free block of such a size uncut

WORDS = {
    "pieces": "free pieces between live blocks, each too small for the request",
    "stream": "free blocks of other streams, which PyTorch gives to requests of their own stream only",
    "pool": "free blocks in segments for requests of the other size class (small: up to 1 MiB)",
    "oversize": "free blocks kept whole by max_split_size_mb",
    "private_pool": "free blocks of a private pool (CUDA graph, MemPool), which other requests cannot use",
    "rounding": "blocks are larger than what was requested",
}


def causes(m: Moment, leaks: Sequence[Leak], limit: int, device: int, conf: str = "", peak: int = 0) -> list[Cause]:
    """Most bytes first.

    limit   what the allocator could hold at that moment, ENDLESS where unknown
    device  what it could hold were nothing else on the device, ENDLESS where unknown
    peak    most bytes in live blocks at any time
    """
    leaked = sum(leak.bytes for leak in leaks)
    found = [leak_cause(leaks)] if leaks else []
    outside = device - limit if limit <= device < ENDLESS else 0
    if outside >= NOTICED * device:
        found.append(Cause("foreign", outside, _OUTSIDE))
    else:
        outside = 0
    if not m.failed:
        return _by_size([*found, *_wasted(m, peak)])
    if limit >= ENDLESS:
        return found
    missing = m.size - (limit - m.live)
    slack = m.live - m.requested
    if m.size > (device if device < ENDLESS else limit):
        found.append(Cause("impossible", m.size - min(device, limit), "the request alone is larger than what there is"))
    elif missing > leaked + outside + slack:
        found.append(Cause("shortage", missing, "live tensors and the request need more than there is"))
    elif missing > leaked + outside:
        found.append(Cause("fragmentation", slack, f"rounding: {WORDS['rounding']}"))
    elif missing <= 0:
        found += fragmented(m, conf)
    return _by_size(found)


_OUTSIDE = "memory of the device that PyTorch's allocator does not hold (CUDA context, NCCL, other processes)"


def leak_cause(leaks: Sequence[Leak]) -> Cause:
    """All that steps leave behind; the detail names the place with most of it."""
    first, total = leaks[0], sum(leak.bytes for leak in leaks)
    more = f" and {len(leaks) - 1} more" if len(leaks) > 1 else ""
    return Cause("leak", total, f"{show_bytes(first.per_step)} per step from {first.site}{more}, never freed")


def _by_size(found: list[Cause]) -> list[Cause]:
    return sorted(found, key=lambda cause: -cause.bytes)


def fragmented(m: Moment, conf: str = "") -> list[Cause]:
    """Why free bytes could not serve the request: each reason that would have sufficed, else the largest together."""
    found = reasons(m, conf)
    slack = m.live - m.requested
    if slack:
        found["rounding"] = slack
    left = max(m.left, 0)
    enough = [name for name, size in found.items() if name != "rounding" and left + size >= m.size]
    if not enough:
        reached = left
        for name, size in sorted(found.items(), key=lambda item: -item[1]):
            if reached >= m.size:
                break
            enough.append(name)
            reached += size
    return [Cause("fragmentation", found[name], f"{name}: {WORDS[name]}") for name in enough]


def reasons(m: Moment, conf: str = "") -> dict[str, int]:
    """Free bytes by the first reason for which the request could not have them; without a request all are "pieces"."""
    h, left = m.holes, np.ones(len(m.holes.bytes), bool)
    small = SMALL_POOL if m.size <= SMALL else LARGE_POOL
    limit = re.search(r"max_split_size_mb\s*:\s*(\d+)", conf)
    largest = int(limit[1]) << 20 if limit else ENDLESS
    tests = {
        "pieces": (h.bytes < m.size) | (m.size == 0),
        "private_pool": h.private,
        "pool": (h.pool != small) & (h.pool != EITHER),
        "stream": h.stream != m.stream,
        "oversize": (h.bytes >= largest) & ((m.size < largest) | (h.bytes >= m.size + OTHER_SEGMENT)),
        "private_pool ": np.ones(len(left), bool),  # it would have served: so it was not the request's pool
    }
    found: dict[str, int] = {}
    for name, applies in tests.items():
        size = int(h.bytes[left & applies].sum())
        if size:
            found[name.strip()] = found.get(name.strip(), 0) + size
        left &= ~applies
    return found


def _wasted(m: Moment, peak: int) -> list[Cause]:
    """Where nothing failed: what is held at the peak beyond the most that ever lives."""
    if m.held < 0 or m.held - max(peak, m.live) < WASTED * m.held:
        return []
    whole = int(m.holes.bytes[m.holes.whole].sum())
    between = int(m.holes.bytes.sum()) - whole
    found = []
    if whole >= WASTED * m.held:
        found.append(Cause("cached", whole, "whole segments without a live block, kept for later"))
    if between >= WASTED * m.held:
        found.append(Cause("fragmentation", between, "pieces: free pieces between live blocks"))
    return found
