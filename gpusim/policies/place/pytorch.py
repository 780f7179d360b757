"""PyTorch's CUDA caching allocator: blocks of 512 bytes cut from cached segments, best fit per stream, small and large pool.

Requests round up to 512 bytes; those of at most 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of
20 MiB, larger ones from segments of their own, rounded up to 2 MiB.  The first free block that is large enough, in order of
(stream, size, number of the segment, address), is taken; the rest is split off when it has 512 bytes (small pool) or more
than 1 MiB (large pool).  Freed blocks merge with free neighbours of their segment.  When the device has no room, cached
segments are given back, then it is asked once more.

conf     settings as in PYTORCH_CUDA_ALLOC_CONF, as max_split_size_mb:128,garbage_collection_threshold:0.8
release  the release of PyTorch: among equal blocks the lowest address wins up to 2.11, the oldest segment from 2.13 on
device   the address a segment gets: lowest (free one), bump (a new one each time), recorded (those of a recording), or
         contiguous: lowest, and on a device without virtual memory, where a segment needs one free range below the capacity

Commands (codes in parts/pytorch/rules.py) hold streams, begin and end private pools, and change settings; `statistics` and the
events of a memory snapshot are read from the table (parts/pytorch/counting.py, parts/pytorch/events.py).

Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11 to 2.15, compared with the library itself.
"""

from __future__ import annotations

from gpusim.policies.compiled import F64, I64, verb
from gpusim.policies.contract import (
    ALLOC,
    BLOCK,
    CALLS,
    COMMAND,
    FREE,
    HELD,
    LARGEST,
    RELEASE,
    ROUNDED,
    USE,
)
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, LEFT
from gpusim.policies.place.parts.pytorch import blocks, growth, layout, pools, restore, rounding, rules, settings, streams
from gpusim.policies.place.parts.pytorch import giving_back as cache

PARAMS = {"conf": "", "release": "2.13", "device": "lowest"}
NUMBERS = "gpusim.policies.place.parts.pytorch.rules"


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    # More segments than this are a device out of handles; it takes an endless capacity to get there.
    segments = min(capacity // device.PAGE, 4 * n_units + 65536) + 1
    waiting = layout.MAX_STREAMS + min(4 * n_units, 1 << 16)
    nodes = 2 * max_live + 3 * waiting + 6 * segments + 2 * layout.IDLE_RANGES
    S = device.new(capacity, n_units, nodes, layout.WORDS, int(params[1]), segments + 1)
    S[layout.RULE], S[layout.TOTAL], S[layout.LIMIT] = int(params[0]), capacity, layout.NEVER
    S[layout.MAX_WAITING] = waiting
    layout.lay_out(S)
    settings.set_(S, rules.SET_RESERVE, layout.NEVER, 0)
    for i in range(2, len(params), 3):
        settings.set_(S, *(int(x) for x in params[i : i + 3]))
    return S


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = S[layout.HEARD] = 0
    if size == 0:
        return arena.nothing(S)
    if size >= layout.NEVER:
        return -1
    if S[layout.WAITING] != 0 and not layout.capturing(S):
        streams.process(S)
    if S[layout.AIMED] != 0:
        p = restore.carve(S, size)
        if p == 0:
            return -1
    else:
        need = rounding.rounded(S, size)
        pool = pools.serving(S, need)
        exactly = S[layout.EXPANDABLE]
        p = growth.search(S, pool, stream, need, exactly)
        if p == 0:
            p = growth.grow(S, pool, stream, need)
            if p == 0:
                return -1
            if layout.pool_of(S, p) != pool:
                pool, exactly = layout.pool_of(S, p), 0
        p = blocks.hand_out(S, pool, p, need, size, exactly)
    block = layout.size_of(S, p)
    S[S[arena.UNITS] + unit] = p
    S[ROUNDED] += block
    S[BLOCK] = block
    return S[p + ADDR]


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = S[layout.HEARD] = 0
    at = S[arena.UNITS] + unit
    p = S[at]
    if p == 0:
        return 0
    S[at] = 0
    S[ROUNDED] -= layout.size_of(S, p)
    blocks.request_free(S, p)
    if S[p + LEFT] == layout.USED:
        blocks.complete(S, p)
    else:
        streams.free_used(S, p)
    return 0


@verb(USE)
def use(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = S[layout.HEARD] = 0
    p = S[S[arena.UNITS] + unit]
    if p != 0 and stream != layout.stream_of(S, p):
        streams.use(S, p, stream)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    S[CALLS] = S[layout.HEARD] = 0
    held = S[HELD]
    cache.release_all(S)
    return held - S[HELD]


@verb(COMMAND)
def command(S: I64, code: int, a: int, b: int) -> int:
    S[CALLS] = S[layout.HEARD] = 0
    if code >= rules.LAY_SEGMENT:
        return restore.lay(S, code, a, b)
    return settings.carry_out(S, code, a, b)


@verb(LARGEST)
def largest(S: I64) -> int:
    found = pools.largest(S, layout.LARGE)
    if found == 0:
        found = min(pools.largest(S, layout.SMALL), layout.SMALL_SIZE)
    return rounding.largest_request(S, found) if found > 0 else 0


def apart(S: I64) -> dict[str, int]:
    """What is kept apart, for `gpusim oom`: free blocks by stream, by size of the request, and those not to be cut."""
    most = int(S[layout.MAX_SPLIT])
    return {"stream": 1, "small": layout.SMALL_SIZE, "oversize": most if most < layout.NEVER else 0}
