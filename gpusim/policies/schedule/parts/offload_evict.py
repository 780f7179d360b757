"""Which chunks leave host memory: LRU of vLLM 0.11, LRU of 0.33 by rank, ARC.

Rules: vllm 0.11.0 v1/kv_offload/lru_manager.py; 0.33.0 v1/kv_offload/cpu/manager.py and cpu/policies/{lru,arc}.py.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts import chunk_tables as c
from gpusim.policies.schedule.parts.chunk_tables import NONE, ChunkTable
from gpusim.policies.schedule.parts.offload_tables import B1, B2, I64, LRU_011, LRU_033, T1, T2, held


@outlined
def evict(t: ChunkTable, keys: I64, first: int, end: int, needed: int) -> bool:
    """So many chunks leave, or none: those that a request of 0.33 has offered itself stay."""
    h = t.head[0]
    if h.policy == LRU_011:
        return _evict_oldest(t, needed)
    if needed > h.evictable:
        return False
    _mark(t, keys, first, end, 1)
    done = _evict_ranked(t, needed) if h.policy == LRU_033 else _evict_adaptive(t, needed)
    _mark(t, keys, first, end, 0)
    return done


@kernel
def _mark(t: ChunkTable, keys: I64, first: int, end: int, mark: int) -> None:
    for i in range(first, end):
        n = held(t, keys[i])
        if n != NONE:
            t.rows[n].mark = mark


@kernel
def _choose(t: ChunkTable, n: int) -> None:
    """A row is among those to be evicted."""
    t.evicted[t.head[0].evicted, 0] = n
    t.head[0].evicted += 1


@kernel
def _evict_oldest(t: ChunkTable, needed: int) -> bool:
    n = t.lists[T1].oldest
    while n != NONE and t.head[0].evicted < needed:
        if t.rows[n].references == 0:
            _choose(t, n)
        n = t.rows[n].newer
    if t.head[0].evicted < needed:
        t.head[0].evicted = 0
        return False
    for k in range(needed):
        c.take_out(t, t.evicted[k, 0])
        _gone(t, k)
    return True


@kernel
def _gone(t: ChunkTable, k: int) -> None:
    """The k-th chosen row is forgotten: of it remain its key and its chunk, which is free."""
    n = t.evicted[k, 0]
    t.evicted[k, 0], t.evicted[k, 1] = t.rows[n].key, t.rows[n].chunk
    c.give_back(t, n)
    t.head[0].evictable -= 1
    if t.rows[n].list == NONE:
        c.forget(t, n)


@kernel
def _evict_ranked(t: ChunkTable, needed: int) -> bool:
    h, passed = t.head[0], 0
    while h.count > 0 and h.evicted < needed:
        n = t.heap[0]
        c.pull(t, n)
        if t.rows[n].mark:
            passed += 1
            t.evicted[t.evicted.shape[0] - passed, 0] = n
        else:
            _choose(t, n)
    for k in range(1, passed + 1):
        c.push(t, t.evicted[t.evicted.shape[0] - k, 0])
    if h.evicted < needed:
        for k in range(h.evicted):
            c.push(t, t.evicted[k, 0])
        h.evicted = 0
        return False
    for k in range(needed):
        _gone(t, k)
    return True


@kernel
def _next(t: ChunkTable, n: int) -> int:
    """The first row from this one on that may be evicted."""
    while n != NONE and (t.rows[n].references != 0 or t.rows[n].mark):
        n = t.rows[n].newer
    return n


@kernel
def _evict_adaptive(t: ChunkTable, needed: int) -> bool:
    """ARC: from T1 while it is as long as its target, else from T2; what leaves is remembered in B1 and B2."""
    h, ones = t.head[0], t.lists[T1].count
    a, b = t.lists[T1].oldest, t.lists[T2].oldest
    while h.evicted < needed:
        n = NONE
        if ones >= int(h.target):
            n = a = _next(t, a)
        if n == NONE:
            n = b = _next(t, b)
        if n == NONE:
            n = a = _next(t, a)
        if n == NONE:
            h.evicted = 0
            return False
        if n == a:
            ones -= 1
            a = t.rows[a].newer
        else:
            b = t.rows[b].newer
        _choose(t, n)
    for k in range(needed):
        n = t.evicted[k, 0]
        c.move(t, n, B1 if t.rows[n].list == T1 else B2)
        _gone(t, k)
    for ghosts in range(B1, B2 + 1):
        while t.lists[ghosts].count > h.chunks:
            n = t.lists[ghosts].oldest
            c.take_out(t, n)
            c.forget(t, n)
    return True
