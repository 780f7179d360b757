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

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.pytorch_parts import GIVEN, TAKEN, Doubt, RecordedBlock, Snapshot, segment_of
from gpusim.trace.importers.pytorch_ranges import Held, RecordedSegment
from gpusim.trace.importers.pytorch_walk import Walk
from gpusim.trace.trace import Trace


def to_trace(snapshot: Snapshot, build: TraceBuilder, meta: dict[str, object]) -> Trace:
    """The trace of one device; `meta` is what the importer knows of the source.  Raises TraceError."""
    if not snapshot.events and not snapshot.blocks:
        raise TraceError("the snapshot holds no event and no block in use", build.path, "record history before the snapshot")
    seen = Counter(event.action for event in snapshot.events)
    frees = "free_completed" if seen["free_completed"] or not seen["free_requested"] else "free_requested"
    doubt = Doubt()
    if not snapshot.segments and not any(seen[action] for action in TAKEN + GIVEN):
        doubt.that("it tells no segment, so what was held is not known")
    held, unfinished, segments = _rewind(snapshot, frees, doubt)
    walk = Walk(build, held, doubt, segments, snapshot.causes)
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


def _rewind(snapshot: Snapshot, frees: str, doubt: Doubt) -> tuple[Held, set[int], dict[int, RecordedSegment]]:
    """What was held before the first event; the final blocks become those in use then.

    Tells as well which requests to free were not completed, and of what kind the segments are that the events are of.
    """
    blocks, held = snapshot.blocks, Held(snapshot.segments)
    waiting, unfinished, kinds = set(snapshot.waiting), set[int](), dict[int, RecordedSegment]()
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
            blocks[event.addr] = RecordedBlock(event.size, event.stream, event.category)
        elif event.action in TAKEN:
            mapped = event.action == "segment_map"
            gone = held.unmap(event.addr, event.size) if mapped else held.take(event.addr, event.size)
            if gone is not None:
                kinds[number] = segment_of(event)._replace(pool=gone.pool)
            else:
                doubt.loses("segment", number, event, "takes memory that neither a later event nor the final state knows")
        elif event.action in GIVEN:
            back = segment_of(event)
            if held.map(event.addr, back) if back.mapped else held.put(event.addr, back):
                run = held.around(event.addr)
                kinds[number] = back._replace(pool=run[1].pool, small=run[1].small) if run else back
            else:
                doubt.loses("segment", number, event, "gives back memory that is held afterwards")
    return held, unfinished, kinds


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
