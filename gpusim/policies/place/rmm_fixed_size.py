"""RMM's fixed-size resource: every request gets a block of one size, from chunks of many blocks; larger ones are refused.

The block that its stream freed first serves first; then one that another stream freed, which costs a wait; then one of
all streams' lists merged; then a chunk is taken from the device.  The first chunk is taken at once.

block_size  bytes, rounded up to 256
blocks      of a chunk
legacy      number of the legacy default stream (0x1), which shares the list of stream 0; -1: none

`release` does what destroying the resource and making it anew does, when nothing is in use.

Source: rmm/mr/fixed_size_memory_resource.hpp, RMM 26.04 (RAPIDS Memory Manager); checked against the library.
"""

from __future__ import annotations

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, FREE, LARGEST, RELEASE, ROUNDED
from gpusim.policies.place.parts.rmm import fixed, streams, table
from gpusim.policies.place.parts.rmm import upstream as device
from gpusim.policies.place.parts.rmm.table import FRESH, OWN
from gpusim.policies.place.parts.rmm.table import statistics as statistics

PARAMS = {"block_size": 1048576, "blocks": 128, "legacy": -1}


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    size, count, legacy = (int(value) for value in params)
    if size < 1 or count < 1:
        raise PolicyError(f"policy 'rmm_fixed_size' has chunks of {count} blocks of {size} bytes", hint="both are at least 1")
    # A chunk is taken when all blocks are in use, and the first at once.
    S = table.new(
        capacity, n_units, ranges=max_live // count + 3, own=fixed.words(table.streams(n_units)),
        blocks=max_live + 2 * count, block_words=fixed.BLOCK_WORDS,
    )  # fmt: skip
    S[OWN + fixed.SIZE], S[OWN + fixed.BLOCKS] = (size + table.ALIGN - 1) // table.ALIGN * table.ALIGN, count
    S[table.LEGACY] = legacy
    return S


@helper
def upstream(S: I64, stream: int, bytes: int) -> int:
    return device.take(S, bytes, 0)


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if S[table.MADE] == 0:
        at = streams.own_list(S, OWN + fixed.LAYER, 0, fixed.new_list)
        S[table.MADE] = 1 if fixed.fill(S, OWN, at, 0, FRESH, S[table.END], upstream) else -1
    if size == 0:
        return table.nothing(S)
    if S[table.MADE] < 0:
        return -1
    p = fixed.take(S, OWN, stream, table.rounded(size), 1, FRESH, S[table.END], upstream)
    if p == 0:
        return -1
    return table.hand(S, unit, p, S[p + fixed.ADDR], S[OWN + fixed.SIZE])


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = table.taken(S, unit)
    if p != 0:
        S[ROUNDED] -= S[OWN + fixed.SIZE]
        S[table.RECORDS] += 1
        fixed.give(S, stream, p)
    return 0


@helper
def destroy(S: I64) -> None:
    fixed.clear(S, OWN)


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return device.release(S, destroy)


@verb(LARGEST)
def largest(S: I64) -> int:
    return S[OWN + fixed.SIZE] if fixed.has_free(S, OWN) else 0
