"""The upstream resource: memory that hands out ranges at multiples of 256 bytes.

A range goes to the lowest gap between others that is large enough, else to the lowest address never used; without
REUSE always to the latter, as in RMM's own replay benchmark.  RMM asks for few and large ranges, so they stand in one
short list in the order of their addresses: (address, bytes asked for, a mark of the owner's).
"""

from __future__ import annotations

from typing import Any

from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import CALL_LIST, CALLS, CAPACITY, HELD, ROUNDED
from gpusim.policies.place.parts.rmm.table import MAX_RANGES, RANGE_LIST, RANGES, REUSE, TOP, UPSTREAM, USED, forget, rounded

ADDR, BYTES, MARK, WORDS = range(4)


@helper
def called(S: I64, addr: int, bytes: int) -> None:
    at = S[CALL_LIST] + 2 * S[CALLS]
    S[at], S[at + 1] = addr, bytes
    S[CALLS] += 1
    S[HELD] += bytes


@helper
def take(S: I64, bytes: int, mark: int) -> int:
    """The address of a new range, or -1."""
    S[UPSTREAM] += 1
    need = rounded(bytes)
    first, count = S[RANGE_LIST], S[RANGES]
    if need > S[CAPACITY] or count == S[MAX_RANGES]:
        return -1
    addr, i = S[TOP], count
    if S[REUSE] != 0 and S[USED] < addr:
        gap = 0
        for k in range(count):
            at = first + WORDS * k
            if S[at + ADDR] - gap >= need:
                addr, i = gap, k
                break
            gap = S[at + ADDR] + rounded(S[at + BYTES])
        if i == count and addr - gap >= need:
            addr = gap
    if addr + need > S[CAPACITY]:
        return -1
    for k in range(WORDS * (count - i)):
        S[first + WORDS * count + WORDS - 1 - k] = S[first + WORDS * count - 1 - k]
    at = first + WORDS * i
    S[at + ADDR], S[at + BYTES], S[at + MARK] = addr, bytes, mark
    S[RANGES] += 1
    S[TOP] = max(S[TOP], addr + need)
    S[USED] += need
    called(S, addr, bytes)
    return addr


@helper
def give(S: I64, at: int) -> None:
    """Give back the range whose words begin at `at`."""
    S[USED] -= rounded(S[at + BYTES])
    called(S, S[at + ADDR], -S[at + BYTES])
    S[RANGES] -= 1
    for k in range(at, S[RANGE_LIST] + WORDS * S[RANGES]):
        S[k] = S[k + WORDS]


@helper
def give_all(S: I64) -> int:
    """Give back all ranges; the memory is as new.  Returns the bytes."""
    held = S[HELD]
    for k in range(S[RANGES]):
        at = S[RANGE_LIST] + WORDS * k
        called(S, S[at + ADDR], -S[at + BYTES])
    S[TOP] = S[USED] = S[RANGES] = 0
    return held


@helper
def release(S: I64, destroy: Any) -> int:
    """An unused resource is destroyed, to be constructed again when it is needed.  Returns the bytes.

    destroy(S) resets the resource's own words.
    """
    S[CALLS] = 0
    if S[HELD] == 0 or S[ROUNDED] != 0:
        return 0
    destroy(S)
    forget(S)
    return give_all(S)
