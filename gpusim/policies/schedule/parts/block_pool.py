"""A pool of KV blocks with reference counts, in which blocks without users wait to be reused, and a table of what they hold.

The free list is a ring through block 0, which is never given out: a block is taken behind it and given back before it.  What a
block holds has a name, the identity of all tokens up to its end; several blocks may have one name, and the one that got it
first is found.  A block without users keeps its name until it is taken.

Source: vLLM's v1/core/block_pool.py (Apache-2.0), its rules in own words.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel, tables_at
from gpusim.base.tables import filled, signature
from gpusim.policies.schedule.parts.tables import N_EVICTED, N_STORED, StepTable

i4, i8 = np.int32, np.int64
NAMELESS = -(2**63)
POOL_FREE, POOL_MASK, POOL_WORDS = range(3)


@by_pointer
class BlockPool(NamedTuple):
    """Of N blocks, number 0 among them."""

    word: Annotated[Any, i8, POOL_WORDS]  # free blocks; buckets - 1
    users: Annotated[Any, i4, "blocks"]
    name: Annotated[Any, i8, "blocks"]
    after: Annotated[Any, i4, "blocks"]   # in the free list
    before: Annotated[Any, i4, "blocks"]
    newer: Annotated[Any, i4, "blocks"]   # in the bucket of its name; 0: none
    older: Annotated[Any, i4, "blocks"]
    first: Annotated[Any, i4, "buckets"]  # the block that was named first in each bucket
    last: Annotated[Any, i4, "buckets"]


POOL = signature(BlockPool)
pool_at = tables_at(POOL)


def block_pool(blocks: int) -> BlockPool:
    """A pool of so many blocks, at least 2, of which all but block 0 are free, the lowest number first."""
    buckets = 1 << blocks.bit_length()
    pool = filled(BlockPool, {"blocks": blocks, "buckets": buckets})
    pool.name[:] = NAMELESS
    pool.after[:] = np.roll(np.arange(blocks), -1)
    pool.before[:] = np.roll(np.arange(blocks), 1)
    pool.word[POOL_FREE], pool.word[POOL_MASK] = blocks - 1, buckets - 1
    return pool


@kernel
def bucket_of(pool: BlockPool, name: int) -> int:
    return (name ^ (name >> 13) ^ (name >> 24)) & pool.word[POOL_MASK]


@kernel
def find(pool: BlockPool, name: int) -> int:
    """The block that got this name first; 0 when none has it."""
    block = pool.first[bucket_of(pool, name)]
    while block != 0 and pool.name[block] != name:
        block = pool.newer[block]
    return block


@kernel
def give_name(pool: BlockPool, step: StepTable, block: int, name: int) -> None:
    """The block holds this from now on; what came into the cache is noted."""
    bucket = bucket_of(pool, name)
    last = pool.last[bucket]
    pool.name[block], pool.older[block], pool.newer[block] = name, last, 0
    if last:
        pool.newer[last] = block
    else:
        pool.first[bucket] = block
    pool.last[bucket] = block
    if step.word[N_STORED] < step.stored.size:
        step.stored[step.word[N_STORED]] = name
    step.word[N_STORED] += 1


@kernel
def drop_name(pool: BlockPool, step: StepTable, block: int) -> None:
    """What the block holds leaves the cache, which is noted."""
    name = pool.name[block]
    bucket = bucket_of(pool, name)
    older, newer = pool.older[block], pool.newer[block]
    if older:
        pool.newer[older] = newer
    else:
        pool.first[bucket] = newer
    if newer:
        pool.older[newer] = older
    else:
        pool.last[bucket] = older
    pool.name[block] = NAMELESS
    if step.word[N_EVICTED] < step.evicted.size:
        step.evicted[step.word[N_EVICTED]] = name
    step.word[N_EVICTED] += 1


@kernel
def unlink(pool: BlockPool, block: int) -> None:
    """The block leaves the free list, wherever in it it is."""
    before, after = pool.before[block], pool.after[block]
    pool.after[before], pool.before[after] = after, before
    pool.word[POOL_FREE] -= 1


@kernel
def take(pool: BlockPool, step: StepTable) -> int:
    """The first free block, without a name and with one user; there must be one."""
    block = pool.after[0]
    unlink(pool, block)
    if pool.name[block] != NAMELESS:
        drop_name(pool, step, block)
    pool.users[block] = 1
    return block


@kernel
def use(pool: BlockPool, block: int) -> None:
    """One more request uses what the block holds."""
    if pool.users[block] == 0:
        unlink(pool, block)
    pool.users[block] += 1


@kernel
def put_between(pool: BlockPool, block: int, before: int, after: int) -> None:
    pool.before[block], pool.after[block] = before, after
    pool.after[before] = pool.before[after] = block
    pool.word[POOL_FREE] += 1


@kernel
def give_back_last(pool: BlockPool, block: int) -> None:
    """A block without users is reused after all others."""
    put_between(pool, block, pool.before[0], 0)


@kernel
def give_back_first(pool: BlockPool, block: int) -> None:
    """A block without users is reused before all others."""
    put_between(pool, block, 0, pool.after[0])
