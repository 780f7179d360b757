"""LMCache's cache policies (0.5.6): which chunks of 256 tokens leave a tier first.  lru, lfu, fifo and mru, compiled.

A chunk that is read or written has references and stays.  Rules: lmcache 0.5.6 v1/storage_backend/cache_policy/*.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.schedule.parts import chunk_tables as c
from gpusim.policies.schedule.parts.chunk_tables import NONE, ChunkTable

I64 = npt.NDArray[np.int64]
CHUNK_TOKENS = 256
CHUNK_POLICIES = ("lru", "lfu", "fifo", "mru")
LRU, LFU, FIFO, MRU = range(len(CHUNK_POLICIES))


def chunk_cache(chunks: int, policy: str = "lru") -> ChunkTable:
    """An empty tier of so many chunks; PolicyError for a policy that is none of CHUNK_POLICIES."""
    if policy not in CHUNK_POLICIES:
        hint = suggest(policy, CHUNK_POLICIES) or ", ".join(CHUNK_POLICIES)
        raise PolicyError(f"there is no policy '{policy}' of LMCache", hint=hint)
    made = c.chunk_table(chunks, chunks + 2, 1)
    made.head[0]["policy"] = CHUNK_POLICIES.index(policy)
    return made


@outlined
def put(t: ChunkTable, key: int) -> bool:
    """A chunk comes into the tier, where there is room; one that is there stays as it is."""
    if c.find(t, key) != NONE or t.lists[0].count >= t.head[0].chunks:
        return False
    n = c.enter(t, key)
    c.append(t, n, 0)
    if t.head[0].policy == LFU:
        t.rows[n].rank, t.rows[n].after = 1, c.now(t)
        c.push(t, n)
    return True


@outlined
def hit(t: ChunkTable, key: int) -> bool:
    """Whether the tier has the chunk, which is used."""
    n = c.find(t, key)
    if n == NONE:
        return False
    if t.head[0].policy == LFU:
        c.rank(t, n, t.rows[n].rank + 1, c.now(t))
    elif t.head[0].policy != FIFO:
        c.move(t, n, 0)
    return True


@kernel
def use(t: ChunkTable, key: int, more: int) -> None:
    """One reader more, or (-1) less, of a chunk that is there."""
    t.rows[c.find(t, key)].references += more


@outlined
def remove(t: ChunkTable, key: int) -> None:
    """A chunk leaves the tier, whatever the policy says."""
    n = c.find(t, key)
    if n != NONE:
        _leave(t, n)


@kernel
def _leave(t: ChunkTable, n: int) -> None:
    if t.rows[n].place != NONE:
        c.pull(t, n)
    c.take_out(t, n)
    c.forget(t, n)


@outlined
def evict(t: ChunkTable, many: int, freed: I64) -> int:
    """Up to so many chunks that nothing uses leave: their keys are in `freed`; how many they are."""
    if t.head[0].policy == LFU:
        return _evict_rare(t, many, freed)
    newest = t.head[0].policy == MRU
    count, n = 0, t.lists[0].newest if newest else t.lists[0].oldest
    while n != NONE and count < many:
        after = t.rows[n].older if newest else t.rows[n].newer
        if t.rows[n].references == 0:
            freed[count] = t.rows[n].key
            count += 1
            _leave(t, n)
        n = after
    return count


@kernel
def _evict_rare(t: ChunkTable, many: int, freed: I64) -> int:
    """The least often used first, of equal ones that which has waited longest with this count."""
    count = passed = 0
    while count < many and t.head[0].count > 0:
        n = t.heap[0]
        c.pull(t, n)
        if t.rows[n].references == 0:
            freed[count] = t.rows[n].key
            count += 1
            _leave(t, n)
        else:
            t.stored[passed, 0] = n
            passed += 1
    for k in range(passed):
        c.push(t, t.stored[k, 0])
    return count


@entry()
def chunk_put(t: ChunkTable, key: int) -> bool:
    """See `put`."""
    return put(t, key)


@entry()
def chunk_hit(t: ChunkTable, key: int) -> bool:
    """See `hit`."""
    return hit(t, key)


@entry()
def chunk_use(t: ChunkTable, key: int, more: int) -> None:
    """See `use`."""
    use(t, key, more)


@entry()
def chunk_remove(t: ChunkTable, key: int) -> None:
    """See `remove`."""
    remove(t, key)


@entry()
def chunk_evict(t: ChunkTable, many: int, freed: I64) -> int:
    """See `evict`."""
    return evict(t, many, freed)
