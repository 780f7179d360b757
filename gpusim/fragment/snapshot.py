"""What a memory snapshot of PyTorch says of its allocator: the heap before the first event, then requests and segments.

Addresses count from the lowest segment; streams are in the order of their handles, which is the order of the pools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.core.requests import R_ALLOC, R_FREE, R_RELEASE, REQUEST
from gpusim.core.tables import table
from gpusim.fragment.start import ROUND, Block, Segment
from gpusim.policies import device
from gpusim.trace.trace import ALLOC, FREE, I64, SEGMENT_ALLOC, SEGMENT_FREE, Trace

SegmentEvent = tuple[int, bool, int, int]  # index of the request it happens in, taken or given back, address, bytes


@dataclass(frozen=True)
class Recording:
    """One such recording, ready to be repeated.

    conf            the settings under which it ran, as in the environment variable
    origin          the address from which the others count
    segments        those before the first event, by address
    rows            core.requests.REQUEST: what was requested; R_RELEASE where segments were given back
    event           of each request the index of its event in the trace
    addr            of each alloc its address, else -1
    segment_events  in order
    """

    trace: Trace
    conf: str
    origin: int
    segments: list[Segment]
    rows: Any
    event: I64
    addr: I64
    segment_events: list[SegmentEvent]


def read(trace: Trace) -> Recording | None:
    """None when the trace is no snapshot, or has no segments, or they contradict each other, the blocks or a device's pages."""
    begins = trace.meta.get("start")
    of_segment = (trace.kind == SEGMENT_ALLOC) | (trace.kind == SEGMENT_FREE)
    if not str(trace.meta.get("format")).startswith("pytorch") or not isinstance(begins, dict) or not of_segment.any():
        return None
    origin = int(trace.addr[of_segment].min()) // device.PAGE * device.PAGE
    addr = np.where(trace.addr >= 0, trace.addr - origin, -1)
    if np.any(addr[of_segment] % device.PAGE) or np.any(addr[of_segment] >= device.VIRTUAL):
        return None
    handles = np.array([int(name, 16) for name in trace.meta["streams"]])
    stream = np.argsort(np.argsort(handles))[trace.stream]
    first = begins["segments"] + begins["tensors"]
    segments = _start(trace, addr, stream, first)
    if segments is None:
        return None
    kind = trace.kind
    also = np.zeros(trace.events, bool)  # given back together with the one before
    also[1:] = (kind[1:] == SEGMENT_FREE) & (kind[:-1] == SEGMENT_FREE)
    asked = (kind == ALLOC) & (trace.bytes > 0) | (kind == FREE) | (kind == SEGMENT_FREE) & ~also
    asked[:first] = False
    event = np.flatnonzero(asked)
    made = kind[event] == ALLOC
    rows = table(len(event), REQUEST)
    rows["kind"] = np.select([made, kind[event] == FREE], [R_ALLOC, R_FREE], R_RELEASE)
    rows["unit"], rows["stream"] = trace.arg[event], stream[event]
    rows["size"] = np.where(made, trace.bytes[event], 0)
    changes = first + np.flatnonzero(of_segment[first:])
    taken = kind[changes] == SEGMENT_ALLOC
    number = np.searchsorted(event, changes, side="right") - 1 + taken  # a segment is taken for the request that follows
    listed = zip(*(c.tolist() for c in (number, taken, addr[changes], trace.bytes[changes])), strict=True)
    conf = str(trace.meta.get("alloc_conf") or "")
    return Recording(trace, conf, origin, segments, rows, event, np.where(made, addr[event], -1), list(listed))


def _start(trace: Trace, addr: I64, stream: I64, first: int) -> list[Segment] | None:
    """The segments of the first events, with their blocks; None when segments overlap, or blocks, or one lies outside."""
    order = np.argsort(addr[:first], kind="stable")
    if not np.isin(trace.kind[:first], (SEGMENT_ALLOC, ALLOC)).all():
        return None
    blocks = [
        Block(int(trace.arg[i]), int(addr[i]), int(trace.bytes[i]))
        for i in order if trace.kind[i] == ALLOC and trace.bytes[i] > 0
    ]  # fmt: skip
    found: list[Segment] = []
    at = 0
    for i in order:
        if trace.kind[i] == SEGMENT_ALLOC:
            begin, size = int(addr[i]), int(trace.bytes[i])
            after = at
            while after < len(blocks) and begin <= blocks[after].addr < begin + size:
                after += 1
            if size <= 0 or size % ROUND or (found and begin < found[-1].end):
                return None
            found.append(Segment(begin, size, int(stream[i]), blocks[at:after]))
            at = after
    fits = all(block.addr + block.requested <= end for segment in found for block, end in segment.limits())
    return found if at == len(blocks) and fits else None
