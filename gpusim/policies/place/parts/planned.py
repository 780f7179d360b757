"""A plan inside an allocator's table: slots at fixed offsets, and which of their bytes are in use.

The bytes of the plan are cut at every begin and end of a slot.  A tree over these pieces counts the blocks on each, so that
one look tells whether a range is free: O(log n), whatever its size.

    S[at]  pieces of the tree, a power of two | slots | index of: slots, their order by offset, cuts, tree
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import I64, helper

LEAVES, SLOTS, ROWS, ORDER, CUTS, TREE = range(6)
WORDS = 6
OFFSET, SIZE, BORN, DIES, FROM, TO = range(6)  # of a slot: bytes; requests between which it lives; its pieces
SLOT = 6


def build(at: int, offset: I64, size: I64, born: I64, dies: I64) -> I64:
    """The words of a plan, to stand at index `at` of a table."""
    cuts = np.unique(np.concatenate([[0], offset, offset + size]))
    leaves = 1 << (len(cuts) - 1).bit_length()
    rows = np.stack([offset, size, born, dies, np.searchsorted(cuts, offset), np.searchsorted(cuts, offset + size)], axis=1)
    parts = [rows.ravel(), np.argsort(offset, kind="stable"), cuts, np.zeros(4 * leaves, np.int64)]
    start = at + WORDS + np.cumsum([0, *(len(part) for part in parts[:-1])])
    return np.concatenate([[leaves, len(offset)], start, *parts]).astype(np.int64)


@helper
def mark(S: I64, at: int, first: int, end: int, change: int) -> None:
    """One block more (or, with -1, less) on the pieces [first, end).

    Of a node of the tree there are two words: blocks that cover it whole, and the most blocks on one of its pieces.
    """
    leaves, tree = S[at + LEAVES], S[at + TREE]
    lo, hi = first + leaves, end + leaves
    while lo < hi:
        if lo & 1:
            S[tree + 2 * lo] += change
            S[tree + 2 * lo + 1] += change
            lo += 1
        if hi & 1:
            hi -= 1
            S[tree + 2 * hi] += change
            S[tree + 2 * hi + 1] += change
        lo >>= 1
        hi >>= 1
    for edge in (first + leaves, end + leaves - 1):
        node = edge >> 1
        while node > 0:
            S[tree + 2 * node + 1] = S[tree + 2 * node] + max(S[tree + 4 * node + 1], S[tree + 4 * node + 3])
            node >>= 1


@helper
def free(S: I64, at: int, first: int, end: int) -> bool:
    """No block is on the pieces [first, end)."""
    leaves, tree = S[at + LEAVES], S[at + TREE]
    lo, hi = first + leaves, end + leaves
    while lo < hi:
        if (lo & 1 and S[tree + 2 * lo + 1] > 0) or (hi & 1 and S[tree + 2 * hi - 1] > 0):
            return False
        lo = (lo + 1) >> 1
        hi >>= 1
    for edge in (first + leaves, end + leaves - 1):  # and none covers a node above them
        node = edge >> 1
        while node > 0:
            if S[tree + 2 * node] > 0:
                return False
            node >>= 1
    return True


@helper
def bytes_of(S: I64, at: int, first: int, end: int) -> int:
    cuts = S[at + CUTS]
    return S[cuts + end] - S[cuts + first]


@helper
def piece(S: I64, at: int, address: int) -> int:
    """The first piece that begins at `address` or above."""
    cuts = S[at + CUTS]
    lo, hi = 0, S[at + TREE] - cuts
    while lo < hi:
        middle = (lo + hi) >> 1
        if S[cuts + middle] < address:
            lo = middle + 1
        else:
            hi = middle
    return lo


@helper
def gap(S: I64, at: int, need: int, of: int, absent: bool) -> int:
    """The lowest of the smallest gaps of `need` bytes that the plan leaves over the life of slot `of`; -1: none.

    No block may be in it now; the slot itself is part of a gap when its own request is `absent`.  O(slots): a gap is
    looked for only when a request is not the planned one.
    """
    rows, order = S[at + ROWS], S[at + ORDER]
    born, dies = S[rows + SLOT * of + BORN], S[rows + SLOT * of + DIES]
    found, smallest, below = -1, 1 << 62, 0
    for k in range(S[at + SLOTS] + 1):
        slot = S[order + k] if k < S[at + SLOTS] else -1
        row = rows + SLOT * slot
        if slot < 0 or (S[row + BORN] < dies and born < S[row + DIES] and not (absent and slot == of)):
            above = S[row + OFFSET] if slot >= 0 else S[S[at + TREE] - 1]  # the highest cut ends the plan
            room = above - below
            if need <= room < smallest and free(S, at, piece(S, at, below), piece(S, at, below + need)):
                found, smallest = below, room
            if slot >= 0:
                below = max(below, above + S[row + SIZE])
    return found
