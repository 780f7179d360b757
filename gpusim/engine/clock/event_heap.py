"""The event heap: a binary heap of (time, order); order is priority first, then the sequence of scheduling."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.state import Island


@kernel
def push(isl: Island, time: int, kind: int, arg: int) -> None:
    """Schedule an event; its kind is its priority at equal times."""
    c = isl.clock[0]
    heap = isl.heap
    order = (kind << 48) | c.scheduled
    c.scheduled += 1
    i = c.events
    c.events += 1
    while i > 0:
        parent = (i - 1) >> 1
        p = heap[parent]
        if p.time < time or (p.time == time and p.order < order):
            break
        heap[i] = heap[parent]
        i = parent
    e = heap[i]
    e.time = time
    e.order = order
    e.kind = kind
    e.arg = arg


@kernel
def pop(isl: Island) -> Any:
    """Remove the first event; returns (kind, arg)."""
    c = isl.clock[0]
    heap = isl.heap
    first = heap[0]
    kind, arg = first.kind, first.arg
    c.events -= 1
    n = c.events
    last_time, last_order = heap[n].time, heap[n].order
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n:
            a, b = heap[child], heap[child + 1]
            if b.time < a.time or (b.time == a.time and b.order < a.order):
                child += 1
        s = heap[child]
        if last_time < s.time or (last_time == s.time and last_order <= s.order):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = heap[n]
    return kind, arg


@kernel
def place_of(isl: Island, kind: int, arg: int) -> int:
    """The place of such an event in the heap; how many there are when it is not there."""
    i = 0
    while i < isl.clock[0].events and (isl.heap[i].kind != kind or isl.heap[i].arg != arg):
        i += 1
    return i


@outlined
def drop(isl: Island, kind: int, arg: int) -> None:
    """Remove such an event, if there is one: what stands above it moves down by one place, and the first place is taken."""
    i = place_of(isl, kind, arg)
    if i < isl.clock[0].events:
        while i > 0:
            isl.heap[i] = isl.heap[(i - 1) >> 1]
            i = (i - 1) >> 1
        pop(isl)
