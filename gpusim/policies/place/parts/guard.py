"""A user's allocator is believed only after a look: its blocks may not overlap, be too small, or lie where no memory is.

A run with such blocks would end with figures that look right.  Built-in allocators are tested instead, and pay nothing.

The guard's verbs stand before the user's, which the table leads to; so they are compiled once for all allocators:

    [ the user's own table | guard's words | address of each unit's block | blocks by address: start, end, unit | G ]

G, the last word, is where the guard's part begins.  That blocks lie in what was taken from the device by device calls is
left to `gpusim check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpusim.base.compiled import address, function_at
from gpusim.policies import contract
from gpusim.policies.compiled import I64, helper, verb
from gpusim.policies.contract import BLOCK, CALLS, CAPACITY

SIGNATURES = {
    "alloc": contract.ALLOC, "free": contract.FREE, "release": contract.RELEASE, "largest": contract.LARGEST,
    "use": contract.USE, "command": contract.COMMAND,
}  # fmt: skip
as_alloc, as_free, as_release, as_largest, as_use, as_command = (function_at(s) for s in SIGNATURES.values())

# The guard's words.
ALLOC, FREE, RELEASE, LARGEST, USE, COMMAND = range(0, 12, 2)  # addresses of the user's verbs, two words each
LIVE, IN_USE = 12, 13   # number of blocks, and their bytes
CALLED = 14             # 1 when it has taken memory from the device
UNITS, ROOM = 15, 16    # units, and the most blocks at once
WORDS = 17

TOO_SMALL, BEYOND, OVERLAP = range(3)


class Misplaced(Exception):
    """What is wrong with a block: (code, unit, start, end, other unit or the bytes that count, its start, its end)."""

    def __str__(self) -> str:
        code, unit, start, end, other, other_start, other_end = self.args
        block = f"unit {unit} at {start:,} .. {end:,}"
        if code == OVERLAP:
            return f"placed {block}, which overlaps unit {other} at {other_start:,} .. {other_end:,}"
        if code == BEYOND:
            return f"placed {block}, beyond the {other:,} bytes that it may hold"
        return f"placed {block}, but the unit has {other:,} bytes"


@helper
def below(S: I64, first: int, count: int, addr: int) -> int:
    """How many of the ascending S[first : first + count] are not above `addr`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if S[first + middle] <= addr:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def shift(S: I64, first: int, last: int, by: int) -> None:
    """Move S[first:last] by one place, up or down."""
    if by > 0:
        for i in range(last - 1, first - 1, -1):
            S[i + 1] = S[i]
    else:
        for i in range(first, last):
            S[i - 1] = S[i]


@verb(contract.ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    g = S[-1]
    addr = as_alloc(S[g + ALLOC], S[g + ALLOC + 1])(S[:g], unit, size, stream)
    if S[CALLS] > 0:
        S[g + CALLED] = 1
    if addr < 0:
        return addr
    block, capacity, live, room = S[BLOCK], S[CAPACITY], S[g + LIVE], S[g + ROOM]
    where = g + WORDS
    starts = where + S[g + UNITS]
    ends, owners, end = starts + room, starts + 2 * room, addr + block
    if block < size:
        raise Misplaced(TOO_SMALL, unit, addr, end, size, 0, 0)
    if block == 0:
        return addr
    if (S[g + IN_USE] + block if S[g + CALLED] else end) > capacity:
        raise Misplaced(BEYOND, unit, addr, end, capacity, 0, 0)
    at = below(S, starts, live, addr)
    if at > 0 and S[ends + at - 1] > addr:
        raise Misplaced(OVERLAP, unit, addr, end, S[owners + at - 1], S[starts + at - 1], S[ends + at - 1])
    if at < live and S[starts + at] < end:
        raise Misplaced(OVERLAP, unit, addr, end, S[owners + at], S[starts + at], S[ends + at])
    for column, value in ((starts, addr), (ends, end), (owners, unit)):
        shift(S, column + at, column + live, 1)
        S[column + at] = value
    S[where + unit] = addr
    S[g + LIVE] += 1
    S[g + IN_USE] += block
    return addr


@verb(contract.FREE)
def free(S: I64, unit: int, stream: int) -> int:
    g = S[-1]
    answer = as_free(S[g + FREE], S[g + FREE + 1])(S[:g], unit, stream)
    live, room, where = S[g + LIVE], S[g + ROOM], g + WORDS
    starts = where + S[g + UNITS]
    at = below(S, starts, live, S[where + unit]) - 1
    if at < 0 or S[starts + 2 * room + at] != unit:
        return answer  # it has no block
    S[g + IN_USE] -= S[starts + room + at] - S[starts + at]
    for column in (starts, starts + room, starts + 2 * room):
        shift(S, column + at + 1, column + live, -1)
    S[g + LIVE] -= 1
    return answer


@verb(contract.RELEASE)
def release(S: I64, bytes: int) -> int:
    g = S[-1]
    return as_release(S[g + RELEASE], S[g + RELEASE + 1])(S[:g], bytes)


@verb(contract.LARGEST)
def largest(S: I64) -> int:
    g = S[-1]
    return as_largest(S[g + LARGEST], S[g + LARGEST + 1])(S[:g])


@verb(contract.USE)
def use(S: I64, unit: int, stream: int) -> int:
    g = S[-1]
    return as_use(S[g + USE], S[g + USE + 1])(S[:g], unit, stream)


@verb(contract.COMMAND)
def command(S: I64, code: int, a: int, b: int) -> int:
    g = S[-1]
    return as_command(S[g + COMMAND], S[g + COMMAND + 1])(S[:g], code, a, b)


def guarded(state: Callable[..., Any], verbs: Mapping[str, Any]) -> dict[str, Any]:
    """`state` and the verbs of an allocator, with the guard before them.

    Verbs that the guard does not know are not offered: they might move blocks behind its back.
    """
    addresses = [address(verbs[name], s) if name in verbs else (0, 0) for name, s in SIGNATURES.items()]

    def table(capacity: int, n_units: int, most_live: int, params: Any) -> I64:
        own = state(capacity, n_units, most_live, params)
        words = np.zeros(WORDS + n_units + 3 * most_live + 1, np.int64)
        words[:LIVE] = np.ravel(addresses)
        words[UNITS], words[ROOM], words[-1] = n_units, most_live, len(own)
        return np.concatenate([own, words])

    guards = {"alloc": alloc, "free": free, "release": release, "largest": largest, "use": use, "command": command}
    return {"state": table, **{name: guard for name, guard in guards.items() if name in verbs}}
