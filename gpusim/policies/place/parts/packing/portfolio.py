"""The exact search, started in several ways with a growing number of nodes: what is hard for one is often easy for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

import numpy as np

from gpusim.policies.place.parts.packing.buffers import I64, Buffers
from gpusim.policies.place.parts.packing.search import FOUND, LIMIT, NONE, search
from gpusim.policies.place.parts.packing.valleys import FEWEST, LOWEST, RANKED

__all__ = ["FOUND", "LIMIT", "NONE", "decide", "searchable"]

MOST_CELLS = 8_000_000  # of a search's largest table


def searchable(buffers: Buffers) -> bool:
    """The tables of an exact search of these buffers fit into a few hundred megabytes."""
    sections = len(buffers.moments)
    return (2 * len(buffers) + sections) * sections <= MOST_CELLS


def decide(buffers: Buffers, capacity: int, nodes: int, late: Callable[[], bool]) -> tuple[int, I64, int]:
    """Is there a plan within `capacity` bytes: (FOUND, NONE or LIMIT; offsets if found; nodes visited).

    nodes  to visit in all, about 20 us each.  late  asked now and then; True ends the search.
    """
    unit = gcd(*buffers.size.tolist())
    small = Buffers(buffers.lower, buffers.upper, buffers.size // unit)
    orders, visited, limit = list(_orders(small)), 0, 2 * len(small)
    while True:
        for order in orders:
            for rule in (FEWEST, RANKED, LOWEST):
                answer, offset, used = search(small, capacity // unit, order, rule, min(limit, nodes - visited))
                visited += used
                if answer != LIMIT or visited >= nodes or late():
                    return answer, offset * unit, visited
        limit *= 2


def _orders(buffers: Buffers) -> Iterator[I64]:
    """Ranks by which equally low buffers are tried: most contended, longest, largest area, size."""
    length = buffers.upper - buffers.lower
    area = buffers.size * length.astype(np.float64)
    contended = np.array([buffers.live[f:e].max() for f, e in zip(buffers.first, buffers.end, strict=True)])
    spans = buffers.end - buffers.first
    for keys in ((contended, length, area), (contended, spans, area), (area, contended), (buffers.size, area)):
        yield np.lexsort([-key for key in reversed(keys)])
