"""What vLLM's v0 scheduler keeps beside the tables of the contract: options, two pools of KV blocks, blocks of each request."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, tables_at
from gpusim.base.tables import filled, signature

u1, i4, i8 = np.uint8, np.int32, np.int64
DEVICE, HOST = 0, 1  # the pools
NAMELESS = -(2**63)
NONE = -1

# Options.
(
    BLOCK, PER_PIECE, MAX_SEQS, MAX_TOKENS, MAX_LEN, BY_PRIORITY, CACHING, CHUNKED, SWAPS, WATERMARK, CUTS,
    OPTIONS,
) = range(12)  # fmt: skip

# Words: free rows, running requests, tokens and requests of the step so far, the step's number, whether the waiting are
# unsorted, whether there was no room in the host's memory for what had to be swapped out; of the step how many requests go on,
# have come back, and have begun.
SLOTS_FREE, RUNS, TAKEN, COUNTED, TIME, UNSORTED, NO_SWAP_SPACE, KEPT, CAME, BEGAN, V0_WORDS = range(11)
TO_REQUESTS, TO_STEP, TO_POOLS, TO_QUEUE = range(4)  # addresses


@by_pointer
class BlockPools(NamedTuple):
    """Two pools of blocks: free ones without a name in a stack, free ones with a name in a heap, and where a name is found."""

    total: Annotated[Any, i8, 2]
    top: Annotated[Any, i8, 2]               # of the stack
    ranked: Annotated[Any, i8, 2]            # in the heap
    recent: Annotated[Any, i8, 1]            # blocks of the device named since the last step
    stack: Annotated[Any, i4, 2, "blocks"]
    heap: Annotated[Any, i4, 2, "blocks"]
    place: Annotated[Any, i4, 2, "blocks"]   # in the heap, -1: not there
    users: Annotated[Any, i4, 2, "blocks"]
    name: Annotated[Any, i8, 2, "blocks"]
    depth: Annotated[Any, i8, 2, "blocks"]   # tokens up to the end of the block
    used: Annotated[Any, i8, 2, "blocks"]    # when it was last used, -1: not yet
    computed: Annotated[Any, u1, 2, "blocks"]
    named: Annotated[Any, i4, "blocks"]      # blocks of the device that were named since the last step, and whether one is
    is_new: Annotated[Any, u1, "blocks"]     # among them
    first: Annotated[Any, i4, 2, "buckets"]
    after: Annotated[Any, i4, 2, "blocks"]   # in its bucket


@by_pointer
class V0Tables(NamedTuple):
    """A slot is a row of block numbers; a request has one as long as it holds blocks, of the device or of the host."""

    at: Annotated[Any, i8, 4]
    option: Annotated[Any, i8, OPTIONS]
    word: Annotated[Any, i8, V0_WORDS]
    running: Annotated[Any, i4, "requests"]   # in order
    kept: Annotated[Any, i4, "requests"]      # those of them that go on, and requests to be sorted
    came: Annotated[Any, i4, "requests"]      # those that have come back
    began: Annotated[Any, i4, "requests"]     # those that have begun
    chunk: Annotated[Any, i8, "requests"]     # tokens that become computed in this step, found ones among them
    slot: Annotated[Any, i4, "requests"]      # -1: none
    held: Annotated[Any, i4, "requests"]      # blocks
    filled: Annotated[Any, i8, "requests"]    # tokens that its blocks have slots for
    decodes: Annotated[Any, u1, "requests"]
    found: Annotated[Any, i8, "requests"]     # tokens found in the cache when it started
    used: Annotated[Any, i8, "requests"]      # the step it was last part of, -1: none
    free_slot: Annotated[Any, i4, "slots"]
    block: Annotated[Any, i4, "slots", "blocks of a request"]


POOLS, V0 = signature(BlockPools), signature(V0Tables)
pools_at, v0_at = tables_at(POOLS), tables_at(V0)


def block_pools(device: int, host: int) -> BlockPools:
    """Pools of so many blocks, all free, the lowest number first."""
    most = max(device, host, 1)
    pools = filled(BlockPools, {"blocks": most, "buckets": 1 << most.bit_length()})
    pools.total[:] = pools.top[:] = device, host
    for d, count in enumerate((device, host)):
        pools.stack[d, :count] = np.arange(count)[::-1]
    pools.name[:] = NAMELESS
    pools.place[:] = pools.first[:] = pools.after[:] = NONE
    return pools
