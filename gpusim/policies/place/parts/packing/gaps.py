"""Fitting buffers one after the other, each into a gap between those that live at its time and were placed before it.

Overlaps in time are found through *windows*: the sections are covered by spans of 1, 1/2, 1/4, ... of their number,
those of one level half overlapping, and each window lists the placed buffers that live in it.  A buffer of length w lies
within a window of at most 4 w, so that its list holds little else than what it overlaps.  A list is put into the order of
offsets when it is looked at, by merging in what was added since.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import entry, kernel
from gpusim.policies.place.parts.packing.buffers import I64, Buffers

SMALLEST = 16  # sections of the smallest windows
ENDLESS = 1 << 62


class Windows(NamedTuple):
    """The buffers and the lists of those that are placed; made by `windows`, used by the kernels below."""

    first: Any   # int64[n]
    end: Any     # int64[n]
    size: Any    # int64[n]
    width: Any   # int64[levels] sections of a level's windows, even
    window: Any  # int64[levels] the first window of each level
    start: Any   # int64[windows + 1] where each window's list begins
    items: Any   # int64[...] the lists
    count: Any   # int64[windows] entries of each list, of which
    tidy: Any    # int64[windows]     so many are in the order of offsets
    offset: Any  # int64[n] the answer
    spare: Any   # int64[n]


def windows(buffers: Buffers) -> Windows:
    """Empty windows over the sections of these buffers."""
    n, sections = len(buffers), max(1, len(buffers.moments))
    width = [2 ** max(1, (sections - 1).bit_length())]
    while width[-1] > SMALLEST:
        width.append(width[-1] // 2)
    counts = [-(-sections // (w // 2)) for w in width]
    room = np.zeros(sum(counts), np.int64)
    window = np.cumsum([0, *counts[:-1]])
    for w, begin, many in zip(width, window, counts, strict=True):
        half = w // 2
        step = np.zeros(many + 1, np.int64)
        np.add.at(step, np.maximum(0, buffers.first // half - 1), 1)
        np.subtract.at(step, (buffers.end - 1) // half + 1, 1)
        room[begin : begin + many] = np.cumsum(step)[:-1]
    start = np.concatenate([[0], np.cumsum(room)])
    empty = np.zeros(len(room), np.int64)
    return Windows(
        buffers.first, buffers.end, buffers.size, np.array(width), window, start, np.empty(start[-1], np.int64), empty,
        empty.copy(), np.empty(n, np.int64), np.empty(n, np.int64),
    )  # fmt: skip


@kernel
def _sift(heap: Any, base: int, root: int, size: int, offset: Any) -> None:
    """Let the entry at `root` of a heap of `size` entries sink until none below it has a higher offset."""
    item = heap[base + root]
    child = 2 * root + 1
    while child < size:
        if child + 1 < size and offset[heap[base + child + 1]] > offset[heap[base + child]]:
            child += 1
        if offset[heap[base + child]] <= offset[item]:
            break
        heap[base + root] = heap[base + child]
        root, child = child, 2 * child + 1
    heap[base + root] = item


@kernel
def _sort(w: Windows, v: int) -> None:
    """Bring the list of window v into the order of offsets: the new part by heapsort, then both by merging."""
    items, offset, spare = w.items, w.offset, w.spare
    base, tidy, count = w.start[v], w.tidy[v], w.count[v]
    late = base + tidy
    new = count - tidy
    for root in range(new // 2 - 1, -1, -1):
        _sift(items, late, root, new, offset)
    for last in range(new - 1, 0, -1):
        items[late], items[late + last] = items[late + last], items[late]
        _sift(items, late, 0, last, offset)
    for k in range(new):
        spare[k] = items[late + k]
    i, k, to = late - 1, new - 1, base + count - 1
    while k >= 0:
        if i >= base and offset[items[i]] > offset[spare[k]]:
            items[to] = items[i]
            i -= 1
        else:
            items[to] = spare[k]
            k -= 1
        to -= 1
    w.tidy[v] = count


@kernel
def _gap(w: Windows, i: int, best: bool) -> Any:
    """(offset, entries looked at): the lowest gap that buffer i fits into, or the smallest one (`best`)."""
    first, end, size, offset = w.first, w.end, w.size, w.offset
    level = len(w.width) - 1
    while level > 0 and first[i] // (w.width[level] // 2) * (w.width[level] // 2) + w.width[level] < end[i]:
        level -= 1
    v = w.window[level] + first[i] // (w.width[level] // 2)
    if level == 0:
        v = 0  # it spans all
    _sort(w, v)
    at, found, smallest = 0, -1, ENDLESS
    for k in range(w.start[v], w.start[v] + w.count[v]):
        j = w.items[k]
        if first[j] < end[i] and first[i] < end[j]:
            gap = offset[j] - at
            if gap >= size[i] and gap < smallest:
                found = at
                if not best:
                    break
                smallest = gap
            at = max(at, offset[j] + size[j])
    return (at if found < 0 else found), w.count[v]


@entry()
def fit(w: Windows, order: I64, best: bool, limit: int) -> Any:
    """Place all buffers in this order: (top, entries looked at).  Gives up above `limit`, with a top that is above it."""
    w.count[:] = 0
    w.tidy[:] = 0
    top, work = 0, 0
    for q in range(len(order)):
        i = order[q]
        place, seen = _gap(w, i, best)
        work += seen
        w.offset[i] = place
        top = max(top, place + w.size[i])
        if top > limit:
            break
        for level in range(len(w.width)):
            half = w.width[level] // 2
            for v in range(max(0, w.first[i] // half - 1), (w.end[i] - 1) // half + 1):
                at = w.window[level] + v
                w.items[w.start[at] + w.count[at]] = i
                w.count[at] += 1
    return top, work
