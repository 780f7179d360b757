"""RMM's arena: first fit in superblocks that streams take from one global set, and give back only when memory runs out.

All memory is one range, taken at once.  A request rounds up to 256 bytes.  One of at most 1 MiB is served from its
stream's own superblocks, the first by address with room; else the stream gets the first global superblock with room, cut
to 1 MiB when it is empty.  Larger ones are served from the global set, where empty neighbours merge.  Out of memory,
the device is waited for, all streams give back all superblocks, and the request is tried once more.  Freeing a large block,
or one that another stream's arena holds, waits for the stream.

size          bytes, or a share of the memory when at most 1, that the arena takes; at least 1 MiB
size_classes  1: sizes round up to one of 117 classes, as RMM does when built with RMM_ARENA_USE_SIZE_CLASSES

`release` does what destroying the arena and making it anew does, when nothing is in use.

Source: rmm/mr/arena_memory_resource.hpp, RMM 26.04 (RAPIDS Memory Manager); checked against the library.
"""

from __future__ import annotations

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import ALLOC, CALLS, FREE, LARGEST, RELEASE, ROUNDED
from gpusim.policies.place.parts.arena import SIZE
from gpusim.policies.place.parts.bins import ADDR, NEXT
from gpusim.policies.place.parts.rmm import arena, superblocks, table
from gpusim.policies.place.parts.rmm import upstream as device
from gpusim.policies.place.parts.rmm.table import statistics as statistics

PARAMS = {"size": 0.5, "size_classes": 0}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    size = table.size_of(params[0], capacity, "rmm_arena", "size", whole=False)
    if params[0] > 1 and size < table.MIB:
        raise PolicyError(f"parameter 'size' of policy 'rmm_arena' is {params[0]:.15g} bytes", hint="at least 1 MiB")
    count = min(capacity // table.MIB, 4 * n_units + (1 << 16)) + 2
    S = table.new(
        capacity, n_units, ranges=1, own=arena.words(table.streams(n_units), count), blocks=2 * max_live + count,
        block_words=superblocks.BLOCK_WORDS,
    )  # fmt: skip
    S[arena.RANGE], S[arena.CLASSES] = size, params[1] != 0
    S[superblocks.END] = arena.ARENAS + 2 * S[table.STREAMS] + superblocks.WORDS * (count - 1)
    return S


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if S[table.MADE] == 0:
        arena.construct(S)
    if size == 0:
        return table.nothing(S)
    if S[table.MADE] < 0 or not table.has_blocks(S, NEXT) or not superblocks.has_superblock(S):
        return -1
    p = arena.take(S, stream, arena.rounded_up(S, size))
    if p == 0:
        return -1
    return table.hand(S, unit, p, S[p + ADDR], S[p + SIZE])


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = table.taken(S, unit)
    if p != 0:
        S[ROUNDED] -= S[p + SIZE]
        arena.give(S, stream, p)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return device.release(S, arena.destroy)


@verb(LARGEST)
def largest(S: I64) -> int:
    return arena.largest(S)
