"""A memory snapshot's events, walked from the state at the start: the events of a trace, and what shows that some are lost."""

from __future__ import annotations

from typing import Any

from gpusim.base.errors import TraceError
from gpusim.trace.build import Names, TraceBuilder
from gpusim.trace.importers.pytorch_parts import GIVEN, TAKEN, Doubt, Event, RecordedBlock, hex_stream, segment_of
from gpusim.trace.importers.pytorch_ranges import SMALL_PAGE, Held, RecordedSegment
from gpusim.trace.trace import OOM, SEGMENT_ALLOC, SEGMENT_FREE, SNAPSHOT

SMALL_REQUEST, ROUND = 1 << 20, 512


class Walk:
    """Forwards from the start, event by event.

    segments  number of an event -> what walking back told of its segment
    heap  what a trace has no column for: of each segment event whether it is a segment ("p") or pages for small ("s") or
          large ("l") requests, [number of the segment event, private pool], the start's segments in the order in which they
          were made, [tensor, bytes] of the start's blocks that are larger than their requests, [number of the segment
          event, why] where it is told why memory is given back
    """

    def __init__(
        self, build: TraceBuilder, held: Held, doubt: Doubt, segments: dict[int, RecordedSegment], causes: dict[int, str]
    ) -> None:
        self.build, self.held, self.doubt, self.segments, self.causes = build, held, doubt, segments, causes
        self.streams = Names("0")
        self.tensors: dict[int, int] = {}
        self.asked: dict[int, int] = {}  # address -> number of events before its free was requested
        self.apart: list[list[int]] = []
        self.clock = self.late = 0
        self.kinds: list[str] = []
        self.heap: dict[str, Any] = {"kinds": "", "pools": [], "order": [], "blocks": [], "causes": []}

    def begin(self, blocks: dict[int, RecordedBlock]) -> None:
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
        made = self.segments.get(number) or segment_of(event)
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
        if number in self.causes:
            self.heap["causes"].append([len(self.kinds), self.causes[number]])
        self.note(made)

    def note(self, segment: RecordedSegment) -> None:
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
        return "s" in self.kinds or "l" in self.kinds or any(self.heap[key] for key in ("pools", "order", "blocks", "causes"))

    def stream(self, handle: int) -> int:
        return self.streams(hex_stream(handle))


def _seems_small(addr: int, segment: RecordedSegment, blocks: dict[int, RecordedBlock]) -> bool:
    """Whether pages of which no event tells serve small requests: by their blocks, else by their size."""
    inside = [block.size for at, block in blocks.items() if addr <= at < addr + segment.size]
    return min(inside) <= SMALL_REQUEST if inside else segment.size % (10 * SMALL_PAGE) != 0
