"""PyTorch memory snapshots as a trace: what was there at the start, found by walking back, then the events.

A snapshot holds the allocator's final segments and blocks and a ring buffer of events.  Going backwards from the final
blocks, an `alloc` removes its block, a `free_completed` puts one back, a `segment_alloc` removes the segment, a
`segment_free` puts it back; what remains was there before the first event.  A tensor's FREE is `free_completed`, when
its memory can be used again; `free_requested` is used only where a recording lacks the other.  Where other events lie
between the two, since other streams still used the memory, the meta tells of the earlier one as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusim.errors import TraceError
from gpusim.trace.build import Names, TraceBuilder
from gpusim.trace.trace import OOM, SEGMENT_ALLOC, SEGMENT_FREE, SNAPSHOT, Trace

IN_USE = "active_allocated"
LIVE_STATES = (IN_USE, "active_pending_free", "active_awaiting_free")
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom",
    "snapshot",
)  # fmt: skip


class Event(NamedTuple):
    """One entry of the ring buffer; bytes, and microseconds since any origin or -1."""

    action: str
    addr: int
    size: int
    stream: int = 0
    time_us: int = -1
    category: str = "unknown"
    line: int = 0


class Block(NamedTuple):
    """A block that is in use: bytes requested, not the block's own size."""

    size: int
    stream: int = 0
    category: str = "unknown"


class Segment(NamedTuple):
    size: int
    stream: int = 0


@dataclass
class Snapshot:
    """One device's final state and events; addresses are keys.

    waiting  final blocks that were freed, and that other streams still use
    """

    blocks: dict[int, Block] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    segments: dict[int, Segment] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


def to_trace(snapshot: Snapshot, build: TraceBuilder, meta: dict[str, object]) -> Trace:
    """The trace of one device; `meta` is what the importer knows of the source.  Raises TraceError."""
    if not snapshot.events and not snapshot.blocks:
        raise TraceError("the snapshot holds no event and no block in use", build.path, "record history before the snapshot")
    seen = Counter(event.action for event in snapshot.events)
    frees = "free_completed" if seen["free_completed"] or not seen["free_requested"] else "free_requested"
    lost, unfinished = _rewind(snapshot, frees)
    warnings = _warnings(snapshot, lost)
    streams = Names("0")
    tensors: dict[int, int] = {}
    asked: dict[int, int] = {}  # address -> number of events before its free was requested
    apart: list[list[int]] = []
    for addr, segment in sorted(snapshot.segments.items()):
        build.event(SEGMENT_ALLOC, addr=addr, nbytes=segment.size, stream=streams(hex_stream(segment.stream)))
    for addr, block in sorted(snapshot.blocks.items()):
        tensors[addr] = build.alloc(block.size, block.category, addr=addr, stream=streams(hex_stream(block.stream)))
    at_start = sum(block.size for block in snapshot.blocks.values())
    origin = next((event.time_us for event in snapshot.events if event.time_us >= 0), 0)
    clock, late = 0, 0
    for number, event in enumerate(snapshot.events):
        build.line = event.line
        time = -1
        if event.time_us >= 0:
            late += (event.time_us - origin) * 1000 < clock
            time = clock = max(clock, (event.time_us - origin) * 1000)
        stream = streams(hex_stream(event.stream))
        if event.action == "alloc":
            if event.addr in tensors:
                raise TraceError(f"event {number} allocates address {event.addr:#x}, which is in use", build.where)
            tensors[event.addr] = build.alloc(event.size, event.category, stream=stream, time=time, addr=event.addr)
        elif number in unfinished:
            continue
        elif event.action == frees:
            if event.addr not in tensors:
                raise TraceError(f"event {number} frees address {event.addr:#x}, which is not in use", build.where)
            before = asked.pop(event.addr, build.events)
            if before < build.events:
                apart.append([tensors[event.addr], before])
            build.free(tensors.pop(event.addr), stream=stream, time=time, addr=event.addr)
        elif event.action == "free_requested":
            asked[event.addr] = build.events
        elif event.action in ("segment_alloc", "segment_map"):
            build.event(SEGMENT_ALLOC, stream=stream, time=time, addr=event.addr, nbytes=event.size)
        elif event.action in ("segment_free", "segment_unmap"):
            build.event(SEGMENT_FREE, stream=stream, time=time, addr=event.addr, nbytes=event.size)
        elif event.action == "oom":
            build.event(OOM, stream=stream, time=time, addr=event.addr, nbytes=event.size)  # addr: what the device had left
        elif event.action == "snapshot":
            build.event(SNAPSHOT, stream=stream, time=time)
    build.meta = {
        **meta,
        "lacks": ["accesses", "operators", "kernel times"] + ([] if clock else ["times"]),
        "filled": {
            "start": f"{len(snapshot.blocks)} tensors of {at_start} bytes, found by walking back from the final blocks",
            "free": f"a tensor ends at its {frees}",
        },
        "start": {"tensors": len(snapshot.blocks), "bytes": at_start, "segments": len(snapshot.segments)},
        "streams": list(streams),
        "times_out_of_order": late,
        "warnings": warnings,
    }
    if apart:
        build.meta["free_requested"] = apart  # [tensor, number of events before the request]
    return build.finish()


def _rewind(snapshot: Snapshot, frees: str) -> tuple[Counter[str], set[int]]:
    """Turns the final blocks and segments into those before the first event.

    Counts what contradicts the events, and tells which requests to free were not completed.
    """
    blocks, segments, lost = snapshot.blocks, snapshot.segments, Counter[str]()
    waiting, unfinished = set(snapshot.waiting), set[int]()
    for number in range(len(snapshot.events) - 1, -1, -1):
        event = snapshot.events[number]
        if event.action == "alloc":
            waiting.discard(event.addr)
            if blocks.pop(event.addr, None) is None:
                lost["alloc"] += 1
        elif event.action == frees and event.addr in waiting:
            waiting.discard(event.addr)
            unfinished.add(number)
        elif event.action == frees:
            if event.addr in blocks:
                lost["free"] += 1
            blocks[event.addr] = Block(event.size, event.stream, event.category)
        elif event.action in ("segment_alloc", "segment_map"):
            if not _take(segments, event.addr, event.size):
                lost["segment"] += 1
        elif event.action in ("segment_free", "segment_unmap"):
            segments[event.addr] = Segment(event.size, event.stream)
    return lost, unfinished


def _take(segments: dict[int, Segment], addr: int, size: int) -> bool:
    """Removes the range; a mapped range may be part of a run of them, which is then cut."""
    whole = segments.get(addr)
    if whole is not None and whole.size == size:
        del segments[addr]
        return True
    for start, run in segments.items():
        if start <= addr and addr + size <= start + run.size:
            del segments[start]
            if start < addr:
                segments[start] = Segment(addr - start, run.stream)
            if addr + size < start + run.size:
                segments[addr + size] = Segment(start + run.size - addr - size, run.stream)
            return True
    return False


def _warnings(snapshot: Snapshot, lost: Counter[str]) -> list[str]:
    found = []
    if snapshot.blocks and snapshot.events:
        found.append(
            f"the recording begins with {len(snapshot.blocks)} tensors in use: it was switched on late, or its ring "
            "buffer lost the beginning (raise max_entries)"
        )
    if not snapshot.events:
        found.append("the snapshot holds no events, only its final state")
    if snapshot.waiting:
        found.append(f"{len(snapshot.waiting)} tensors are freed at the end, but still used on other streams: they stay in use")
    if lost:
        listed = ", ".join(f"{n} {what}" for what, n in lost.items())
        found.append(f"{sum(lost.values())} events contradict the final state ({listed})")
    return found


def hex_stream(handle: int) -> str:
    """A stream handle as it is listed in the meta: "0" is the default stream."""
    return f"{handle:#x}" if handle else "0"
