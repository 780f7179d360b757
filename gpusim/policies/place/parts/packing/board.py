"""The board on which `search.py` lays buffers: all that it writes to, and what can be read off it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpusim.base.compiled import kernel
from gpusim.policies.place.parts.packing.buffers import Buffers

FAILURES = 1 << 18   # remembered failures
HIGHEST = 1 << 62
MASK = HIGHEST - 1

# Columns of a group of buffers that are searched on their own.
G_FIRST, G_END, G_FROM, G_TO, G_NEXT, G_PARENT = range(6)  # sections, entries of `members`, next group, the node it is from
# Columns of a node.
N_GROUP, N_GROUPS, N_MEMBERS, N_SECTION, N_RISE, N_FORCED, N_TRIED, N_KEY = range(8)
NO_BUFFER, DONE = -1, -2  # options of a node beside its buffers


class Board(NamedTuple):
    """All that a search writes to.  n buffers in the order in which they are tried, m sections, d nodes deep."""

    first: Any    # int64[n]
    end: Any      # int64[n]
    size: Any     # int64[n]
    twin: Any     # int64[n] the buffer before it that is the same, -1
    random: Any   # int64[n, 3]
    offset: Any   # int64[n] -1 while it has none
    low: Any      # int64[n] the lowest that it may lie at, now
    support: Any  # int64[n] the highest end of what is below it, now
    floor: Any    # int64[m]
    top: Any      # int64[m] the highest end placed
    need: Any     # int64[m] bytes still to be placed
    lowest: Any   # int64[m, 3] the lowest `low` of the buffers there, whose it is, and the second lowest
    fitting: Any  # int64[m] buffers that may be next there
    beside: Any   # int64[2, m + 1] the smallest buffer of a valley that ends at, or begins after, a section
    spans: Any    # int64[m + 1] scratch
    saved: Any    # int64[d, m, 3] floor, top and need as each node found them
    node: Any     # int64[d, 8]
    group: Any    # int64[..., 6]
    members: Any  # int64[...] the buffers of each group
    failed: Any   # int64[FAILURES]


def board(buffers: Buffers) -> Board:
    n, m = len(buffers), len(buffers.moments)
    deep = 2 * n + m + 8
    latest: dict[tuple[int, int, int], int] = {}
    twin = np.full(n, -1)
    for i, same in enumerate(zip(buffers.first.tolist(), buffers.end.tolist(), buffers.size.tolist(), strict=True)):
        twin[i] = latest.get(same, -1)
        latest[same] = i
    zeros = np.zeros
    return Board(
        buffers.first, buffers.end, buffers.size, twin,
        np.random.default_rng(0).integers(MASK, size=(n, 3)), np.full(n, -1), zeros(n, np.int64), zeros(n, np.int64),
        zeros(m, np.int64), zeros(m, np.int64), buffers.live.copy(), zeros((m, 3), np.int64), zeros(m, np.int64),
        zeros((2, m + 1), np.int64), zeros(m + 1, np.int64), np.empty((deep, m, 3), np.int64),
        np.empty((deep, 8), np.int64),
        np.empty((deep + n, 6), np.int64), np.empty(n * (n + 3) // 2 + n, np.int64), zeros(FAILURES, np.int64),
    )  # fmt: skip


@kernel
def lie(b: Board, i: int) -> int:
    """Find `low` and `support` of buffer i from floor and top; its `low`."""
    low, support = 0, 0
    for s in range(b.first[i], b.end[i]):
        low, support = max(low, b.floor[s]), max(support, b.top[s])
    b.low[i], b.support[i] = low, support
    return int(low)


@kernel
def measure(b: Board, g: Any) -> None:
    """The same for all of the group, and `lowest` of its sections."""
    for s in range(g[G_FIRST], g[G_END]):
        b.lowest[s, 0] = b.lowest[s, 2] = HIGHEST
    for k in range(g[G_FROM], g[G_TO]):
        i = b.members[k]
        low = lie(b, i)
        for s in range(b.first[i], b.end[i]):
            x = b.lowest[s]
            if low < x[0]:
                x[2] = x[0]
                x[0], x[1] = low, i
            elif low < x[2]:
                x[2] = low


@kernel
def waits(b: Board, i: int) -> bool:
    """Another buffer that is the same goes first."""
    return bool(b.twin[i] >= 0 and b.offset[b.twin[i]] < 0)


@kernel
def fits(b: Board, i: int) -> bool:
    """Buffer i may be next at its height."""
    return bool(b.low[i] == b.support[i] and not waits(b, i))


@kernel
def key_of(b: Board, g: Any) -> int:
    """What decides the fate of a group: its buffers, how low they may lie and what is below them.  62 bits of a hash."""
    key = 0
    for k in range(g[G_FROM], g[G_TO]):
        i = b.members[k]
        r = b.random[i]
        key = key + (int(r[0]) + int(r[1]) * int(b.low[i]) + int(r[2]) * int(b.support[i]) & MASK) & MASK
    return key | 1
