"""What vLLM's offloading connector keeps in host memory: the managers of 0.11.0 (LRU) and of 0.33.0 (LRU and ARC), compiled.

A call is about keys[first:end] of one request, its chunks in the order of the prompt.  From 0.33.0 on a manager remembers of
each request what it has done with each of its chunks: `own` is that memory, zeroed when the request arrives.
Rules: vllm 0.11.0 v1/kv_offload/lru_manager.py; 0.33.0 v1/kv_offload/cpu/manager.py and cpu/policies/{lru,arc}.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.schedule.parts import chunk_tables as c
from gpusim.policies.schedule.parts.chunk_tables import NONE, ChunkTable

I64 = npt.NDArray[np.int64]

MANAGERS = ("lru@0.11", "lru@0.33", "arc@0.33")
LRU_011, LRU_033, ARC_033 = range(len(MANAGERS))
T1, T2, B1, B2 = range(4)  # lists; LRU of 0.11 uses T1 only, and LRU of 0.33 ranks in a heap
WRITING = -1  # references of a chunk that is being written

RANK, DONE, LAST, OWN = range(4)  # own: the request's rank, whether it is finished, one past its last chunk seen, and per chunk
SEEN, INSERTED, REUSED, MISSED = 1, 2, 4, 8


def offload_manager(chunks: int, name: str = "lru@0.33") -> ChunkTable:
    """An empty manager, of MANAGERS, of so many chunks in host memory; PolicyError for another name."""
    if name not in MANAGERS:
        raise PolicyError(f"there is no offload manager '{name}'", hint=suggest(name, MANAGERS) or ", ".join(MANAGERS))
    made = c.chunk_table(chunks, 5 * chunks + 8, 4)
    made.head[0]["policy"] = MANAGERS.index(name)
    return made


def store_counts(threshold: int = 1, tracked: int = 64_000) -> ChunkTable:
    """How often which chunk was offered (0.33): it is stored from the `threshold`-th time on; at most so many are counted."""
    made = c.chunk_table(tracked if threshold > 1 else 0, (tracked if threshold > 1 else 0) + 2, 1)
    made.head[0]["threshold"] = threshold
    return made


def request_memory(chunks: int) -> I64:
    """What a manager of 0.33 remembers of a request of so many chunks."""
    return np.zeros(OWN + chunks, np.int64)


@kernel
def held(t: ChunkTable, key: int) -> int:
    """The row of a key whose chunk is there, written or being written; NONE without one."""
    n = c.find(t, key)
    return n if n != NONE and t.rows[n].chunk != NONE else NONE


@kernel
def unpin(t: ChunkTable, n: int) -> None:
    """Nothing reads the chunk any more: it may be evicted."""
    t.head[0].evictable += 1
    if t.head[0].policy == LRU_033:
        c.push(t, n)


@kernel
def pin(t: ChunkTable, n: int) -> None:
    t.head[0].evictable -= 1
    if t.head[0].policy == LRU_033:
        c.pull(t, n)


@outlined
def lookup(t: ChunkTable, keys: I64, first: int, end: int) -> int:
    """How many leading chunks can be read; `head.pending`: whether the next one is being written."""
    t.head[0].pending = 0
    for i in range(first, end):
        n = held(t, keys[i])
        if n == NONE or t.rows[n].references == WRITING:
            t.head[0].pending = int(n != NONE)
            return i - first
    return end - first


@outlined
def begin_load(t: ChunkTable, keys: I64, own: I64, first: int, end: int) -> None:
    """Chunks that can be read are read from now on."""
    for i in range(first, end):
        n = held(t, keys[i])
        if t.rows[n].references == 0:
            pin(t, n)
        t.rows[n].references += 1
    if t.head[0].policy != LRU_011:
        for i in range(first, end):
            _see(t, keys[i], own, i, True)


@outlined
def end_load(t: ChunkTable, keys: I64, first: int, end: int) -> None:
    """They have been read."""
    for i in range(first, end):
        n = held(t, keys[i])
        t.rows[n].references -= 1
        if t.rows[n].references == 0:
            unpin(t, n)


@kernel
def _see(t: ChunkTable, key: int, own: I64, i: int, reused: bool) -> None:
    """The request has come upon its i-th chunk; a chunk that it wrote itself is not reused."""
    new = own[OWN + i] & SEEN == 0
    own[OWN + i] |= SEEN
    own[LAST] = max(own[LAST], i + 1)
    n = held(t, key)
    if new and t.head[0].policy == LRU_033:
        r = _request_rank(t, own)
        if n != NONE and (t.rows[n].rank < r or (t.rows[n].rank == r and t.rows[n].after < -i)):
            c.rank(t, n, r, -i)
    if reused and own[OWN + i] & INSERTED == 0:
        own[OWN + i] |= REUSED


@kernel
def _request_rank(t: ChunkTable, own: I64) -> int:
    if own[RANK] == 0:
        own[RANK] = c.now(t)
    return int(own[RANK])


@outlined
def touch(t: ChunkTable, keys: I64, first: int, end: int) -> None:
    """These chunks are recent, the first more so than the last."""
    for back in range(end - first):
        key = keys[end - 1 - back]
        n = held(t, key)
        if t.head[0].policy == ARC_033:
            if n == NONE:
                _adapt(t, c.find(t, key))
            elif t.rows[n].list == T1 and t.rows[n].references == WRITING:
                c.move(t, n, T1)
            else:
                c.move(t, n, T2)
        elif n != NONE and t.head[0].policy == LRU_033:
            c.rank(t, n, c.now(t), 0)
        elif n != NONE:
            c.move(t, n, T1)


@kernel
def _adapt(t: ChunkTable, n: int) -> None:
    """A key that was evicted is wanted: the list that it left should have been longer."""
    if n != NONE and (t.rows[n].list == B1 or t.rows[n].list == B2):
        h, ones, twos = t.head[0], t.lists[B1].count, t.lists[B2].count
        if t.rows[n].list == B1:
            h.target = min(h.target + max(1.0, twos / ones), float(h.chunks))
            c.move(t, n, B1)
        else:
            h.target = max(h.target - max(1.0, ones / twos), 0.0)
            c.move(t, n, B2)


@outlined
def _count(counts: ChunkTable, keys: I64, first: int, end: int) -> None:
    """Chunks are offered once more; those not offered for longest make room for new ones, but not those of this offer."""
    others = counts.lists[0].count
    for i in range(first, end):
        n = c.find(counts, keys[i])
        if n != NONE:
            c.move(counts, n, 0)
            counts.rows[n].references += 1
            others -= 1
    for i in range(first, end):
        if c.find(counts, keys[i]) != NONE:
            continue
        if counts.lists[0].count >= counts.head[0].chunks:
            if others == 0:
                continue
            oldest = counts.lists[0].oldest
            c.take_out(counts, oldest)
            c.forget(counts, oldest)
            others -= 1
        n = c.enter(counts, keys[i])
        c.append(counts, n, 0)
        counts.rows[n].references = 1


@kernel
def _often(counts: ChunkTable, key: int) -> bool:
    """Whether a chunk was offered often enough."""
    if counts.head[0].threshold < 2:
        return True
    n = c.find(counts, key)
    return n != NONE and counts.rows[n].references >= counts.head[0].threshold


@outlined
def store(t: ChunkTable, counts: ChunkTable, keys: I64, own: I64, first: int, end: int) -> int:
    """Chunks are offered: how many are to be written (`stored`: which of the keys, and where to), NONE where they do not fit.

    What had to leave for them is in `evicted`, `head.evicted` rows.  Either all that are absent are stored or none.
    """
    h = t.head[0]
    h.stored = h.evicted = 0
    later = h.policy != LRU_011
    if later and counts.head[0].threshold > 1:
        _count(counts, keys, first, end)
    for i in range(first, end):
        if held(t, keys[i]) == NONE and _often(counts, keys[i]):
            t.stored[h.stored, 0] = i
            h.stored += 1
    if later:
        _observe(t, keys, own, first, end)
        if h.stored == 0:
            return 0
    needed = h.stored - c.room(t)
    if needed > 0 and not _evict(t, keys, first, end, needed):
        return NONE
    fresh = min(h.stored, h.chunks - h.fresh)
    for k in range(h.stored):
        i = t.stored[k, 0]
        _write(t, keys[i], own, i, k < fresh)
        t.stored[k, 1] = t.rows[c.find(t, keys[i])].chunk
    return int(h.stored)


@kernel
def _observe(t: ChunkTable, keys: I64, own: I64, first: int, end: int) -> None:
    """0.33 learns from an offer once per request and chunk, whether it fits or not."""
    h = t.head[0]
    for back in range(h.stored):
        i = t.stored[h.stored - 1 - back, 0]
        if own[OWN + i] & MISSED == 0:
            own[OWN + i] |= MISSED
            if h.policy == ARC_033:
                _adapt(t, c.find(t, keys[i]))
    k = 0
    for i in range(first, end):
        n = held(t, keys[i])
        if n != NONE and t.rows[n].references != WRITING:
            _see(t, keys[i], own, i, True)
        elif k < h.stored and t.stored[k, 0] == i:
            k += 1
            _see(t, keys[i], own, i, False)


@kernel
def _write(t: ChunkTable, key: int, own: I64, i: int, fresh: bool) -> None:
    """A chunk is there from now on, and being written."""
    n = c.find(t, key)
    if n == NONE:
        n = c.enter(t, key)
    elif t.rows[n].list != NONE:
        c.take_out(t, n)
    c.allocate(t, n, fresh)
    t.rows[n].references = WRITING
    if t.head[0].policy == LRU_033:
        t.rows[n].rank, t.rows[n].after = _request_rank(t, own), -i
    else:
        c.append(t, n, T1)
    if t.head[0].policy != LRU_011:
        own[OWN + i] |= INSERTED


@outlined
def end_store(t: ChunkTable, keys: I64, first: int, end: int, well: bool) -> None:
    """Chunks that were being written can be read, or, where that failed, are free again."""
    for i in range(first, end):
        n = held(t, keys[i])
        if n == NONE or t.rows[n].references != WRITING:
            continue
        if well:
            t.rows[n].references = 0
            unpin(t, n)
        else:
            c.give_back(t, n)
            if t.rows[n].list != NONE:
                c.take_out(t, n)
            c.forget(t, n)


@outlined
def request_ends(t: ChunkTable, keys: I64, own: I64) -> None:
    """0.33: the request is over; its chunks become recent, heads more so than tails."""
    if t.head[0].policy == LRU_011 or own[DONE]:
        return
    own[DONE] = 1
    for back in range(own[LAST]):
        i = own[LAST] - 1 - back
        does = own[OWN + i]
        n = held(t, keys[i])
        if n == NONE or does & SEEN == 0:
            continue
        if t.head[0].policy == LRU_033:
            c.rank(t, n, c.now(t), 0)
        elif does & INSERTED and not does & REUSED:
            c.move(t, n, t.rows[n].list)
        elif does & REUSED:
            c.move(t, n, T2)


@outlined
def _evict(t: ChunkTable, keys: I64, first: int, end: int, needed: int) -> bool:
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


@entry()
def offload_lookup(t: ChunkTable, keys: I64, first: int, end: int) -> tuple[int, int]:
    """(leading chunks that can be read, whether the next is being written)."""
    found = lookup(t, keys, first, end)
    return found, t.head[0].pending


@entry()
def offload_touch(t: ChunkTable, keys: I64, first: int, end: int) -> None:
    """See `touch`."""
    touch(t, keys, first, end)


@entry()
def offload_load(t: ChunkTable, keys: I64, own: I64, first: int, end: int, begin: int) -> None:
    """Chunks begin to be read (begin = 1), or have been read (0)."""
    if begin:
        begin_load(t, keys, own, first, end)
    else:
        end_load(t, keys, first, end)


@entry()
def offload_store(t: ChunkTable, counts: ChunkTable, keys: I64, own: I64, first: int, end: int) -> int:
    """See `store`."""
    return store(t, counts, keys, own, first, end)


@entry()
def offload_stored(t: ChunkTable, keys: I64, first: int, end: int, well: int) -> None:
    """See `end_store`."""
    end_store(t, keys, first, end, well != 0)


@entry()
def offload_request_ends(t: ChunkTable, keys: I64, own: I64) -> None:
    """See `request_ends`."""
    request_ends(t, keys, own)
