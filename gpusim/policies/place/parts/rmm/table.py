"""The words with which the table of every RMM resource begins, its blocks and its units; counts, and how to read them."""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import PolicyError
from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import BLOCK, CALL_LIST, CALLS, CAPACITY, HEADER, MAX_CALLS, ROUNDED

ALIGN = 256        # bytes: what all sizes are rounded up to
MIB = 1 << 20
ENDLESS = 1 << 62  # bytes: above any memory; sums with it do not overflow
MAX_STREAMS = 1024  # streams beyond count as one

# Where the parts of a table begin, and what they have of it.
UNITS = HEADER                 # word of each unit: its block, 0 for none
FIRST, FRESH, END, SPARE = range(9, 13)  # blocks: the first, the first never used, where their part ends, the latest spare
MADE = 13                      # the resource: 0 not constructed yet, 1 it is, -1 its construction failed
STREAMS, LEGACY = 14, 15       # how many streams are told apart; the number of the legacy default stream
WAITS, RECORDS, SYNCS, UPSTREAM = range(16, 20)  # counts: see `statistics`
TOP, USED, RANGES, RANGE_LIST, MAX_RANGES, REUSE = range(20, 26)  # the device's, see there
OWN = 32                       # the first word of the resource's own


def streams(n_units: int) -> int:
    """How many streams a table tells apart; a unit names one when it is allocated and one when it is freed."""
    return min(MAX_STREAMS, max(64, 2 * n_units + 2))


def new(capacity: int, n_units: int, *, ranges: int, own: int, blocks: int, block_words: int, reuse: bool = False) -> I64:
    """An empty table with room for `own` words of a resource, device ranges, and blocks (lazily: unused pages cost nothing)."""
    range_list = OWN + own
    calls = range_list + 3 * ranges
    units = calls + 2 * (ranges + 1)
    fresh = units + n_units
    S = np.zeros(fresh + block_words * (blocks + 2), np.int64)
    S[CAPACITY], S[CALL_LIST], S[MAX_CALLS] = capacity, calls, ranges + 1
    S[UNITS], S[FIRST], S[FRESH], S[END] = units, fresh, fresh, fresh + block_words * blocks
    S[STREAMS], S[LEGACY] = streams(n_units), -1
    S[RANGE_LIST], S[MAX_RANGES], S[REUSE] = range_list, ranges, reuse
    return S


def size_of(value: float, capacity: int, policy: str, parameter: str, *, whole: bool = True) -> int:
    """Bytes of a size given as a share of the memory, at most 1, or in bytes; `whole`: only of multiples of 256."""
    if value < 0:
        raise PolicyError(f"parameter '{parameter}' of policy '{policy}' is negative ({value:g})")
    if value <= 1:
        return int(value * capacity) // ALIGN * ALIGN
    if whole and value % ALIGN:
        raise PolicyError(
            f"parameter '{parameter}' of policy '{policy}' is {value:.15g} bytes, not a multiple of {ALIGN}",
            hint=f"RMM takes {int(value) // ALIGN * ALIGN}; numbers up to 1 are shares of the memory",
        )
    return int(value) // ALIGN * ALIGN


def statistics(S: I64) -> dict[str, int]:
    """What the resource has asked of the device so far, beside memory.

    cross_stream_waits  a stream made to wait for another whose free blocks it takes
    event_records       one for each free, and from 26.10 on one for each merged list
    synchronisations    the host waits for a stream or for the device (arena)
    upstream_calls      attempts to allocate from the memory below, refused ones too
    """
    names = {"cross_stream_waits": WAITS, "event_records": RECORDS, "synchronisations": SYNCS, "upstream_calls": UPSTREAM}
    return {name: int(S[word]) for name, word in names.items()}


# --- blocks and units -------------------------------------------------------------------------------------------------


@helper
def rounded(size: int) -> int:
    return (min(size, ENDLESS) + ALIGN - 1) // ALIGN * ALIGN


@helper
def has_blocks(S: I64, link: int) -> bool:
    """There is room in the table for the two blocks that a request can need."""
    return S[FRESH] < S[END] or (S[SPARE] != 0 and S[S[SPARE] + link] != 0)


@helper
def take_block(S: I64, words: int, link: int) -> int:
    """A block of so many words; those given back are chained through their word `link`."""
    p = S[SPARE]
    if p != 0:
        S[SPARE] = S[p + link]
        return p
    p = S[FRESH]
    S[FRESH] = p + words
    return p


@helper
def give_block(S: I64, p: int, link: int) -> None:
    S[p + link] = S[SPARE]
    S[SPARE] = p


@helper
def hand(S: I64, unit: int, p: int, addr: int, size: int) -> int:
    """Block p is the unit's from now on.  Returns its address."""
    S[S[UNITS] + unit] = p
    S[ROUNDED] += size
    S[BLOCK] = size
    return addr


@helper
def taken(S: I64, unit: int) -> int:
    """The unit's block, or 0; the unit has none any more."""
    S[CALLS] = 0
    at = S[UNITS] + unit
    p = S[at]
    if p != 0:
        S[at] = 0
    return p


@helper
def nothing(S: I64) -> int:
    """What a request of 0 bytes gets: an address without a block."""
    S[BLOCK] = 0
    return 0


@helper
def forget(S: I64) -> None:
    """The resource is destroyed; it is constructed again when it is needed."""
    S[FRESH] = S[FIRST]
    S[SPARE] = 0
    S[MADE] = 0
