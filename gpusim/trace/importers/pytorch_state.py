"""PyTorch memory snapshots as a trace: what was there at the start, found by walking back, then the events.

A snapshot holds the allocator's final segments and blocks and a ring buffer of events.  Going backwards from the final
blocks, an `alloc` removes its block, a `free_completed` puts one back, a `segment_alloc` removes the segment, a
`segment_free` puts it back, pages that were mapped or unmapped likewise; what remains was there before the first event.  A
tensor's FREE is `free_completed`, when its memory can be used again; `free_requested` is used only where a recording lacks
the other.  Where other events lie between the two, since other streams still used the memory, the meta tells of the earlier
one as well.

Where events and final state contradict each other, or a block lies in no segment, the meta says so in one sentence
("incomplete"): what was held cannot be told from such a snapshot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpusim.errors import TraceError
from gpusim.trace.build import Names, TraceBuilder
from gpusim.trace.importers.pytorch_ranges import SMALL_PAGE, Held, Segment
from gpusim.trace.trace import OOM, SEGMENT_ALLOC, SEGMENT_FREE, SNAPSHOT, Trace

IN_USE = "active_allocated"
LIVE_STATES = (IN_USE, "active_pending_free", "active_awaiting_free")
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom",
    "snapshot",
)  # fmt: skip
TAKEN, GIVEN = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
SMALL_REQUEST, ROUND = 1 << 20, 512


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


class Block(NamedTuple):
    """A block that is in use: bytes requested; the block's own size, -1: not told."""

    size: int
    stream: int = 0
    category: str = "unknown"
    space: int = -1


@dataclass
class Snapshot:
    """One device's final state and events; addresses are keys.

    waiting  final blocks that were freed, and that other streams still use
    """

    blocks: dict[int, Block] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    segments: dict[int, Segment] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)


class _Doubt:
    """The first thing that shows that the snapshot does not tell all, and how many events contradict the final state."""

    def __init__(self) -> None:
        self.first, self.lost = "", Counter[str]()

    def that(self, sentence: str) -> None:
        self.first = self.first or sentence

    def loses(self, what: str, number: int, event: Event, sentence: str) -> None:
        self.lost[what] += 1
        self.that(f"event {number} ({event.action} of {event.size} bytes at {event.addr:#x}) {sentence}")


def to_trace(snapshot: Snapshot, build: TraceBuilder, meta: dict[str, object]) -> Trace:
    """The trace of one device; `meta` is what the importer knows of the source.  Raises TraceError."""
    if not snapshot.events and not snapshot.blocks:
        raise TraceError("the snapshot holds no event and no block in use", build.path, "record history before the snapshot")
    seen = Counter(event.action for event in snapshot.events)
    frees = "free_completed" if seen["free_completed"] or not seen["free_requested"] else "free_requested"
    doubt = _Doubt()
    if not snapshot.segments and not any(seen[action] for action in TAKEN + GIVEN):
        doubt.that("it tells no segment, so what was held is not known")
    held, unfinished = _rewind(snapshot, frees, doubt)
    walk = _Walk(build, held, doubt)
    begun = len(held.segments)
    walk.begin(snapshot.blocks)
    at_start = sum(block.size for block in snapshot.blocks.values())
    walk.through(snapshot.events, frees, unfinished)
    build.meta = {
        **meta,
        "lacks": ["accesses", "operators", "kernel times"] + ([] if walk.clock else ["times"]),
        "filled": {
            "start": f"{len(snapshot.blocks)} tensors of {at_start} bytes, found by walking back from the final blocks",
            "free": f"a tensor ends at its {frees}",
        },
        "start": {"tensors": len(snapshot.blocks), "bytes": at_start, "segments": begun},
        "streams": list(walk.streams),
        "times_out_of_order": walk.late,
        "warnings": _warnings(snapshot, doubt.lost),
    }
    if walk.apart:
        build.meta["free_requested"] = walk.apart  # [tensor, number of events before the request]
    if walk.special():
        build.meta["heap"] = walk.heap
    if doubt.first:
        build.meta["incomplete"] = doubt.first
    return build.finish()


class _Walk:
    """Forwards from the start, event by event.

    heap  what a trace has no column for: of each segment event whether it is a segment ("p") or pages for small ("s") or
          large ("l") requests, [number of the segment event, private pool], the start's segments in the order in which they
          were made, [tensor, bytes] of the start's blocks that are larger than their requests
    """

    def __init__(self, build: TraceBuilder, held: Held, doubt: _Doubt) -> None:
        self.build, self.held, self.doubt = build, held, doubt
        self.streams = Names("0")
        self.tensors: dict[int, int] = {}
        self.asked: dict[int, int] = {}  # address -> number of events before its free was requested
        self.apart: list[list[int]] = []
        self.clock = self.late = 0
        self.kinds: list[str] = []
        self.heap: dict[str, Any] = {"kinds": "", "pools": [], "order": [], "blocks": []}

    def begin(self, blocks: dict[int, Block]) -> None:
        """What was there before the first event."""
        build = self.build
        told = list(self.held)
        if all(segment.number >= 0 for _, segment in told):
            self.heap["order"] = sorted(range(len(told)), key=lambda i: told[i][1].number)
        for addr, segment in told:
            if segment.mapped and segment.small is None:
                segment = segment._replace(small=_seems_small(addr, segment, blocks))
                self.held.segments[addr] = segment
            self.note(segment)
            build.event(SEGMENT_ALLOC, addr=addr, nbytes=segment.size, stream=self.stream(segment.stream))
        end = 0
        for addr, block in sorted(blocks.items()):
            self.tensors[addr] = build.alloc(block.size, block.category, addr=addr, stream=self.stream(block.stream))
            self.inside(addr, block.size, "before the first event")
            if addr < end:
                self.doubt.that(f"before the first event two blocks in use overlap at {addr:#x}")
            end = addr + block.size
            if block.space > -(-block.size // ROUND) * ROUND:
                self.heap["blocks"].append([self.tensors[addr], block.space])

    def through(self, events: list[Event], frees: str, unfinished: set[int]) -> None:
        """unfinished: numbers of the frees that are not complete at the end."""
        build, tensors = self.build, self.tensors
        origin = next((event.time_us for event in events if event.time_us >= 0), 0)
        for number, event in enumerate(events):
            build.line = event.line
            time = -1
            if event.time_us >= 0:
                self.late += (event.time_us - origin) * 1000 < self.clock
                time = self.clock = max(self.clock, (event.time_us - origin) * 1000)
            stream = self.stream(event.stream)
            if event.action == "alloc":
                if event.addr in tensors:
                    raise TraceError(f"event {number} allocates address {event.addr:#x}, which is in use", build.where)
                self.inside(event.addr, event.size, f"at event {number}")
                tensors[event.addr] = build.alloc(event.size, event.category, stream=stream, time=time, addr=event.addr)
            elif number in unfinished:
                continue
            elif event.action == frees:
                if event.addr not in tensors:
                    raise TraceError(f"event {number} frees address {event.addr:#x}, which is not in use", build.where)
                before = self.asked.pop(event.addr, build.events)
                if before < build.events:
                    self.apart.append([tensors[event.addr], before])
                build.free(tensors.pop(event.addr), stream=stream, time=time, addr=event.addr)
            elif event.action == "free_requested":
                self.asked[event.addr] = build.events
            elif event.action in TAKEN or event.action in GIVEN:
                self.segment(number, event)
                kind = SEGMENT_ALLOC if event.action in TAKEN else SEGMENT_FREE
                build.event(kind, stream=stream, time=time, addr=event.addr, nbytes=event.size)
            elif event.action == "oom":
                build.event(OOM, stream=stream, time=time, addr=event.addr, nbytes=event.size)  # addr: what the device had left
            elif event.action == "snapshot":
                build.event(SNAPSHOT, stream=stream, time=time)

    def segment(self, number: int, event: Event) -> None:
        """A segment, or pages, come or go."""
        made = _segment_of(event)
        if event.action == "segment_alloc":
            ok = self.held.put(event.addr, made)
        elif event.action == "segment_map":
            ok = self.held.map(event.addr, made)
        else:
            free = event.action == "segment_free"
            gone = self.held.take(event.addr, event.size) if free else self.held.unmap(event.addr, event.size)
            ok, made = gone is not None, gone or made
        if not ok:
            said = "gives back what is not held" if event.action in GIVEN else "takes what is held already"
            self.doubt.that(f"event {number} ({event.action} of {event.size} bytes at {event.addr:#x}) {said}")
        self.note(made)

    def note(self, segment: Segment) -> None:
        if segment.pool > 0:
            self.heap["pools"].append([len(self.kinds), segment.pool])
        self.kinds.append(("s" if segment.small else "l") if segment.mapped else "p")

    def inside(self, addr: int, size: int, when: str) -> None:
        around = self.held.around(addr)
        if size > 0 and (around is None or addr + size > around[0] + around[1].size):
            self.doubt.that(f"{when} a block of {size} bytes lies at {addr:#x}, where no segment is")

    def special(self) -> bool:
        """There is something to say that the trace's columns do not."""
        self.heap["kinds"] = "".join(self.kinds)
        return "s" in self.kinds or "l" in self.kinds or any(self.heap[key] for key in ("pools", "order", "blocks"))

    def stream(self, handle: int) -> int:
        return self.streams(hex_stream(handle))


def _segment_of(event: Event) -> Segment:
    """What a segment's event says of it; pages that come for a small request are one."""
    mapped = event.action in ("segment_map", "segment_unmap")
    small = event.size == SMALL_PAGE if event.action == "segment_map" else None
    return Segment(event.size, event.stream, mapped, small, max(event.pool, 0))


def _seems_small(addr: int, segment: Segment, blocks: dict[int, Block]) -> bool:
    """Whether pages of which no event tells serve small requests: by their blocks, else by their size."""
    inside = [block.size for at, block in blocks.items() if addr <= at < addr + segment.size]
    return min(inside) <= SMALL_REQUEST if inside else segment.size % (10 * SMALL_PAGE) != 0


def _rewind(snapshot: Snapshot, frees: str, doubt: _Doubt) -> tuple[Held, set[int]]:
    """What was held before the first event; the final blocks become those in use then.

    Tells as well which requests to free were not completed.
    """
    blocks, held = snapshot.blocks, Held(snapshot.segments)
    waiting, unfinished = set(snapshot.waiting), set[int]()
    for number in range(len(snapshot.events) - 1, -1, -1):
        event = snapshot.events[number]
        if event.action == "alloc":
            waiting.discard(event.addr)
            if blocks.pop(event.addr, None) is None:
                doubt.loses("alloc", number, event, "makes a block that neither a later event nor the final state knows")
        elif event.action == frees and event.addr in waiting:
            waiting.discard(event.addr)
            unfinished.add(number)
        elif event.action == frees:
            if event.addr in blocks:
                doubt.loses("free", number, event, "frees a block that is in use afterwards")
            blocks[event.addr] = Block(event.size, event.stream, event.category)
        elif event.action in TAKEN:
            mapped = event.action == "segment_map"
            gone = held.unmap(event.addr, event.size) if mapped else held.take(event.addr, event.size)
            if gone is None:
                doubt.loses("segment", number, event, "takes memory that neither a later event nor the final state knows")
        elif event.action in GIVEN:
            back = _segment_of(event)
            if not (held.map(event.addr, back) if back.mapped else held.put(event.addr, back)):
                doubt.loses("segment", number, event, "gives back memory that is held afterwards")
    return held, unfinished


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
