"""Memory snapshots of our own making, with the figures of real ones that ended out of memory.  Bytes throughout."""

from __future__ import annotations

from typing import Any

MIB, GIB = 1 << 20, 1 << 30
PAGE = 20 * MIB


class Expandable:
    """One device under expandable segments, every request larger than 1 MiB: blocks one behind the other in a range.

    Counted by hand, as the allocator would: pages are mapped as far as the last block reaches, and unmapped from the end.
    """

    def __init__(self, device: int) -> None:
        self.device, self.base = device, (device + 1) << 44
        self.mapped = self.end = 0
        self.blocks: dict[int, int] = {}
        self.events: list[dict[str, Any]] = []

    def event(self, action: str, size: int, **more: int) -> None:
        self.events.append({"action": action, "size": size, "stream": 0, "frames": [], **more})

    def alloc(self, size: int) -> int:
        """At the end of the range; sizes are multiples of 512."""
        at = self.end
        pages = -(-(at + size - self.mapped) // PAGE)
        if pages > 0:
            self.event("segment_map", pages * PAGE, addr=self.base + self.mapped)
            self.mapped += pages * PAGE
        self.event("alloc", size, addr=self.base + at)
        self.blocks[at], self.end = size, at + size
        return at

    def free(self, at: int) -> None:
        size = self.blocks.pop(at)
        self.end = max((a + s for a, s in self.blocks.items()), default=0)
        for action in ("free_requested", "free_completed"):
            self.event(action, size, addr=self.base + at)

    def empty_cache(self) -> None:
        """The whole pages behind the last block."""
        kept = -(-self.end // PAGE) * PAGE
        if kept < self.mapped:
            self.event("segment_unmap", self.mapped - kept, addr=self.base + kept)
            self.mapped = kept

    def oom(self, size: int, free: int) -> None:
        self.event("oom", size, device_free=free)

    def segment(self) -> dict[str, Any]:
        """The final state."""
        listed, at = [], 0
        for start, size in [*sorted(self.blocks.items()), (self.mapped, 0)]:
            if at < start:
                listed.append({"address": self.base + at, "size": start - at, "requested_size": 0, "state": "inactive"})
            if size:
                used = {"address": self.base + start, "size": size, "requested_size": size, "state": "active_allocated"}
                listed.append(used)
            at = start + size
        return {
            "device": self.device, "address": self.base, "total_size": self.mapped, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": True, "blocks": listed,
        }  # fmt: skip


def three_gpus(kept: int = 60) -> dict[str, Any]:
    """Three devices alike.  On each 78.29 GiB live of 78.42 GiB mapped, and 0.09 GiB free, when 4.94 GiB are asked for.

    Earlier 15.5 GiB were mapped, freed and unmapped.  kept: so many events are in the ring buffer, the last ones.
    """
    devices = []
    for number in range(3):
        one = Expandable(number)
        for _ in range(24):
            one.alloc(int(2.6 * GIB) // 512 * 512)
        early = [one.alloc(int(3.875 * GIB)) for _ in range(4)]
        for at in reversed(early):
            one.free(at)
        one.empty_cache()
        gaps = []
        for size in (15 * MIB,) * 8:
            one.alloc(1980 * MIB)
            gaps.append(one.alloc(size))
        one.alloc(int(78.29 * GIB) // MIB * MIB + 8 * 15 * MIB - one.end)
        for at in gaps:
            one.free(at)
        one.oom(int(4.94 * GIB) // 512 * 512, int(0.09 * GIB))
        devices.append(one)
    return {
        "segments": [one.segment() for one in devices],
        "device_traces": [one.events[-kept:] for one in devices],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    }


def map_and_unmap() -> dict[str, Any]:
    """100 MiB mapped, allocated, freed; 80 MiB of it unmapped."""
    one = Expandable(0)
    kept = one.alloc(10 * MIB)
    one.free(one.alloc(90 * MIB))
    one.empty_cache()
    one.free(kept)
    return {"segments": [one.segment()], "device_traces": [one.events]}
