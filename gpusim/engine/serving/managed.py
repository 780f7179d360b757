"""Keys and values in host memory under an engine's own manager: vLLM's offloading connector, LMCache.

The manager decides what is found, stored and evicted; the copies are those of `tiers`.  As the connectors have it:

    look_up   vLLM 0.11 makes all chunks of the request recent; at least one chunk more than the device has is loaded
    reserve   a step has been composed: chunks that it completes are offered, all new ones of a request or none (vLLM), or one
              by one (LMCache)
    send_off  the step is over: one copy for each request
    finish    the request is over, which vLLM 0.33 tells its manager

A chunk that is being written is not found; vLLM 0.33 would ask again a step later.  Rules: vllm 0.11.0
kv_connector/v1/offloading_connector.py, 0.33.0 kv_connector/v1/offloading/scheduler.py, lmcache 0.5.6 v1/cache_engine.py.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined, tables_at
from gpusim.engine.serving.tiers import LOAD, STORE, TierTables, pop, send
from gpusim.policies.schedule.parts import chunk_policies, offload
from gpusim.policies.schedule.parts import chunk_tables as c
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.chunk_tables import NONE, ChunkTable
from gpusim.policies.schedule.parts.managers import CHUNKS, VLLM
from gpusim.policies.schedule.parts.offload_tables import LRU_011, OWN
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable

chunks_at = tables_at(CHUNKS)
SENT, RESERVED = 1, 2  # of `mark`: the copy is under way; it is when the step is over


@outlined
def look_up(t: TierTables, requests: RequestTable, e: int, r: int, there: int) -> int:
    """How many leading tokens of request r the device, which has `there`, and the host's memory hold together."""
    tier, size = t.chain[e, 0], requests.piece[0]
    m, keys = chunks_at(t.manager[tier]), requests.identity[requests.start[r] : requests.start[r + 1]]
    first, end = there // size, requests.known[r] // size
    if t.managed[0] != VLLM:
        while first < end and c.find(m, keys[first]) != NONE:
            first += 1
        return int(max(first * size, there))
    if m.head[0].policy == LRU_011:
        offload.touch(m, keys, 0, end)
    else:
        t.offered[r] = 0
    if end * size - there < size:
        return there
    found = (first + offload.lookup(m, keys, first, end)) * size
    return int(found) if found - there >= size else there


@outlined
def load(t: TierTables, requests: RequestTable, e: int, row: Any, now: int) -> int:
    """What a scheduler has sent for, (request, first token, end), begins to come; how many copies there are."""
    r, size, tier = row[0], requests.piece[0], t.chain[e, 0]
    m, keys = chunks_at(t.manager[tier]), requests.identity[requests.start[r] : requests.start[r + 1]]
    first, end = row[1] // size, (row[2] + size - 1) // size
    if t.managed[0] == VLLM:
        own = t.own[requests.start[r] + OWN * r : requests.start[r + 1] + OWN * (r + 1)]
        offload.begin_load(m, keys, own, first, end)
        t.offered[r] = end
    else:
        for k in range(first, end):
            chunk_policies.hit(m, keys[k])
            chunk_policies.use(m, keys[k], 1)
    t.tier[tier].loaded += end - first
    x = send(t, LOAD, e, 0, t.out_of[e, 0], (row[2] - row[1]) * t.bytes[0], now)
    x.request, x.first, x.end = r, first, end
    t.pending[r] = 1
    return 1


@outlined
def reserve(t: TierTables, requests: RequestTable, step: StepTable, e: int) -> None:
    """Room for the chunks that the step will have completed."""
    tier, size, goes_on = t.chain[e, 0], requests.piece[0], True
    m = chunks_at(t.manager[tier])
    for i in range(step.word[told.N_STEP]):
        r = step.request[i]
        t.begun[r] = min(t.begun[r], t.offered[r])  # a step under way has not sent its own
        end = min(step.before[i] + step.tokens[i], requests.known[r]) // size
        if goes_on and end > t.offered[r]:
            took = _offer(t, requests, m, tier, r, end) if t.managed[0] == VLLM else _put_all(t, requests, m, tier, r, end)
            goes_on = took or m.head[0].policy != LRU_011 or t.managed[0] != VLLM
    row = t.tier[tier]
    row.used = m.head[0].chunks - c.room(m) if t.managed[0] == VLLM else m.lists[0].count + m.head[0].pending
    row.peak = max(row.peak, row.used)


@kernel
def _offer(t: TierTables, requests: RequestTable, m: ChunkTable, tier: int, r: int, end: int) -> bool:
    """vLLM's manager takes all new chunks of the request, or none of them."""
    keys, first, row = requests.identity[requests.start[r] : requests.start[r + 1]], t.offered[r], t.tier[tier]
    own = t.own[requests.start[r] + OWN * r : requests.start[r + 1] + OWN * (r + 1)]
    count = offload.store(m, chunks_at(t.counts[tier]), keys, own, first, end)
    if count == NONE:
        row.declined += end - first
        return False
    t.offered[r] = end
    row.stored += count
    row.evicted += m.head[0].evicted
    for k in range(count):
        t.mark[requests.start[r] + m.stored[k, 0]] = RESERVED
    if count > 0 and m.head[0].policy == LRU_011:
        offload.touch(m, keys, 0, end)
    return True


@kernel
def _put_all(t: TierTables, requests: RequestTable, m: ChunkTable, tier: int, r: int, end: int) -> bool:
    """LMCache finds room for the chunks one by one; `head.pending` counts those that are not written yet."""
    keys, row = requests.identity[requests.start[r] : requests.start[r + 1]], t.tier[tier]
    for k in range(t.offered[r], end):
        if c.find(m, keys[k]) != NONE or t.mark[requests.start[r] + k] != 0:
            continue
        if m.lists[0].count + m.head[0].pending >= m.head[0].chunks:
            if chunk_policies.evict(m, 1, t.freed) == 0:
                row.declined += 1
                continue
            row.evicted += 1
        m.head[0].pending += 1
        row.stored += 1
        t.mark[requests.start[r] + k] = RESERVED
    t.offered[r] = end
    return True


@outlined
def send_off(t: TierTables, requests: RequestTable, step: StepTable, e: int, now: int) -> None:
    """The step is over: what has room goes there."""
    for i in range(step.word[told.N_STEP]):
        r, count = step.request[i], 0
        base, first = requests.start[r], t.begun[r]
        end = min(t.offered[r], min(step.before[i] + step.tokens[i], requests.known[r]) // requests.piece[0])
        for k in range(first, end):
            if t.mark[base + k] == RESERVED:
                t.mark[base + k] = SENT
                count += 1
        t.begun[r] = max(first, end)
        if count > 0 and t.spare[0] == 0:
            give_up(t, requests, e, r, first, end)
        elif count > 0:
            x = send(t, STORE, e, 0, t.into[e, 0], count * t.bytes[1], now)
            x.request, x.first, x.end = r, first, end


@outlined
def give_up(t: TierTables, requests: RequestTable, e: int, r: int, first: int, end: int) -> None:
    """So many copies wait that there is no row for another: the chunks of this one are not written."""
    m, base = chunks_at(t.manager[t.chain[e, 0]]), requests.start[r]
    keys = requests.identity[base : requests.start[r + 1]]
    for k in range(first, end):
        if t.mark[base + k] == SENT:
            t.mark[base + k] = 0
            t.tier[t.chain[e, 0]].declined += 1
            if t.managed[0] == VLLM:
                offload.end_store(m, keys, k, k + 1, False)
            else:
                m.head[0].pending -= 1


@outlined
def arrive_there(t: TierTables, requests: RequestTable, way: int, now: int) -> int:
    """The first copy of a way has ended, and the next one begins; the request that has all it waited for, -1: none."""
    kind, e, _, r, first, end = pop(t, way, now)
    m, keys = chunks_at(t.manager[t.chain[e, 0]]), requests.identity[requests.start[r] : requests.start[r + 1]]
    if kind == LOAD:
        if t.managed[0] == VLLM:
            offload.end_load(m, keys, first, end)
        else:
            for k in range(first, end):
                chunk_policies.use(m, keys[k], -1)
        t.pending[r] = 0
        return int(r)
    for k in range(first, end):
        if t.mark[requests.start[r] + k] == SENT:
            t.mark[requests.start[r] + k] = 0
            if t.managed[0] == VLLM:
                offload.end_store(m, keys, k, k + 1, True)
            else:
                m.head[0].pending -= 1
                chunk_policies.put(m, keys[k])
    return -1


@outlined
def finish(t: TierTables, requests: RequestTable, e: int, r: int) -> None:
    """The request is over."""
    if t.managed[0] == VLLM:
        first, end = requests.start[r], requests.start[r + 1]
        m, own = chunks_at(t.manager[t.chain[e, 0]]), t.own[first + OWN * r : end + OWN * (r + 1)]
        offload.request_ends(m, requests.identity[first:end], own)
