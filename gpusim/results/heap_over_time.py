"""The device's heap over time, read from an event log: blocks, segments, and the holes between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.results.log import CREATE, MOVE, PLACE, RELEASE, RESERVE, UNPLACE

I64 = npt.NDArray[np.int64]
DEVICE = 0  # the log's number of the device's memory


@dataclass(frozen=True)
class Boxes:
    """Ranges of addresses during spans of time; all arrays have one entry per box: ns, ns, bytes, bytes, unit or -1."""

    start: I64
    end: I64
    addr: I64
    bytes: I64
    unit: I64

    def __len__(self) -> int:
        return len(self.start)

    def at(self, time: float) -> Boxes:
        """The boxes that exist at `time` ns (an end is not part of its box), in order of address."""
        found = np.flatnonzero((self.start <= time) & (time < self.end))
        return self.pick(found[np.argsort(self.addr[found], kind="stable")])

    def pick(self, index: npt.NDArray[Any]) -> Boxes:
        return Boxes(self.start[index], self.end[index], self.addr[index], self.bytes[index], self.unit[index])


def blocks(log: npt.NDArray[Any], end: int) -> Boxes:
    """Lifetimes of all device blocks: from each PLACE to the UNPLACE at the same address, or to `end` ns."""
    log = settled(log)
    rows = np.flatnonzero(((log["kind"] == PLACE) | (log["kind"] == UNPLACE)) & (log["b"] == DEVICE))
    # At one address blocks follow each other: in log order within an address, an UNPLACE closes the PLACE before it.
    rows = rows[np.argsort(log["addr"][rows], kind="stable")]
    kind, addr = log["kind"][rows], log["addr"][rows]
    place = np.flatnonzero(kind == PLACE)
    following = np.minimum(place + 1, max(len(rows) - 1, 0))
    closed = (following > place) & (addr[following] == addr[place])
    stop = np.where(closed, log["t"][rows[following]] if len(rows) else 0, end) if len(place) else np.zeros(0, np.int64)
    of = rows[place]
    return Boxes(log["t"][of], stop.astype(np.int64), log["addr"][of], log["bytes"][of], log["a"][of])


def settled(log: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The log with every MOVE as an UNPLACE and a PLACE."""
    moves = np.flatnonzero(log["kind"] == MOVE)
    if not len(moves):
        return log
    # What was at the unit's latest PLACE or MOVE before this one: in log order within a unit, the row before.
    rows = np.flatnonzero(((log["kind"] == PLACE) | (log["kind"] == MOVE)) & (log["b"] == DEVICE))
    rows = rows[np.argsort(log["a"][rows], kind="stable")]
    before = np.zeros(len(log), np.int64)
    before[rows[1:]] = rows[:-1]
    leaving = log[moves].copy()
    leaving["kind"], leaving["addr"] = UNPLACE, log["addr"][before[moves]]
    coming = log.copy()
    coming["kind"][moves] = PLACE
    found: npt.NDArray[Any] = np.insert(coming, moves, leaving)
    return found


def closed(log: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The log with addresses that leave out what is never held: recorded segments lie gigabytes apart."""
    log = log.copy()
    taken = log[log["kind"] == RESERVE]
    taken = taken[np.argsort(taken["addr"], kind="stable")]
    reach = np.maximum.accumulate(taken["addr"] + taken["bytes"])
    before = np.concatenate([[0], reach[:-1]])
    gap = np.cumsum(np.maximum(taken["addr"] - before, 0))  # left out below each segment
    placed = (log["addr"] >= 0) & np.isin(log["kind"], (RESERVE, RELEASE, PLACE, UNPLACE, MOVE))
    at = np.searchsorted(taken["addr"], log["addr"][placed], side="right") - 1
    log["addr"][placed] -= np.where(at >= 0, gap[at], 0) if len(gap) else 0
    return log


def segments(log: npt.NDArray[Any], end: int) -> Boxes:
    """Memory that the allocator held from the device: RESERVE to RELEASE; a partial release leaves the rest held."""
    held: dict[int, tuple[int, int]] = {}  # address -> (bytes, since)
    boxes: list[tuple[int, int, int, int]] = []
    device = ((log["kind"] == RESERVE) | (log["kind"] == RELEASE)) & (log["b"] == DEVICE)
    for t, kind, addr, size in log[["t", "kind", "addr", "bytes"]][device].tolist():
        if kind == RESERVE:
            held[addr] = (size, t)
            continue
        for base in [a for a, (n, _) in held.items() if a < addr + size and addr < a + n]:
            n, since = held.pop(base)
            boxes.append((since, t, base, n))
            if base < addr:
                held[base] = (addr - base, t)
            if base + n > addr + size:
                held[addr + size] = (base + n - addr - size, t)
    boxes += [(since, end, addr, size) for addr, (size, since) in held.items()]
    columns = np.array(sorted(boxes), np.int64).reshape(-1, 4).T
    return Boxes(columns[0], columns[1], columns[2], columns[3], np.full(columns.shape[1], -1, np.int64))


def sizes(log: npt.NDArray[Any]) -> dict[int, int]:
    """Requested bytes of each unit that the log creates."""
    made = log[log["kind"] == CREATE]
    return dict(zip(made["a"].tolist(), made["bytes"].tolist(), strict=True))


@dataclass(frozen=True)
class Holes:
    """Free memory inside what the allocator holds, at sampled times: ns, bytes, bytes; where the largest hole is."""

    time: npt.NDArray[np.float64]
    free: I64
    largest: I64
    largest_addr: I64

    @property
    def external(self) -> npt.NDArray[np.float64]:
        """External fragmentation: 1 - largest / free; 0 when nothing is free."""
        return np.where(self.free > 0, 1 - self.largest / np.maximum(self.free, 1), 0.0)

    @property
    def worst(self) -> int:
        """Index of the sample with most bytes free outside the largest hole, the first of equals."""
        return int(np.argmax(self.free - self.largest)) if len(self.time) else -1


def holes(block: Boxes, segment: Boxes, end: int, samples: int = 240) -> Holes:
    """Free memory at `samples` evenly spaced times in [0, end) ns.

    A hole ends where its segment ends, unless the allocator lays blocks across neighbouring segments.  Without segments
    all addresses up to the highest one ever used count as one.
    """
    if not len(segment) and len(block):
        top = int((block.addr + block.bytes).max())
        one = np.array([0], np.int64)
        segment = Boxes(one, one + end, one, one + top, one - 1)
    starts = np.unique(segment.addr)
    inside = np.searchsorted(starts, block.addr, "right") < np.searchsorted(starts, block.addr + block.bytes, "left")
    joined = bool(inside.any())
    solid = block.pick(np.flatnonzero(block.bytes > 0))  # an empty block makes no hole
    time: npt.NDArray[np.float64] = (np.arange(samples, dtype=np.float64) + 0.5) * (end / samples)
    free, largest, where = (np.zeros(samples, np.int64) for _ in range(3))
    for i, t in enumerate(time):
        here, around = solid.at(t), segment.at(t)
        if not len(around):
            continue
        base, stop = around.addr, around.addr + around.bytes
        if joined:  # a segment that starts where the one before ends is its continuation
            apart = base[1:] != stop[:-1]
            base, stop = base[np.concatenate([[True], apart])], stop[np.concatenate([apart, [True]])]
        # Gaps lie between a block's end (or a segment's start) and the next block's start (or the segment's end).
        left = np.sort(np.concatenate([base, here.addr + here.bytes]))
        right = np.sort(np.concatenate([here.addr, stop]))
        gap = right - left
        free[i] = gap.sum()
        widest = int(np.argmax(gap))
        largest[i], where[i] = gap[widest], left[widest]
    return Holes(time, free, largest, where)
