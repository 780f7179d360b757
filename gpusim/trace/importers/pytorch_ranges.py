"""The memory that PyTorch's allocator holds from a device, walked back from a snapshot's final segments.

A segment of cudaMalloc comes and goes as a whole.  Of an expandable segment, the snapshot lists each run of pages that are
mapped without a gap: mapping and unmapping change runs at their ends, cut them in two, or join them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple

SMALL_PAGE = 2 << 20  # bytes of a page for requests of at most 1 MiB; pages for larger ones have at least 11 MiB


class RecordedSegment(NamedTuple):
    """A segment of cudaMalloc, or a run of mapped pages; bytes.

    mapped  it is such a run
    small   it serves requests of at most 1 MiB; None: not told
    pool    number of the private pool that it belongs to, 0: none, -1: not told
    number  in the order in which segments were made, -1: not told
    """

    size: int
    stream: int = 0
    mapped: bool = False
    small: bool | None = None
    pool: int = 0
    number: int = -1


class Held:
    """What is held now, by address; each method that takes something back tells whether it was there."""

    def __init__(self, segments: dict[int, RecordedSegment]) -> None:
        self.segments = segments
        self._starts = sorted(segments)

    def __iter__(self) -> Iterator[tuple[int, RecordedSegment]]:
        return ((addr, self.segments[addr]) for addr in self._starts)

    def around(self, addr: int) -> tuple[int, RecordedSegment] | None:
        """Start and segment of what holds this address."""
        at = bisect_right(self._starts, addr) - 1
        if at >= 0:
            start = self._starts[at]
            if addr < start + self.segments[start].size:
                return start, self.segments[start]
        return None

    def fill(self, addr: int, size: int) -> bool:
        """Whether any of the range is held."""
        after = bisect_left(self._starts, addr)
        return self.around(addr) is not None or (after < len(self._starts) and self._starts[after] < addr + size)

    def put(self, addr: int, segment: RecordedSegment) -> bool:
        """False when the range was held already."""
        if segment.size <= 0 or self.fill(addr, segment.size):
            return False
        self._add(addr, segment)
        return True

    def take(self, addr: int, size: int) -> RecordedSegment | None:
        """Remove a whole segment."""
        segment = self.segments.get(addr)
        if segment is None or segment.size != size:
            return None
        self._drop(addr)
        return segment

    def map(self, addr: int, segment: RecordedSegment) -> bool:
        """Pages come; with the runs of their stream and pool that they touch they become one."""
        if not self.put(addr, segment):
            return False
        before = self.around(addr - 1)
        after = self.segments.get(addr + segment.size)
        start, run = addr, segment
        self._drop(addr)
        if before is not None and _same(before[1], run):
            start, run = before[0], before[1]._replace(size=before[1].size + run.size)
            self._drop(start)
        if after is not None and _same(after, run):
            self._drop(addr + segment.size)
            run = after._replace(size=run.size + after.size)
        self._add(start, run)
        return True

    def unmap(self, addr: int, size: int) -> RecordedSegment | None:
        """Pages go from within a run, of which the rest stays.  The run that they were of."""
        found = self.around(addr)
        if found is None or size <= 0 or addr + size > found[0] + found[1].size:
            return None
        start, run = found
        self._drop(start)
        if start < addr:
            self._add(start, run._replace(size=addr - start))
        if addr + size < start + run.size:
            self._add(addr + size, run._replace(size=start + run.size - addr - size))
        return run

    def _add(self, addr: int, segment: RecordedSegment) -> None:
        self.segments[addr] = segment
        insort(self._starts, addr)

    def _drop(self, addr: int) -> None:
        del self.segments[addr]
        del self._starts[bisect_left(self._starts, addr)]


def _same(run: RecordedSegment, other: RecordedSegment) -> bool:
    """Both are mapped pages that one range may hold."""
    return run.mapped and run.stream == other.stream and (run.pool == other.pool or -1 in (run.pool, other.pool))
