"""The bytes of each unit, for policies that must know them later; one number for all units as long as they have one size.

A table of a million sizes is one more miss in the caches per access, a quarter of ARC's time in a replay of pages.
Three words of S from word z on: the size of all units noted so far, or what stands for none and for several; the first word
of the table; its length.
"""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.queue import get, put

SAME, TABLE, LENGTH = range(3)
WORDS = 3
NONE, SEVERAL = -1, -2


def open_sizes(S: I64, z: int, table: int, n_units: int) -> None:
    S[z + SAME], S[z + TABLE], S[z + LENGTH] = NONE, table, n_units


@helper
def note(S: I64, z: int, unit: int, size: int) -> None:
    """The unit has this size from now on."""
    same = S[z + SAME]
    if same == size:
        return
    if same == NONE:
        S[z + SAME] = size
        return
    table = S[z + TABLE]
    if same != SEVERAL:
        for i in range(table, table + S[z + LENGTH]):
            put(S, i, same)
        S[z + SAME] = SEVERAL
    put(S, table + unit, size)


@helper
def size_of(S: I64, z: int, unit: int) -> int:
    """The size of a unit that has been noted."""
    same = S[z + SAME]
    return same if same != SEVERAL else get(S, S[z + TABLE] + unit)
