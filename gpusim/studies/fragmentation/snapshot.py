"""What a memory snapshot of PyTorch says of its allocator: the heap before the first event, then requests and segments.

Addresses count from the lowest segment; streams are in the order of their handles, which is the order of the pools.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.policies.place.parts.pytorch import rules
from gpusim.policies.trials.allocator_requests import sizes
from gpusim.policies.trials.requests import R_ALLOC, R_COMMAND, R_FREE, R_RELEASE, REQUEST
from gpusim.studies.fragmentation.given_back import given_back, reading
from gpusim.studies.fragmentation.recorded import capacity_of
from gpusim.studies.fragmentation.start import ROUND, SMALL_SEGMENT, Kind, Segment, StartBlock
from gpusim.trace.trace import ALLOC, FREE, I64, OOM, SEGMENT_ALLOC, SEGMENT_FREE, Trace

VIRTUAL = 1 << 42  # policies.device.VIRTUAL; the device's own addresses lie below
SegmentEvent = tuple[int, bool, int, int]  # index of the request it happens in, taken or given back, address, bytes


@dataclass(frozen=True)
class AllocatorRecording:
    """One such recording, ready to be repeated.

    conf            the settings under which it ran, as in the environment variable
    told            the recording tells them; otherwise they are taken to be the default
    origin          the address from which the others count
    segments        those before the first event: in the order in which they were made where that is told, else by address
    fronts          of a range of addresses the lowest one mapped later
    rows            core.requests.REQUEST: what was requested; R_RELEASE where the program gave its cache back
    event           of each request the index of its event in the trace
    addr            of each alloc its address, else -1
    failed          of each request whether it was one that ended out of memory
    segment_events  in order
    mapped          of each segment event whether it is one of pages
    sizes           unit -> size of its block, where the recording tells one that is larger than the request
    capacity        bytes that the device had for the allocator, ENDLESS when that is not known
    plain           lowest address of a segment that is none of pages
    given_back      events with which memory begins to be given back
    """

    trace: Trace
    conf: str
    told: bool
    origin: int
    segments: list[Segment]
    fronts: dict[Kind, int]
    rows: Any
    event: I64
    addr: I64
    failed: Any
    segment_events: list[SegmentEvent]
    mapped: list[bool]
    sizes: dict[int, int]
    capacity: int
    plain: int
    given_back: list[int]

    @property
    def expandable(self) -> bool:
        return any(self.mapped) or any(segment.mapped for segment in self.segments)


def read(trace: Trace, limit: int | None = None, flipped: Set[int] = frozenset()) -> AllocatorRecording | None:
    """None when the trace is no snapshot, or has no segments, or contradicts itself or a device's pages.

    limit    bytes that the device had for the allocator; None: what the recording tells
    flipped  events with which memory begins to be given back, to be read the other way round
    """
    begins = trace.meta.get("start")
    of_segment = (trace.kind == SEGMENT_ALLOC) | (trace.kind == SEGMENT_FREE)
    if not str(trace.meta.get("format")).startswith("pytorch") or not isinstance(begins, dict) or not of_segment.any():
        return None
    if trace.meta.get("incomplete"):
        return None
    origin = int(trace.addr[of_segment].min()) // SMALL_SEGMENT * SMALL_SEGMENT
    has_addr = (trace.addr >= 0) & (trace.kind != OOM)
    addr = np.where(has_addr, trace.addr - origin, -1)
    heap = _Heap(trace, of_segment)
    plain = addr[of_segment][[kind == "p" for kind in heap.kinds]]
    if np.any(addr[of_segment] % SMALL_SEGMENT) or (len(plain) and plain.max() - plain.min() >= VIRTUAL):
        return None
    handles = np.array([int(name, 16) for name in trace.meta["streams"]])
    stream = np.argsort(np.argsort(handles))[trace.stream]
    first = begins["segments"] + begins["tensors"]
    segments = _start(trace, addr, stream, first, heap)
    if segments is None:
        return None
    limit = capacity_of(trace) if limit is None else limit
    groups, most = given_back(trace, first, heap.causes)
    releases, within, limit = reading(groups, most, limit, flipped)
    rows, event = _requests(trace, stream, first, releases, heap)
    failed = (trace.kind[event] == OOM) & (rows["kind"] == R_ALLOC)
    made = (rows["kind"] == R_ALLOC) & ~failed
    listed = _segment_events(trace, addr, first, of_segment, rows, event, within)
    conf = trace.meta.get("alloc_conf")
    return AllocatorRecording(
        trace, str(conf or ""), conf is not None, origin, segments, _fronts(trace, addr, stream, first, of_segment, heap),
        rows, event, np.where(made, addr[event], -1), failed, listed,
        [heap.kinds[i] != "p" for i in range(begins["segments"], len(heap.kinds))],
        {block[0]: block[1] for block in heap.blocks}, limit, int(plain.min(initial=VIRTUAL)),
        [group.events[0] for group in groups],
    )  # fmt: skip


class _Heap:
    """What the importer tells of segments beyond the trace's columns (importers/pytorch_walk.py)."""

    def __init__(self, trace: Trace, of_segment: Any) -> None:
        told = trace.meta.get("heap") or {}
        self.kinds: str = told.get("kinds") or "p" * int(of_segment.sum())
        self.pools: dict[int, int] = dict(told.get("pools") or [])
        self.order: list[int] = told.get("order") or []
        events = np.flatnonzero(of_segment)
        self.causes: dict[int, str] = {int(events[number]): why for number, why in told.get("causes") or []}
        self.blocks: list[list[int]] = told.get("blocks") or []
        self.number = np.cumsum(of_segment) - 1  # of each event: the number of its segment event, or of the one before


def _start(trace: Trace, addr: I64, stream: I64, first: int, heap: _Heap) -> list[Segment] | None:
    """The segments of the first events, with their blocks; None when one of them is of no size a segment can have."""
    if not np.isin(trace.kind[:first], (SEGMENT_ALLOC, ALLOC)).all():
        return None
    order = np.argsort(addr[:first], kind="stable")
    blocks = [
        StartBlock(int(trace.arg[i]), int(addr[i]), int(trace.bytes[i]))
        for i in order if trace.kind[i] == ALLOC and trace.bytes[i] > 0
    ]  # fmt: skip
    found: dict[int, Segment] = {}
    at = 0
    for i in order:
        if trace.kind[i] == SEGMENT_ALLOC:
            begin, size, number = int(addr[i]), int(trace.bytes[i]), int(heap.number[i])
            after = at
            while after < len(blocks) and begin <= blocks[after].addr < begin + size:
                after += 1
            kind = heap.kinds[number]
            small = size == SMALL_SEGMENT if kind == "p" else kind == "s"
            if size <= 0 or size % ROUND:
                return None
            found[number] = Segment(
                begin, size, int(stream[i]), blocks[at:after], small, kind != "p", heap.pools.get(number, 0)
            )  # fmt: skip
            at = after
    fits = all(block.addr + block.requested <= end for segment in found.values() for block, end in segment.limits())
    return [found[number] for number in heap.order or found] if at == len(blocks) and fits else None


def _requests(trace: Trace, stream: I64, first: int, releases: list[int], heap: _Heap) -> tuple[Any, I64]:
    """(rows, event of each).  A request that failed is repeated, and freed at once should it succeed."""
    kind = trace.kind
    asked = (kind == ALLOC) & (trace.bytes > 0) | (kind == FREE) | (kind == OOM)
    asked[:first] = False
    asked[releases] = True
    event = np.flatnonzero(asked)
    failed = np.flatnonzero(kind == OOM)
    event = np.sort(np.concatenate([event, failed]))
    again = np.zeros(len(event), bool)
    again[1:] = event[1:] == event[:-1]
    of = kind[event]
    rows = table(len(event), REQUEST)
    rows["kind"] = np.select([again | (of == FREE), of == SEGMENT_FREE], [R_FREE, R_RELEASE], R_ALLOC)
    rows["unit"], rows["stream"] = trace.arg[event], stream[event]
    rows["unit"][of == OOM] = trace.tensors + np.repeat(np.arange(len(failed)), 2)
    rows["size"] = np.where(rows["kind"] == R_RELEASE, 0, sizes(trace)[rows["unit"]])
    pool = _pools(trace, heap, first)
    return (rows, event) if not pool.any() else _routed(rows, event, pool)


def _pools(trace: Trace, heap: _Heap, first: int) -> I64:
    """Of each event the private pool in whose segment its block is made, 0: none."""
    found = np.zeros(trace.events, np.int64)
    if not heap.pools:
        return found
    held: dict[int, tuple[int, int]] = {}  # of the private pools' segments: start -> (end, pool)
    for i in range(trace.events):
        kind, at = trace.kind[i], int(trace.addr[i])
        if kind == SEGMENT_ALLOC and int(heap.number[i]) in heap.pools:
            held[at] = at + int(trace.bytes[i]), heap.pools[int(heap.number[i])]
        elif kind == SEGMENT_FREE:
            held.pop(at, None)
        elif kind == ALLOC and i >= first:
            found[i] = next((pool for start, (end, pool) in held.items() if start <= at < end), 0)
    return found


def _routed(rows: Any, event: I64, pool: I64) -> tuple[Any, I64]:
    """The rows with the commands that route requests to private pools."""
    private = np.flatnonzero((rows["kind"] == R_ALLOC) & (pool[event] > 0))
    commands = table(len(private), REQUEST)
    commands["kind"], commands["unit"], commands["size"] = R_COMMAND, rules.POOL_BEGIN, pool[event[private]]
    commands["stream"] = 1
    ends = commands.copy()
    ends["unit"] = rules.POOL_END
    where = np.concatenate([private + 1, private])  # of commands between two requests the end comes first
    return np.insert(rows, where, np.concatenate([ends, commands])), np.insert(event, where, np.tile(event[private], 2))


def _segment_events(
    trace: Trace, addr: I64, first: int, of_segment: Any, rows: Any, event: I64, within: list[int]
) -> list[SegmentEvent]:
    changes = first + np.flatnonzero(of_segment[first:])
    taken = trace.kind[changes] == SEGMENT_ALLOC
    of_request = taken | np.isin(changes, within)
    allocs, releases = (np.flatnonzero(rows["kind"] == kind) for kind in (R_ALLOC, R_RELEASE))
    number = np.full(len(changes), len(rows))
    if len(allocs):  # a segment is taken, or given up, for the request that follows
        at = np.searchsorted(event[allocs], changes)
        number = np.where(at < len(allocs), allocs[np.minimum(at, len(allocs) - 1)], len(rows))
    if len(releases):
        at = np.maximum(np.searchsorted(event[releases], changes, side="right") - 1, 0)
        number = np.where(of_request, number, releases[at])
    return list(zip(*(c.tolist() for c in (number, taken, addr[changes], trace.bytes[changes])), strict=True))


def _fronts(trace: Trace, addr: I64, stream: I64, first: int, of_segment: Any, heap: _Heap) -> dict[Kind, int]:
    """The lowest address that is mapped later for each stream and side that has pages, until all of them are gone."""
    found: dict[Kind, int] = {}
    held: dict[Kind, int] = {}
    for i in np.flatnonzero(of_segment).tolist():
        number = int(heap.number[i])
        if heap.kinds[number] == "p":
            continue
        kind = int(stream[i]), heap.kinds[number] == "s", heap.pools.get(number, 0)
        size = int(trace.bytes[i])
        if i < first:
            held[kind] = held.get(kind, 0) + size
        elif held.get(kind, 0) > 0:
            taken = trace.kind[i] == SEGMENT_ALLOC
            held[kind] += size if taken else -size
            if taken:
                found[kind] = min(found.get(kind, int(addr[i])), int(addr[i]))
    return found
