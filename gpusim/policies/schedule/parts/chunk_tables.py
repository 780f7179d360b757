"""Chunks of keys and values in a tier below the device: found by their identity, in lists from old to recent, and in a heap.

A row is a key.  It stands in at most one list at a time (`lists` has their ends and counts); rows that are evicted by rank
stand in the heap, too.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel, outlined
from gpusim.base.tables import filled, i8, record

NONE = -1
MASK = 2**62 - 1  # of a hash: the same with and without overflow

HEAD = record([
    (name, i8) for name in (
        "policy", "chunks", "fresh", "returned", "free", "evictable", "pending", "count", "clock", "threshold",
        "evicted", "stored",
    )
] + [("target", np.float64)])  # fmt: skip
ROW = record([
    (name, i8) for name in (
        "key", "list", "older", "newer", "references", "chunk", "rank", "after", "place", "mark",
    )
])  # fmt: skip
ENDS = record([("oldest", i8), ("newest", i8), ("count", i8)])


@by_pointer
class ChunkTable(NamedTuple):
    """The cache, its rows, its lists, where a key is found (open addressing), the heap, and chunks that were given back."""

    head: Annotated[Any, HEAD, 1]
    rows: Annotated[Any, ROW, "rows"]
    lists: Annotated[Any, ENDS, "lists"]
    table: Annotated[Any, i8, "table"]
    heap: Annotated[Any, i8, "rows"]
    returned: Annotated[Any, i8, "chunks"]
    evicted: Annotated[Any, i8, "rows", 2]  # what the last call has evicted: key and chunk
    stored: Annotated[Any, i8, "rows", 2]   # what is to be stored: which key of the call, and its chunk


def chunk_table(chunks: int, rows: int, lists: int) -> ChunkTable:
    """Empty tables of a cache of so many chunks that knows at most `rows` keys."""
    lengths = {"rows": rows, "lists": lists, "table": 1 << (2 * rows - 1).bit_length(), "chunks": max(chunks, 1)}
    t = filled(ChunkTable, lengths)
    t.table[:] = NONE
    t.lists["oldest"] = t.lists["newest"] = NONE
    t.rows["newer"] = np.arange(1, rows + 1)  # of a free row: the next free one
    t.rows["newer"][-1] = t.rows["place"] = t.rows["list"] = NONE
    t.head[0]["chunks"] = chunks
    return t


@kernel
def home(t: ChunkTable, key: int) -> int:
    x = (int(key) * 0x1E3779B97F4A7C15) & MASK
    x ^= x >> 29
    x = (x * 0x3F58476D1CE4E5B9) & MASK
    return (x ^ (x >> 32)) & (t.table.size - 1)


@outlined
def find(t: ChunkTable, key: int) -> int:
    """The row of a key, NONE without one."""
    i = home(t, key)
    while t.table[i] != NONE:
        if t.rows[t.table[i]].key == key:
            return int(t.table[i])
        i = (i + 1) & (t.table.size - 1)
    return NONE


@outlined
def enter(t: ChunkTable, key: int) -> int:
    """A row for a key that has none."""
    n = t.head[0].free
    row = t.rows[n]
    t.head[0].free = row.newer
    row.key, row.list, row.place, row.chunk = key, NONE, NONE, NONE
    row.references = row.rank = row.after = row.mark = 0
    i = home(t, key)
    while t.table[i] != NONE:
        i = (i + 1) & (t.table.size - 1)
    t.table[i] = n
    return int(n)


@outlined
def forget(t: ChunkTable, n: int) -> None:
    """A key leaves; its row is in no list and not in the heap."""
    mask = t.table.size - 1
    i = home(t, t.rows[n].key)
    while t.table[i] != n:
        i = (i + 1) & mask
    j = i
    while True:
        j = (j + 1) & mask
        if t.table[j] == NONE:
            break
        wanted = home(t, t.rows[t.table[j]].key)
        if ((j - wanted) & mask) >= ((j - i) & mask):
            t.table[i] = t.table[j]
            i = j
    t.table[i] = NONE
    t.rows[n].newer = t.head[0].free
    t.head[0].free = n


@outlined
def append(t: ChunkTable, n: int, which: int) -> None:
    """A row in no list becomes the most recent of one."""
    ends, row = t.lists[which], t.rows[n]
    row.list, row.older, row.newer = which, ends.newest, NONE
    if ends.newest == NONE:
        ends.oldest = n
    else:
        t.rows[ends.newest].newer = n
    ends.newest = n
    ends.count += 1


@outlined
def take_out(t: ChunkTable, n: int) -> None:
    """A row leaves its list."""
    row = t.rows[n]
    ends = t.lists[row.list]
    if row.older == NONE:
        ends.oldest = row.newer
    else:
        t.rows[row.older].newer = row.newer
    if row.newer == NONE:
        ends.newest = row.older
    else:
        t.rows[row.newer].older = row.older
    ends.count -= 1
    row.list = NONE


@kernel
def move(t: ChunkTable, n: int, which: int) -> None:
    """A row becomes the most recent of a list, from whichever it stands in."""
    take_out(t, n)
    append(t, n, which)


@kernel
def before(t: ChunkTable, a: int, b: int) -> bool:
    x, y = t.rows[a], t.rows[b]
    return bool(x.rank < y.rank or (x.rank == y.rank and x.after < y.after))


@kernel
def put(t: ChunkTable, i: int, n: int) -> None:
    t.heap[i] = n
    t.rows[n].place = i


@outlined
def settle(t: ChunkTable, n: int) -> None:
    """A row of the heap goes to where its rank belongs."""
    i, count = t.rows[n].place, t.head[0].count
    while i > 0 and before(t, n, t.heap[(i - 1) >> 1]):
        put(t, i, t.heap[(i - 1) >> 1])
        i = (i - 1) >> 1
    child = 2 * i + 1
    while child < count:
        if child + 1 < count and before(t, t.heap[child + 1], t.heap[child]):
            child += 1
        if not before(t, t.heap[child], n):
            break
        put(t, i, t.heap[child])
        i, child = child, 2 * child + 1
    put(t, i, n)


@kernel
def push(t: ChunkTable, n: int) -> None:
    """A row comes into the heap."""
    t.rows[n].place = t.head[0].count
    t.head[0].count += 1
    settle(t, n)


@outlined
def pull(t: ChunkTable, n: int) -> None:
    """A row leaves the heap."""
    i = t.rows[n].place
    t.rows[n].place = NONE
    t.head[0].count -= 1
    last = t.heap[t.head[0].count]
    if last != n:
        put(t, i, last)
        settle(t, last)


@kernel
def rank(t: ChunkTable, n: int, first: int, then: int) -> None:
    """A row gets a rank: the lowest leaves first."""
    t.rows[n].rank, t.rows[n].after = first, then
    if t.rows[n].place != NONE:
        settle(t, n)


@kernel
def now(t: ChunkTable) -> int:
    """A number above all before."""
    t.head[0].clock += 1
    return int(t.head[0].clock)


@kernel
def room(t: ChunkTable) -> int:
    """How many chunks are free."""
    return int(t.head[0].chunks - t.head[0].fresh + t.head[0].returned)


@kernel
def allocate(t: ChunkTable, n: int, fresh: bool) -> None:
    """A row gets a chunk: one that was never used, or the one that was given back last."""
    h = t.head[0]
    if fresh:
        t.rows[n].chunk = h.fresh
        h.fresh += 1
    else:
        h.returned -= 1
        t.rows[n].chunk = t.returned[h.returned]


@kernel
def give_back(t: ChunkTable, n: int) -> None:
    """The chunk of a row is free."""
    t.returned[t.head[0].returned] = t.rows[n].chunk
    t.head[0].returned += 1
    t.rows[n].chunk = NONE
