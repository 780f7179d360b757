"""What vLLM's offloading connector keeps in host memory: the managers of 0.11.0 (LRU) and of 0.33.0 (LRU and ARC), compiled.

A call is about keys[first:end] of one request, its chunks in the order of the prompt.  From 0.33.0 on a manager remembers of
each request what it has done with each of its chunks: `own` is that memory, zeroed when the request arrives.
Rules: vllm 0.11.0 v1/kv_offload/lru_manager.py; 0.33.0 v1/kv_offload/cpu/manager.py and cpu/policies/{lru,arc}.py.
"""

from __future__ import annotations

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.policies.schedule.parts import chunk_tables as c
from gpusim.policies.schedule.parts.chunk_tables import NONE, ChunkTable
from gpusim.policies.schedule.parts.offload_evict import evict
from gpusim.policies.schedule.parts.offload_tables import (
    ARC_033,
    B1,
    B2,
    DONE,
    I64,
    INSERTED,
    LAST,
    LRU_011,
    LRU_033,
    MISSED,
    OWN,
    RANK,
    REUSED,
    SEEN,
    T1,
    T2,
    WRITING,
    held,
    pin,
    unpin,
)


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
    if needed > 0 and not evict(t, keys, first, end, needed):
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
