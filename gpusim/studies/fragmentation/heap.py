"""The heap at one moment of a replay: segments, blocks, and the holes between them, read from the event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.results.heap_over_time import Boxes, blocks, segments
from gpusim.trace.trace import I64


@dataclass(frozen=True)
class Heap:
    """What an allocator holds after one request.  Ranges in order of address; hole h lies in segment `of[h]`.

    Adjacent segments across which a block lies count as one, as do the mapped pages of one range of addresses.
    """

    segments: Boxes
    blocks: Boxes
    hole_addr: I64
    hole_bytes: I64
    of: I64        # (holes,) index of the hole's segment
    home: I64      # (blocks,) index of the block's segment

    @property
    def held(self) -> int:
        return int(self.segments.bytes.sum())

    @property
    def rounded(self) -> int:
        return int(self.blocks.bytes.sum())

    def live_in(self) -> I64:
        """(segments,) bytes of the blocks in each segment."""
        found = np.zeros(len(self.segments), np.int64)
        np.add.at(found, self.home, self.blocks.bytes)
        return found


class History:
    """All heaps of one event log."""

    def __init__(self, log: Any, requests: int) -> None:
        self.blocks, self.segments = blocks(log, requests + 1), segments(log, requests + 1)

    def at(self, request: int) -> Heap:
        """The heap when this request has been dealt with."""
        live = self.blocks.at(request)
        live = live.pick(np.flatnonzero(live.bytes > 0))
        held = _joined(self.segments.at(request), live)
        # Each segment is its blocks and what is between its start, the blocks and its end.
        home = np.searchsorted(held.addr, live.addr, "right") - 1
        left = np.concatenate([live.addr + live.bytes, held.addr])
        right = np.concatenate([live.addr, held.addr + held.bytes])
        of = np.concatenate([home, np.arange(len(held))])
        order = np.argsort(left, kind="stable")  # a block's end goes before the start of the next segment
        left, of, right = left[order], of[order], np.sort(right)
        found = right > left
        return Heap(held, live, left[found], (right - left)[found], of[found], home)


def _joined(held: Boxes, live: Boxes) -> Boxes:
    """Segments that touch and have a block across their border become one; it is as old as its oldest part."""
    if len(held) < 2 or not len(live):
        return held
    border = held.addr[1:]
    touch = held.addr[:-1] + held.bytes[:-1] == border
    before = np.searchsorted(live.addr, border, "left") - 1  # the last block that starts before the border
    crossed = (before >= 0) & ((live.addr + live.bytes)[before] > border)
    first = np.flatnonzero(np.concatenate([[True], ~(touch & crossed)]))
    return Boxes(
        np.minimum.reduceat(held.start, first), np.minimum.reduceat(held.end, first), held.addr[first],
        np.add.reduceat(held.bytes, first), held.unit[first],
    )  # fmt: skip
