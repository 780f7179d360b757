"""The KV blocks of requests as vLLM v1 gives, names and frees them: look-up, admission, allocation, release.

Source: vLLM's v1/core/kv_cache_manager.py and single_type_kv_cache_manager.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.block_pool import (
    NAMELESS,
    POOL_FREE,
    BlockPool,
    find,
    give_back_first,
    give_back_last,
    give_name,
    take,
    use,
)
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable
from gpusim.policies.schedule.parts.vllm_tables import (
    BLOCK,
    CACHING,
    MAX_LEN,
    NAMELESS_FIRST,
    PER_PIECE,
    SLOTS_FREE,
    VllmTables,
)

OWN = 24  # bits for the number of a block among those of its request


@kernel
def blocks_for(own: VllmTables, tokens: int) -> int:
    return (tokens + own.option[BLOCK] - 1) // own.option[BLOCK]


@kernel
def length(requests: RequestTable, step: StepTable, r: int) -> int:
    """Tokens of prompt and output so far."""
    return requests.prompt[r] + step.made[r]


@kernel
def name_of(own: VllmTables, requests: RequestTable, r: int, k: int) -> int:
    """The identity of all tokens up to the end of the k-th block of request r, which is full."""
    if (k + 1) * own.option[BLOCK] > requests.known[r]:
        return -1 - ((r << OWN) | k)
    each = own.option[PER_PIECE]
    return requests.identity[requests.start[r] + k // each] * each + k % each


@kernel
def look_up(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, r: int) -> int:
    """How many leading blocks of the request are in the cache, listed in `found`; the last token is always computed."""
    if own.option[CACHING] == 0:
        return 0
    most = (length(requests, step, r) - 1) // own.option[BLOCK]
    hits = 0
    while hits < most:
        block = find(pool, name_of(own, requests, r, hits))
        if block == 0:
            break
        own.found[hits] = block
        hits += 1
    return hits


@kernel
def lacking(own: VllmTables, r: int, tokens: int, hits: int) -> int:
    """Blocks to be taken so that the request has slots for so many tokens."""
    return max(blocks_for(own, tokens) - hits - own.held[r], 0)


@outlined
def allocate(
    own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool,
    r: int, upto: int, hits: int, spare: int,
) -> bool:  # fmt: skip
    """Give the request slots for its first `upto` tokens, the blocks found being its first; False, and nothing changes,
    where fewer than `spare` blocks would stay free."""
    wanted = lacking(own, r, min(upto, own.option[MAX_LEN]), hits)
    if wanted + idle_hits(own, pool, hits) + spare > pool.word[POOL_FREE]:
        return False
    if own.slot[r] < 0:
        if own.word[SLOTS_FREE] == 0:
            return False
        own.word[SLOTS_FREE] -= 1
        own.slot[r] = own.free_slot[own.word[SLOTS_FREE]]
    mine, held = own.block[own.slot[r]], own.held[r]
    for k in range(hits):
        use(pool, own.found[k])
        mine[held + k] = own.found[k]
    held += hits
    own.named[r] += hits
    for k in range(held, held + wanted):
        mine[k] = take(pool, step)
    own.held[r] = held + wanted
    return True


@kernel
def idle_hits(own: VllmTables, pool: BlockPool, hits: int) -> int:
    """How many of the blocks found are free so far."""
    idle = 0
    for k in range(hits):
        idle += pool.users[own.found[k]] == 0
    return idle


@outlined
def name_blocks(own: VllmTables, requests: RequestTable, step: StepTable, pool: BlockPool, r: int, upto: int) -> None:
    """Full blocks of the first `upto` tokens can be found from now on, even before they have been computed."""
    if own.option[CACHING] == 0:
        return
    mine = own.block[own.slot[r]]
    full = min(upto, length(requests, step, r)) // own.option[BLOCK]
    for k in range(own.named[r], full):
        give_name(pool, step, mine[k], name_of(own, requests, r, k))
    own.named[r] = max(own.named[r], full)


@outlined
def free_blocks(own: VllmTables, pool: BlockPool, r: int) -> None:
    """The request's blocks lose a user, its last block first; those without users go back to the free list."""
    if own.slot[r] < 0:
        return
    mine, held, nameless_first = own.block[own.slot[r]], own.held[r], own.option[NAMELESS_FIRST] != 0
    for k in range(held - 1, -1, -1):
        block = mine[k]
        pool.users[block] -= 1
        if pool.users[block] == 0 and not (nameless_first and pool.name[block] == NAMELESS):
            give_back_last(pool, block)
    if nameless_first:
        for k in range(held):
            block = mine[k]
            if pool.users[block] == 0 and pool.name[block] == NAMELESS:
                give_back_first(pool, block)
    own.free_slot[own.word[SLOTS_FREE]] = own.slot[r]
    own.word[SLOTS_FREE] += 1
    own.slot[r] = -1
    own.held[r] = own.named[r] = 0
