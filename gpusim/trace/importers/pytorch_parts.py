"""What a PyTorch memory snapshot is made of, as the importers read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusim.trace.importers.pytorch_ranges import SMALL_PAGE, RecordedSegment

IN_USE = "active_allocated"
LIVE_STATES = (IN_USE, "active_pending_free", "active_awaiting_free")
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom",
    "snapshot",
)  # fmt: skip
TAKEN, GIVEN = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


class Event(NamedTuple):
    """One entry of the ring buffer; bytes, and microseconds since any origin or -1; the private pool, -1: not told."""

    action: str
    addr: int
    size: int
    stream: int = 0
    time_us: int = -1
    category: str = "unknown"
    line: int = 0
    pool: int = -1


class RecordedBlock(NamedTuple):
    """A block that is in use: bytes requested; the block's own size, -1: not told."""

    size: int
    stream: int = 0
    category: str = "unknown"
    space: int = -1


class Doubt:
    """The first thing that shows that a snapshot does not tell all, and how many events contradict the final state."""

    def __init__(self) -> None:
        self.first, self.lost = "", Counter[str]()

    def that(self, sentence: str) -> None:
        self.first = self.first or sentence

    def loses(self, what: str, number: int, event: Event, sentence: str) -> None:
        self.lost[what] += 1
        self.that(f"event {number} ({event.action} of {event.size} bytes at {event.addr:#x}) {sentence}")


@dataclass
class Snapshot:
    """One device's final state and events; addresses are keys.

    waiting  final blocks that were freed, and that other streams still use
    causes   number of an event with which memory begins to be given back -> why (pytorch_causes.py), where that is told
    """

    blocks: dict[int, RecordedBlock] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    segments: dict[int, RecordedSegment] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    causes: dict[int, str] = field(default_factory=dict)


def segment_of(event: Event) -> RecordedSegment:
    """What a segment's event says of it; pages that come for a small request are one."""
    mapped = event.action in ("segment_map", "segment_unmap")
    small = event.size == SMALL_PAGE if event.action == "segment_map" else None
    return RecordedSegment(event.size, event.stream, mapped, small, event.pool)


def hex_stream(handle: int) -> str:
    """A stream handle as it is listed in the meta: "0" is the default stream."""
    return f"{handle:#x}" if handle else "0"
