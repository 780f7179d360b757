"""The KV blocks of requests as vLLM v0 gives, names, swaps and frees them.

Source: vLLM 0.9.2 core/{block_manager,evictor}.py and core/block/*.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.tables import N_EVICTED, N_STORED, RequestTable, StepTable
from gpusim.policies.schedule.parts.v0_tables import (
    BLOCK,
    CACHING,
    DEVICE,
    HOST,
    NAMELESS,
    NONE,
    PER_PIECE,
    SLOTS_FREE,
    WATERMARK,
    BlockPools,
    V0Tables,
)
from gpusim.policies.schedule.parts.vllm_blocks import length

OWN = 24  # bits for the number of a block among those of its request
YES, LATER, NEVER = range(3)


@kernel
def blocks_for(own: V0Tables, tokens: int) -> int:
    return (tokens + own.option[BLOCK] - 1) // own.option[BLOCK]


@kernel
def name_of(own: V0Tables, requests: RequestTable, r: int, k: int) -> int:
    """The identity of all tokens up to the end of the k-th block of request r, which is full."""
    if (k + 1) * own.option[BLOCK] > requests.known[r]:
        return -1 - ((r << OWN) | k)
    each = own.option[PER_PIECE]
    return requests.identity[requests.start[r] + k // each] * each + k % each


@kernel
def free_of(pools: BlockPools, d: int) -> int:
    """Unused blocks of a pool, with a name or without."""
    return int(pools.top[d] + pools.ranked[d])


# The heap of unused blocks: least recently used first, the deepest of equal ones, then the lowest number.


@kernel
def goes_before(pools: BlockPools, d: int, a: int, b: int) -> bool:
    if pools.used[d, a] != pools.used[d, b]:
        return pools.used[d, a] < pools.used[d, b]
    if pools.depth[d, a] != pools.depth[d, b]:
        return pools.depth[d, a] > pools.depth[d, b]
    return a < b


@kernel
def put(pools: BlockPools, d: int, i: int, block: int) -> None:
    pools.heap[d, i] = block
    pools.place[d, block] = i


@outlined
def settle(pools: BlockPools, d: int, block: int) -> None:
    i, count = pools.place[d, block], pools.ranked[d]
    while i > 0 and goes_before(pools, d, block, pools.heap[d, (i - 1) >> 1]):
        put(pools, d, i, pools.heap[d, (i - 1) >> 1])
        i = (i - 1) >> 1
    child = 2 * i + 1
    while child < count:
        if child + 1 < count and goes_before(pools, d, pools.heap[d, child + 1], pools.heap[d, child]):
            child += 1
        if not goes_before(pools, d, pools.heap[d, child], block):
            break
        put(pools, d, i, pools.heap[d, child])
        i, child = child, 2 * child + 1
    put(pools, d, i, block)


@kernel
def rank(pools: BlockPools, d: int, block: int) -> None:
    pools.place[d, block] = pools.ranked[d]
    pools.ranked[d] += 1
    settle(pools, d, block)


@outlined
def strike(pools: BlockPools, d: int, block: int) -> None:
    i = pools.place[d, block]
    pools.place[d, block] = NONE
    pools.ranked[d] -= 1
    last = pools.heap[d, pools.ranked[d]]
    if last != block:
        put(pools, d, i, last)
        settle(pools, d, last)


# Names.


@kernel
def bucket_of(pools: BlockPools, name: int) -> int:
    return (name ^ (name >> 13) ^ (name >> 24)) & (pools.first.shape[1] - 1)


@kernel
def find(pools: BlockPools, d: int, name: int) -> int:
    """The block that has this name, NONE without one."""
    block = pools.first[d, bucket_of(pools, name)]
    while block != NONE and pools.name[d, block] != name:
        block = pools.after[d, block]
    return int(block)


@kernel
def give_name(pools: BlockPools, step: StepTable, d: int, block: int, name: int, depth: int) -> None:
    """The block is full: it can be found from now on, and counts as computed from the next step on."""
    bucket = bucket_of(pools, name)
    pools.name[d, block], pools.depth[d, block] = name, depth
    pools.after[d, block] = pools.first[d, bucket]
    pools.first[d, bucket] = block
    if d == DEVICE:
        if not pools.is_new[block]:
            pools.named[pools.recent[0]], pools.is_new[block] = block, 1
            pools.recent[0] += 1
        if step.word[N_STORED] < step.stored.size:
            step.stored[step.word[N_STORED]] = name
        step.word[N_STORED] += 1


@kernel
def drop_name(pools: BlockPools, step: StepTable, d: int, block: int) -> None:
    name = pools.name[d, block]
    bucket = bucket_of(pools, name)
    if pools.first[d, bucket] == block:
        pools.first[d, bucket] = pools.after[d, block]
    else:
        other = pools.first[d, bucket]
        while pools.after[d, other] != block:
            other = pools.after[d, other]
        pools.after[d, other] = pools.after[d, block]
    pools.name[d, block] = NAMELESS
    if d == DEVICE:
        if step.word[N_EVICTED] < step.evicted.size:
            step.evicted[step.word[N_EVICTED]] = name
        step.word[N_EVICTED] += 1


# Blocks.


@kernel
def track(pools: BlockPools, d: int, block: int, computed: int) -> None:
    pools.used[d, block], pools.computed[d, block] = NONE, computed


@outlined
def take(pools: BlockPools, step: StepTable, d: int) -> int:
    """A block without a name, which gets its first user: one that is free, else one whose name is given up; there is one."""
    if pools.top[d] > 0:
        pools.top[d] -= 1
        block = pools.stack[d, pools.top[d]]
    else:
        block = pools.heap[d, 0]
        strike(pools, d, block)
        drop_name(pools, step, d, block)
    pools.users[d, block] = 1
    track(pools, d, block, 0)
    return int(block)


@kernel
def use(pools: BlockPools, d: int, block: int) -> None:
    """One user more of a block with a name."""
    pools.users[d, block] += 1
    if pools.users[d, block] == 1:
        strike(pools, d, block)
        track(pools, d, block, 1)


@outlined
def drop(pools: BlockPools, d: int, block: int) -> None:
    """One user less."""
    pools.users[d, block] -= 1
    if pools.users[d, block] > 0:
        return
    if pools.name[d, block] != NAMELESS:
        rank(pools, d, block)
    else:
        pools.stack[d, pools.top[d]] = block
        pools.top[d] += 1


@outlined
def full_block(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, d: int, r: int, k: int) -> int:
    """The k-th block of a request, which is full: the one that has its name, or a new one."""
    if own.option[CACHING] == 0:
        return take(pools, step, d)
    name = name_of(own, requests, r, k)
    block = find(pools, d, name)
    if block == NONE:
        block = take(pools, step, d)
        give_name(pools, step, d, block, name, (k + 1) * own.option[BLOCK])
    else:
        use(pools, d, block)
    return block


@outlined
def found_in_cache(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int) -> int:
    """Tokens of the request's full blocks that are in the device's cache, by a binary search for the first that is not."""
    low, high = 0, length(requests, step, r) // own.option[BLOCK]
    while low < high:
        middle = (low + high) // 2
        block = find(pools, DEVICE, name_of(own, requests, r, middle))
        if block != NONE and (pools.users[DEVICE, block] == 0 or pools.computed[DEVICE, block]):
            low = middle + 1
        else:
            high = middle
    return low * own.option[BLOCK]


@kernel
def can_start(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int) -> int:
    """Whether there are blocks for all tokens of the request: none of them is taken to be found."""
    wanted = blocks_for(own, length(requests, step, r))
    if pools.total[DEVICE] - wanted < own.option[WATERMARK]:
        return NEVER
    fits = free_of(pools, DEVICE) - wanted >= own.option[WATERMARK] and own.word[SLOTS_FREE] > 0
    return YES if fits else LATER


@outlined
def start(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int) -> None:
    """The request gets blocks for all its tokens."""
    own.word[SLOTS_FREE] -= 1
    own.slot[r] = own.free_slot[own.word[SLOTS_FREE]]
    row, tokens = own.block[own.slot[r]], length(requests, step, r)
    full = tokens // own.option[BLOCK]
    for k in range(full):
        row[k] = full_block(own, requests, step, pools, DEVICE, r, k)
    if tokens > full * own.option[BLOCK]:
        row[full] = take(pools, step, DEVICE)
    own.held[r], own.filled[r], own.used[r] = blocks_for(own, tokens), tokens, NONE


@kernel
def touched_by_next(own: V0Tables, requests: RequestTable, step: StepTable, r: int) -> int:
    """Blocks that the request's next slots are in, at most."""
    if length(requests, step, r) > own.filled[r]:
        return 1
    return int(own.filled[r] % own.option[BLOCK] > 0)


@outlined
def append(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int) -> None:
    """A slot for the request's newest token, where it has none."""
    if length(requests, step, r) == own.filled[r]:
        return
    row, size = own.block[own.slot[r]], own.option[BLOCK]
    if own.filled[r] == own.held[r] * size:
        row[own.held[r]] = take(pools, step, DEVICE)
        own.held[r] += 1
    own.filled[r] += 1
    if own.filled[r] % size or own.option[CACHING] == 0:
        return
    k = own.filled[r] // size - 1
    name = name_of(own, requests, r, k)
    other = find(pools, DEVICE, name)
    if other == NONE:
        give_name(pools, step, DEVICE, row[k], name, own.filled[r])
    else:  # another request was faster
        drop(pools, DEVICE, row[k])
        use(pools, DEVICE, other)
        row[k] = other


@outlined
def free(own: V0Tables, pools: BlockPools, r: int, d: int) -> None:
    """The request's blocks lose a user, the first first; when they were last used is when the request last ran."""
    if own.slot[r] < 0:
        return
    row = own.block[own.slot[r]]
    if own.used[r] >= 0 and d == DEVICE:
        for k in range(own.held[r]):
            pools.used[d, row[k]] = own.used[r]
    for k in range(own.held[r]):
        drop(pools, d, row[k])
    own.free_slot[own.word[SLOTS_FREE]] = own.slot[r]
    own.word[SLOTS_FREE] += 1
    own.slot[r], own.held[r], own.filled[r] = NONE, 0, 0


@outlined
def can_swap(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int, d: int) -> int:
    """Whether the request's blocks find room in this pool; a block that is only partly filled is not counted."""
    wanted = touched_by_next(own, requests, step, r)
    for k in range(own.filled[r] // own.option[BLOCK]):
        there = NONE
        if own.option[CACHING]:
            there = find(pools, d, name_of(own, requests, r, k))
        wanted += int(there == NONE or pools.users[d, there] == 0)
    if pools.total[d] < wanted:
        return NEVER
    return YES if free_of(pools, d) - wanted >= (own.option[WATERMARK] if d == DEVICE else 0) else LATER


@outlined
def swap(own: V0Tables, requests: RequestTable, step: StepTable, pools: BlockPools, r: int, d: int) -> None:
    """The request's blocks move into this pool from the other one."""
    row, full = own.block[own.slot[r]], own.filled[r] // own.option[BLOCK]
    for k in range(own.held[r]):
        drop(pools, HOST - d, row[k])
    for k in range(own.held[r]):
        row[k] = full_block(own, requests, step, pools, d, r, k) if k < full else take(pools, step, d)


@kernel
def all_computed(pools: BlockPools) -> None:
    """Blocks that were named before the step are computed by the next one."""
    for i in range(pools.recent[0]):
        pools.computed[DEVICE, pools.named[i]] = 1
        pools.is_new[pools.named[i]] = 0
    pools.recent[0] = 0
