"""Binary buddies: sizes are powers of two at multiples of themselves; a freed block merges only with its other half.

The smallest free block that is large enough is halved until it fits, the lowest address among equal ones.  All blocks
are parts of one power of two that covers the capacity at the start; of those that reach over the capacity only the part
below it can be had, which amounts to tiling the memory with the largest powers of two that fit.

min_block  bytes of the smallest block, a power of two

Source: K. C. Knowlton, "A fast storage allocator", CACM 8(10), 1965; D. E. Knuth, The Art of Computer Programming 1,
2.5.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, CALLS, CAPACITY, FREE, HELD, LARGEST, RELEASE
from gpusim.policies.place.parts import arena, bins, neighbours
from gpusim.policies.place.parts import size_index as sized
from gpusim.policies.place.parts.arena import ALIGN, INDEX, LAST, SIZE, TAIL
from gpusim.policies.place.parts.bins import ADDR, LEFT, LIVE, NEXT, PREV, ROOTS

PARAMS = {"min_block": 512}

ROOT = arena.EXTRA  # word of the table: bytes of the block that all others are parts of


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    smallest = 1 << (max(1, int(params[0])) - 1).bit_length()
    root = max(smallest, 1 << max(0, capacity - 1).bit_length())
    # Every live block has at most one free buddy for each doubling; the upper ones they share.
    doublings = (root // smallest).bit_length()
    shared = max_live.bit_length() - 1
    blocks = min(max_live * (max(0, doublings - shared) + 2), 2 * (root // smallest)) + 64
    S = arena.new(capacity, n_units, blocks, sized.WORDS, smallest, smallest)
    S[ROOT] = root
    return S


@helper
def begin(S: I64) -> None:
    """All memory is one free block."""
    p = arena.take_node(S)
    S[p + ADDR] = S[p + PREV] = S[p + NEXT] = 0
    S[p + SIZE] = S[ROOT]
    S[LAST] = p
    sized.add(S, p)


@helper
def half(S: I64, p: int) -> None:
    """Free block p, which is in no index, becomes its lower half; the upper one is free."""
    size = S[p + SIZE] >> 1
    q = arena.take_node(S)
    S[q + ADDR] = S[p + ADDR] + size
    S[q + SIZE] = size
    neighbours.link(S, q, p, S[p + NEXT])
    if S[q + NEXT] == 0:
        S[LAST] = q
    S[p + SIZE] = size
    sized.add(S, q)


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > S[CAPACITY]:
        return -1
    if S[LAST] == 0:
        begin(S)
    need = S[ALIGN]
    if size > need:
        need = 1 << (bits.highest(size - 1) + 1)
    b = bins.next_bin(S, INDEX, bins.bin_of(need))
    while b >= 0:
        p = bins.first(S, INDEX + ROOTS + b)
        if arena.within(S, p, need):
            sized.drop(S, p)
            while S[p + SIZE] > need:
                half(S, p)
            S[p + LEFT] = LIVE
            return arena.give(S, unit, p)
        b = bins.next_bin(S, INDEX, b + 1)
    return -1


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    p = arena.taken(S, unit)
    if p == 0:
        return 0
    while True:
        size = S[p + SIZE]
        lower = S[p + ADDR] & size == 0
        q = S[p + NEXT] if lower else S[p + PREV]
        if not arena.is_free(S, q) or S[q + SIZE] != size:
            break
        sized.drop(S, q)
        if not lower:
            p, q = q, p
        arena.unlink(S, q)
        S[p + SIZE] = 2 * size
    sized.add(S, p)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    p = S[LAST]
    while arena.is_free(S, p):  # at most one of each size in a row
        p = S[p + PREV]
    S[TAIL] = S[p + ADDR] + S[p + SIZE] if p != 0 else 0
    return arena.lower(S)


@verb(LARGEST)
def largest(S: I64) -> int:
    found = 0
    b = bins.next_bin(S, INDEX, 0)
    while b >= 0:
        p = bins.first(S, INDEX + ROOTS + b)
        room = min(S[p + SIZE], S[HELD] - S[p + ADDR])
        if room > found:
            found = 1 << bits.highest(room)
        b = bins.next_bin(S, INDEX, b + 1)
    return found if found >= S[ALIGN] else 0
