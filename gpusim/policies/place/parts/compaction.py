"""Free memory in one piece again: the two ways in which an arena's blocks can be rearranged.

    slide    | A |hole| B |hole| C | rest     ->   | A | B | C |         rest         blocks are copied
    unmap    | A |hole| B |hole| C | rest     ->   | A |gone| B |gone| C |     rest   pages are mapped elsewhere

A run uses one of them.  Sources: R. Jones, A. Hosking, E. Moss, "The Garbage Collection Handbook", 2011, chapter 3 (sliding
compaction); the CUDA driver API's virtual memory management (cuMemUnmap, cuMemMap).
"""

from __future__ import annotations

from typing import Any

from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import CALL_LIST, CALLS, HELD
from gpusim.policies.place.parts import neighbours
from gpusim.policies.place.parts.arena import (
    GONE,
    LAST,
    N_UNITS,
    PAGE,
    PIECES,
    SIZE,
    TAIL,
    UNITS,
    is_free,
    take_node,
    unlink,
)
from gpusim.policies.place.parts.bins import ADDR, LEFT, LIVE, NEXT, OWNER, PREV

OWNERLESS = -1  # OWNER of pages that are gone


@helper
def name_owners(S: I64) -> int:
    """Every live block learns whose it is.  Returns the lowest block, 0 when there is none."""
    for unit in range(S[N_UNITS]):
        p = S[S[UNITS] + unit]
        if p != 0:
            S[p + OWNER] = unit
    p, first = S[LAST], 0
    while p != 0:
        first = p
        p = S[p + PREV]
    return first


@helper
def slide(S: I64, moves: I64, drop: Any) -> int:
    """The verb `compact`: every live block moves down to the end of the one before it.

    Writes (unit, old address, new address, bytes) of each that moves, in order of address; returns how many.
    """
    S[CALLS] = 0
    p = name_owners(S)
    end, n = 0, 0
    while p != 0:
        after = S[p + NEXT]
        if is_free(S, p):
            drop(S, p)
            unlink(S, p)
        else:
            if S[p + ADDR] != end:
                at = 4 * n
                moves[at], moves[at + 1], moves[at + 2], moves[at + 3] = S[p + OWNER], S[p + ADDR], end, S[p + SIZE]
                S[p + ADDR] = end
                n += 1
            end += S[p + SIZE]
        p = after
    S[TAIL] = end
    return n


@helper
def insert_after(S: I64, p: int, addr: int, size: int) -> int:
    """A block between p and the next one, which there is; whether it is free is up to the caller."""
    q = take_node(S)
    S[q + ADDR], S[q + SIZE] = addr, size
    neighbours.link(S, q, p, S[p + NEXT])
    return q


@helper
def is_gone(S: I64, p: int) -> bool:
    """Block p, whose owner has been named, stands for pages that are gone."""
    return p != 0 and S[p + LEFT] == LIVE and S[p + OWNER] == OWNERLESS


@helper
def unmap(S: I64, add: Any, drop: Any) -> int:
    """The verb `remap`: whole pages inside of holes are given back.  Returns their bytes.

    The list of device calls names each range of pages.  As many can be taken at the end when a request needs them.
    """
    S[CALLS], S[CALL_LIST] = 0, S[PIECES]
    page, given, calls = S[PAGE], 0, 0
    p = name_owners(S)
    while p != 0:
        after = S[p + NEXT]
        if is_free(S, p):
            start, end = S[p + ADDR], S[p + ADDR] + S[p + SIZE]
            low, high = (start + page - 1) // page * page, end // page * page
            if low < high:
                drop(S, p)
                if low > start:
                    S[p + SIZE] = low - start
                    add(S, p)
                    p = insert_after(S, p, low, high - low)
                S[p + ADDR], S[p + SIZE], S[p + LEFT], S[p + OWNER] = low, high - low, LIVE, OWNERLESS
                if high < end:
                    rest = insert_after(S, p, high, end - high)
                    add(S, rest)
                at = S[PIECES] + 2 * calls
                S[at], S[at + 1] = low, low - high
                calls += 1
                given += high - low
        if is_gone(S, p) and is_gone(S, S[p + PREV]):
            S[S[p + PREV] + SIZE] += S[p + SIZE]
            unlink(S, p)
        p = after
    S[CALLS] = calls
    S[HELD] -= given
    S[GONE] += given
    return given
