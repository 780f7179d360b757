"""RMM's binning resource: small requests go to fixed-size resources of powers of two, larger ones to the pool below them.

A request is served by the first bin that is large enough (see rmm_fixed_size: 128 blocks a chunk), and by the pool (see
rmm_pool) when none is.  The bins take their chunks from the same pool, the first of each at once: 992 MiB by default.

min_size_exponent  the smallest bin has blocks of 2 to this power, at least 256 bytes
max_size_exponent  the largest
initial            bytes, or a share of the memory when at most 1, that the pool takes at once; 0: none
maximum            the same: what the pool may hold; 0: no maximum
reclaim            1: a pool at its maximum first gives back ranges that are wholly free (since RMM 26.10); 0: it never does
reuse              1: the device gives addresses again that were given back; 0: never
legacy             number of the legacy default stream (0x1), which shares the lists of stream 0; -1: none

`release` does what destroying the resources and making them anew does, when nothing is in use.

Source: rmm/mr/binning_memory_resource.hpp, RMM 26.04 (RAPIDS Memory Manager); checked against the library.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.base.compiled import outlined
from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, FREE, LARGEST, RELEASE, ROUNDED
from gpusim.policies.place.parts.bins import NEXT
from gpusim.policies.place.parts.rmm import fixed, pool, streams, table
from gpusim.policies.place.parts.rmm import upstream as device
from gpusim.policies.place.parts.rmm.table import MADE, OWN, STREAMS
from gpusim.policies.place.parts.rmm.table import statistics as statistics

PARAMS = {
    "min_size_exponent": 18, "max_size_exponent": 22, "initial": 0.0, "maximum": 0.0, "reclaim": 1, "reuse": 1, "legacy": -1,
}  # fmt: skip

BLOCKS = 128      # of a chunk of any bin
SMALLEST = 8      # exponent of the smallest bin there can be
LARGEST_BIN = 30  # RMM computes the sizes in 32 bits

# After the pool's own words: how many bins, the smallest one's exponent, the first bin, their blocks.
BINS, EXPONENT, FIRST_BIN, FRESH, END = range(pool.EXTRA, pool.EXTRA + 5)


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    low, high = int(params[0]), int(params[1])
    if not 0 <= low <= high <= LARGEST_BIN:
        raise PolicyError(
            f"policy 'rmm_binning' has bins from 2**{low} to 2**{high}", hint=f"exponents rise from 0 to {LARGEST_BIN} at most"
        )
    low = max(low, SMALLEST)
    bins, n_streams = max(high - low + 1, 1), table.streams(n_units)
    # A bin takes a chunk when all of its blocks are in use, and the first at once.
    blocks = sum(min(max_live + 2 * BLOCKS, (capacity >> (low + k)) + BLOCKS) for k in range(bins))
    S = pool.state(
        capacity, n_units, params[2:], "rmm_binning", bins * fixed.words(n_streams) + blocks * fixed.BLOCK_WORDS
    )
    S[BINS], S[EXPONENT] = bins, low
    S[FIRST_BIN] = first = OWN + pool.words(n_streams)
    S[FRESH] = first + bins * fixed.words(n_streams)
    S[END] = S[FRESH] + blocks * fixed.BLOCK_WORDS
    for k in range(bins):
        r = first + k * fixed.words(n_streams)
        S[r + fixed.SIZE], S[r + fixed.BLOCKS] = 1 << (low + k), BLOCKS
    return S


@helper
def bin_at(S: I64, k: int) -> int:
    return S[FIRST_BIN] + k * (fixed.LAYER + 1 + 4 * S[STREAMS])


@helper
def bin_of(S: I64, size: int) -> int:
    """The number of the bin for a request, or of bins when none is large enough."""
    if size <= 1 << S[EXPONENT]:
        return 0
    return min(bits.highest(size - 1) + 1 - S[EXPONENT], S[BINS])


@outlined
def from_pool(S: I64, stream: int, need: int) -> int:
    """A block of the pool, or 0; a function of its own because three places call it."""
    return pool.take(S, stream, need) if table.has_blocks(S, NEXT) else 0


@helper
def upstream(S: I64, stream: int, bytes: int) -> int:
    p = from_pool(S, stream, bytes)
    return S[p + pool.AT] if p != 0 else -1


@helper
def construct(S: I64) -> None:
    pool.construct(S)
    for k in range(S[BINS]):
        if S[MADE] > 0:
            r = bin_at(S, k)
            at = streams.own_list(S, r + fixed.LAYER, 0, fixed.new_list)
            if not fixed.fill(S, r, at, 0, FRESH, S[END], upstream):
                device.give_all(S)
                S[MADE] = -1


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if S[MADE] == 0:
        construct(S)
    if size == 0:
        return table.nothing(S)
    if S[MADE] < 0:
        return -1
    k = bin_of(S, size)
    if k < S[BINS]:
        r = bin_at(S, k)
        p = fixed.take(S, r, stream, size, S[pool.RECLAIMS], FRESH, S[END], upstream)
        return table.hand(S, unit, p, S[p + fixed.ADDR], S[r + fixed.SIZE]) if p != 0 else -1
    p = from_pool(S, stream, table.rounded(size))
    return table.hand(S, unit, p, S[p + pool.AT], S[p + pool.SIZE]) if p != 0 else -1


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = table.taken(S, unit)
    if p == 0:
        return 0
    S[table.RECORDS] += 1
    if p < S[END]:
        S[ROUNDED] -= S[S[p + fixed.OF] + fixed.SIZE]
        fixed.give(S, stream, p)
    else:
        S[ROUNDED] -= S[p + pool.SIZE]
        pool.give(S, stream, p)
    return 0


@helper
def destroy(S: I64) -> None:
    pool.destroy(S)
    for k in range(S[BINS]):
        fixed.clear(S, bin_at(S, k))
    S[FRESH] = bin_at(S, S[BINS])


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return device.release(S, destroy)


@verb(LARGEST)
def largest(S: I64) -> int:
    found = pool.largest(S)
    for k in range(S[BINS]):
        if fixed.has_free(S, bin_at(S, k)):
            found = max(found, 1 << (S[EXPONENT] + k))
    return found
