"""Where the memory is that a program holds and does not use, and which blocks keep it from being freed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.policies.trials.allocator_replay import AllocatorReplay
from gpusim.policies.trials.allocator_requests import AllocatorRequests
from gpusim.policies.trials.requests import R_ALLOC
from gpusim.results.log import RELEASE, RESERVE
from gpusim.studies.fragmentation.heap import Heap, History

CAUSES = {
    "slack": "rounding: bytes of blocks beyond what was requested",
    "idle": "whole segments without a block in use, kept for later",
    "stream": "free blocks that only another stream may use",
    "pool": "free blocks of the pool for other sizes (small or large requests)",
    "oversize": "free blocks above max_split_size, which smaller requests may not cut",
    "pieces": "free blocks that are too small for the request: they lie between blocks in use",
    "rest": "what the request left of the segment that was taken for it",
}
NEARLY = 0.98  # of the most ever held


@dataclass(frozen=True)
class Apart:
    """What an allocator keeps apart, so that one request cannot have the free memory of another.

    stream    a free block serves only requests of its own stream
    small     requests of at most that many bytes (rounded to 512) have segments of their own; 0: no such pool
    oversize  free blocks of at least that many bytes are not cut for smaller requests; 0: all are
    """

    stream: int = 0
    small: int = 0
    oversize: int = 0


@dataclass(frozen=True)
class Pin:
    """Segments that cannot be given back because of a few tensors allocated at one place of the program."""

    site: str          # where the tensors come from: a stack frame, or what they are
    segments: int
    free: int          # bytes that lie free in them
    tensors: int
    tensor_bytes: int  # requested
    born: int          # trace event of the oldest of these tensors
    example: int       # its id


@dataclass(frozen=True)
class Diagnosis:
    """One moment: the first refusal, or else when nearly the most was held.  All figures in bytes.

    request   number of the request at this moment; size, stream: what it asked for
    causes    name (see CAUSES) -> bytes, of held - requested, largest first
    """

    request: int
    refused: bool
    size: int
    stream: int
    held: int
    rounded: int
    requested: int
    largest_hole: int
    causes: dict[str, int]
    pins: list[Pin]
    heap: Heap

    @property
    def idle(self) -> int:
        """Bytes held and not requested."""
        return self.held - self.requested

    @property
    def internal(self) -> float:
        """1 - requested / rounded: what rounding costs."""
        return 1 - self.requested / self.rounded if self.rounded else 0.0

    @property
    def external(self) -> float:
        """1 - largest free block / free bytes."""
        free = self.held - self.rounded
        return 1 - self.largest_hole / free if free else 0.0

    @property
    def main(self) -> str:
        """The cause of most of it, "" when nothing is wasted."""
        return next((name for name, size in self.causes.items() if size), "")


def diagnose(replay: AllocatorReplay, apart: Apart | None = None) -> Diagnosis:
    """Look at the moment that decides whether the program fits.  The replay needs its event log."""
    rows = replay.program.rows()
    refused = not replay.fits
    at = replay.counts["refused_at"] if refused else _nearly_full(replay, rows)
    heap = History(replay.log, len(rows)).at(at)
    sizes = replay.program.size[heap.blocks.unit]
    causes = _causes(heap, rows, at, apart or Apart())
    causes["slack"] = heap.rounded - int(sizes.sum())
    return Diagnosis(
        request=at, refused=refused, size=int(rows["size"][at]) if len(rows) else 0,
        stream=int(rows["stream"][at]) if len(rows) else 0,
        held=heap.held, rounded=heap.rounded, requested=int(sizes.sum()), largest_hole=int(heap.hole_bytes.max(initial=0)),
        causes=dict(sorted(causes.items(), key=lambda item: -item[1])), pins=_pins(heap, replay.program), heap=heap,
    )  # fmt: skip


def _nearly_full(replay: AllocatorReplay, rows: Any) -> int:
    """The request that brought what is held to nearly its peak.  What came later was too little to matter.

    A recording that began with all of it held: the request at which the most was in use.
    """
    log = replay.log
    change = np.where(log["kind"] == RESERVE, log["bytes"], np.where(log["kind"] == RELEASE, -log["bytes"], 0))
    held = np.cumsum(change)
    at = int(log["t"][np.argmax(held >= NEARLY * held.max())]) if len(held) else 0
    if at == 0 and len(rows):
        at = int(replay.program.asked().argmax())
    return at


def _causes(heap: Heap, rows: Any, at: int, apart: Apart) -> dict[str, int]:
    """Divide the free bytes by the first reason for which the request at hand could not have them."""
    if not len(heap.hole_bytes):
        return {}
    maker = rows[heap.segments.start]  # the request for which each segment was taken
    request, size, of = rows[at], heap.hole_bytes, heap.of
    wanted = -(-int(request["size"]) // 512) * 512
    made_for = -(-maker["size"] // 512) * 512
    reasons = {
        "idle": heap.live_in()[of] == 0,
        "stream": (maker["stream"][of] != request["stream"]) & (apart.stream != 0),
        "pool": (made_for <= apart.small)[of] != (wanted <= apart.small),
        "oversize": (size >= apart.oversize) & (0 < wanted < apart.oversize),
        "pieces": (size < wanted) | (request["kind"] != R_ALLOC),
        "rest": np.ones(len(size), bool),
    }
    found, left = {}, np.ones(len(size), bool)
    for name, applies in reasons.items():
        found[name] = int(size[left & applies].sum())
        left &= ~applies
    return found


def _pins(heap: Heap, program: AllocatorRequests) -> list[Pin]:
    """Per site: the segments, mostly free, in which tensors of this site have the most bytes; most free bytes first."""
    free = np.zeros(len(heap.segments), np.int64)
    np.add.at(free, heap.of, heap.hole_bytes)
    site = program.site[heap.blocks.unit]
    held: dict[int, list[int]] = {}
    for b, segment in enumerate(heap.home.tolist()):
        held.setdefault(segment, []).append(b)
    by_site: dict[int, list[int]] = {}
    for segment, members in held.items():
        if free[segment] * 2 > heap.segments.bytes[segment]:
            weight = np.bincount(site[members], heap.blocks.bytes[members])
            by_site.setdefault(int(weight.argmax()), []).append(segment)
    pins = []
    for s, found in by_site.items():
        mine = [b for segment in found for b in held[segment] if site[b] == s]
        units = heap.blocks.unit[mine]
        oldest = mine[int(heap.blocks.start[mine].argmin())]
        born = int(heap.blocks.start[oldest])
        pins.append(
            Pin(program.sites[s], len(found), int(free[found].sum()), len(mine), int(program.size[units].sum()),
                int(program.event[born]), int(heap.blocks.unit[oldest]))
        )  # fmt: skip
    return sorted(pins, key=lambda pin: (-pin.free, pin.site))
