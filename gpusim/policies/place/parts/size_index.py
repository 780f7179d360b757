"""The index of an arena's free blocks in exact order of (size, address): what best fit and buddy look in."""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import arena, bins
from gpusim.policies.place.parts.arena import INDEX, SIZE
from gpusim.policies.place.parts.bins import ADDR, ORDER

WORDS = bins.WORDS


@helper
def add(S: I64, p: int) -> None:
    S[p + ORDER] = S[p + ADDR]
    bins.add(S, INDEX, p, S[p + SIZE])


@helper
def drop(S: I64, p: int) -> None:
    bins.drop(S, INDEX, p, S[p + SIZE])


@helper
def moved(S: I64, p: int, addr: int, size: int) -> None:
    drop(S, p)
    S[p + ADDR], S[p + SIZE] = addr, size
    add(S, p)


@helper
def smallest(S: I64, size: int) -> int:
    """The smallest free block of at least this size, the lowest address among equals; 0 when there is none."""
    return bins.smallest(S, INDEX, size)


@helper
def best_fit(S: I64, unit: int, need: int) -> int:
    """The unit gets the smallest free block that is large enough, the untouched end among them: its address, or -1."""
    p, end = smallest(S, need), arena.room(S)
    if end >= need and (p == 0 or end < S[p + SIZE]):
        return arena.give(S, unit, arena.cut_tail(S, need))
    if p == 0 or not arena.within(S, p, need):
        return -1
    return arena.give(S, unit, arena.cut(S, p, need, drop, moved))


@helper
def largest(S: I64) -> int:
    """Size of the largest free block, 0 when there is none."""
    p = bins.largest(S, INDEX)
    return S[p + SIZE] if p != 0 else 0
