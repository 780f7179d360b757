"""Requests that wait: a queue of those that came first, a heap of those that matter most, and a list of those that hold blocks.

A list is a ring through a row of its own behind those of the requests; a request is in one of them at most.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel, outlined, tables_at
from gpusim.base.tables import filled, signature

i4 = np.int32
IN_LINE, HOLDING, LISTS = range(3)  # rings: in order of arrival; with blocks whose keys and values have been sent for
NONE = -1


@by_pointer
class WaitingTable(NamedTuple):
    """Of n requests; heap and place have one row where none is needed."""

    count: Annotated[Any, i4, LISTS + 1]  # of each ring; of the heap
    ahead: Annotated[Any, i4, "rings"]    # request n + IN_LINE and n + HOLDING stand for the ends of both rings
    behind: Annotated[Any, i4, "rings"]
    heap: Annotated[Any, i4, "heap"]
    place: Annotated[Any, i4, "heap"]     # in the heap, of each request in it


WAITING_TABLE = signature(WaitingTable)
waiting_at = tables_at(WAITING_TABLE)


def waiting_table(requests: int, by_priority: bool) -> WaitingTable:
    """Of so many requests, none of which waits."""
    made = filled(WaitingTable, {"rings": requests + LISTS, "heap": requests if by_priority else 1})
    for ends in (made.ahead, made.behind):
        ends[requests:] = np.arange(requests, requests + LISTS)
    return made


@kernel
def end_of(queue: WaitingTable, ring: int) -> int:
    return queue.ahead.size - LISTS + ring


@kernel
def insert_before(queue: WaitingTable, ring: int, r: int, later: int) -> None:
    earlier = queue.ahead[later]
    queue.ahead[r], queue.behind[r] = earlier, later
    queue.behind[earlier] = queue.ahead[later] = r
    queue.count[ring] += 1


@kernel
def join_last(queue: WaitingTable, ring: int, r: int) -> None:
    insert_before(queue, ring, r, end_of(queue, ring))


@kernel
def join_first(queue: WaitingTable, ring: int, r: int) -> None:
    insert_before(queue, ring, r, queue.behind[end_of(queue, ring)])


@kernel
def leave_ring(queue: WaitingTable, ring: int, r: int) -> None:
    earlier, later = queue.ahead[r], queue.behind[r]
    queue.behind[earlier], queue.ahead[later] = later, earlier
    queue.count[ring] -= 1


@kernel
def first_of(queue: WaitingTable, ring: int) -> int:
    """The request at the head of the ring; NONE when it is empty."""
    r = queue.behind[end_of(queue, ring)]
    return r if r < end_of(queue, 0) else NONE


@kernel
def goes_before(priority: Any, a: int, b: int) -> bool:
    """Whether request a is served before b: by priority, then by arrival, which is the order of their numbers."""
    return priority[a] < priority[b] or (priority[a] == priority[b] and a < b)


@outlined
def sift_up(queue: WaitingTable, priority: Any, at: int) -> None:
    r = queue.heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        other = queue.heap[parent]
        if not goes_before(priority, r, other):
            break
        queue.heap[at] = other
        queue.place[other] = at
        at = parent
    queue.heap[at] = r
    queue.place[r] = at


@outlined
def sift_down(queue: WaitingTable, priority: Any, at: int) -> None:
    r, count = queue.heap[at], queue.count[LISTS]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and goes_before(priority, queue.heap[child + 1], queue.heap[child]):
            child += 1
        other = queue.heap[child]
        if not goes_before(priority, other, r):
            break
        queue.heap[at] = other
        queue.place[other] = at
        at = child
    queue.heap[at] = r
    queue.place[r] = at


@kernel
def push(queue: WaitingTable, priority: Any, r: int) -> None:
    count = queue.count[LISTS]
    queue.heap[count] = r
    queue.count[LISTS] = count + 1
    sift_up(queue, priority, count)


@kernel
def remove(queue: WaitingTable, priority: Any, r: int) -> None:
    """The request leaves the heap, wherever in it it is."""
    at, count = queue.place[r], queue.count[LISTS] - 1
    moved = queue.heap[count]
    queue.count[LISTS] = count
    if at < count:
        queue.heap[at] = moved
        queue.place[moved] = at
        sift_up(queue, priority, at)
        sift_down(queue, priority, queue.place[moved])
