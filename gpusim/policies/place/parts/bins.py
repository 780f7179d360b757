"""Free blocks in exact order of (key, order): bins by size with bitmaps, a small treap in each bin.

    bitmap of rows ─▶ bitmap of each row ─▶ root of the bin's treap ─▶ free blocks
      1 bit a doubling   32 bins a doubling

Everything is an index into the one table S: a *block* is the index of its first word, a *link* the index of the word
that names a block (a root, or the LEFT or RIGHT of another block); 0 is no block.  A bin holds the sizes of 1/32 of a
doubling, so that its treap is shallow, and finding the next bin that is not empty takes two bit scans.

The caller gives `size` (which selects the bin) and has set KEY, ORDER and ADDR of the block, which is the order of blocks;
keys of one bin may be anything, but to find the smallest block over all bins they must grow with the size.

Sources: R. Seidel, C. Aragon, "Randomized search trees", Algorithmica 16, 1996 (treap); M. Masmano et al., "TLSF: a new
dynamic memory allocator for real-time systems", ECRTS 2004 (two levels of bitmaps).
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.policies.compiled import I64, helper

# Words of a block: where it is, its neighbours by address, its place in the treap (LEFT is LIVE while it is in use).
ADDR, KEY, PREV, NEXT, LEFT, RIGHT, ORDER, OWNER = range(8)
LIVE = -1

ROWS, ROOTS = 1, 65    # offsets from the start of an index of bins: a bitmap for each of 64 rows, the roots
WORDS = ROOTS + 64 * 32


@helper
def bin_of(size: int) -> int:
    """Sizes below 32 have a bin each, larger ones share it with those of the same 6 leading bits."""
    if size < 32:
        return size
    f = bits.highest(size)
    return ((f - 5) << 5) + (size >> (f - 5))


@helper
def floor_of(b: int) -> int:
    """The smallest size of bin b."""
    if b < 64:
        return b
    f = (b >> 5) + 4
    return (32 + (b & 31)) << (f - 5)


@helper
def mark(S: I64, i: int, b: int) -> None:
    S[i + ROWS + (b >> 5)] |= 1 << (b & 31)
    S[i] |= 1 << (b >> 5)


@helper
def unmark(S: I64, i: int, b: int) -> None:
    row = S[i + ROWS + (b >> 5)] & ~(1 << (b & 31))
    S[i + ROWS + (b >> 5)] = row
    if row == 0:
        S[i] &= ~(1 << (b >> 5))


@helper
def next_bin(S: I64, i: int, b: int) -> int:
    """The first bin from b on that is not empty, or -1."""
    row = b >> 5
    word = S[i + ROWS + row] & (-1 << (b & 31))
    if word == 0:
        rows = S[i] & (-1 << (row + 1))
        if rows == 0:
            return -1
        row = bits.lowest(rows)
        word = S[i + ROWS + row]
    return (row << 5) + bits.lowest(word)


@helper
def last_bin(S: I64, i: int) -> int:
    """The last bin that is not empty, or -1."""
    if S[i] == 0:
        return -1
    row = bits.highest(S[i])
    return (row << 5) + bits.highest(S[i + ROWS + row])


# --- the treap of one bin ---------------------------------------------------------------------------------------------


@helper
def priority(p: int) -> int:
    """Fibonacci hashing of the block's index: fixed, so that the same program gives the same tree."""
    return (p * 2654435761) & 0xFFFFFFFF


@helper
def before(S: I64, key: int, order: int, addr: int, q: int) -> bool:
    """(key, order, addr) comes before block q."""
    if key != S[q + KEY]:
        return key < S[q + KEY]
    return order < S[q + ORDER] or (order == S[q + ORDER] and addr < S[q + ADDR])


@helper
def insert(S: I64, link: int, p: int) -> None:
    key, order, addr, mine = S[p + KEY], S[p + ORDER], S[p + ADDR], priority(p)
    q = S[link]
    while q != 0 and priority(q) > mine:
        link = q + LEFT if before(S, key, order, addr, q) else q + RIGHT
        q = S[link]
    S[link] = p
    left, right = p + LEFT, p + RIGHT  # split the subtree of q around p
    while q != 0:
        if before(S, key, order, addr, q):
            S[right] = q
            right = q + LEFT
            q = S[right]
        else:
            S[left] = q
            left = q + RIGHT
            q = S[left]
    S[left] = 0
    S[right] = 0


@helper
def remove(S: I64, link: int, p: int) -> None:
    key, order, addr = S[p + KEY], S[p + ORDER], S[p + ADDR]
    q = S[link]
    while q != p:
        link = q + LEFT if before(S, key, order, addr, q) else q + RIGHT
        q = S[link]
    left, right = S[p + LEFT], S[p + RIGHT]
    while left != 0 and right != 0:
        if priority(left) > priority(right):
            S[link] = left
            link = left + RIGHT
            left = S[link]
        else:
            S[link] = right
            link = right + LEFT
            right = S[link]
    S[link] = left + right  # one of them is 0


@helper
def at_least(S: I64, link: int, key: int, order: int) -> int:
    """The first block of the treap that is not before (key, order), or 0."""
    best, q = 0, S[link]
    while q != 0:
        if key < S[q + KEY] or (key == S[q + KEY] and order <= S[q + ORDER]):
            best = q
            q = S[q + LEFT]
        else:
            q = S[q + RIGHT]
    return best


@helper
def after(S: I64, link: int, p: int) -> int:
    """The first block of the treap that comes after block p, which need not be in it; or 0."""
    key, order, addr = S[p + KEY], S[p + ORDER], S[p + ADDR]
    best, q = 0, S[link]
    while q != 0:
        if before(S, key, order, addr, q):
            best = q
            q = S[q + LEFT]
        else:
            q = S[q + RIGHT]
    return best


@helper
def preceding(S: I64, link: int, p: int) -> int:
    """The last block of the treap that comes before block p, or 0."""
    key, order, addr = S[p + KEY], S[p + ORDER], S[p + ADDR]
    best, q = 0, S[link]
    while q != 0:
        if q != p and not before(S, key, order, addr, q):
            best = q
            q = S[q + RIGHT]
        else:
            q = S[q + LEFT]
    return best


@helper
def below(S: I64, link: int, key: int) -> int:
    """The last block of the treap whose key is less, or 0."""
    best, q = 0, S[link]
    while q != 0:
        if S[q + KEY] < key:
            best = q
            q = S[q + RIGHT]
        else:
            q = S[q + LEFT]
    return best


@helper
def first(S: I64, link: int) -> int:
    q = S[link]
    while S[q + LEFT] != 0:
        q = S[q + LEFT]
    return q


@helper
def last(S: I64, link: int) -> int:
    q = S[link]
    while S[q + RIGHT] != 0:
        q = S[q + RIGHT]
    return q


# --- the index over all bins: i is where it starts --------------------------------------------------------------------


@helper
def add(S: I64, i: int, p: int, size: int) -> None:
    b = bin_of(size)
    link = i + ROOTS + b
    if S[link] == 0:
        mark(S, i, b)
    insert(S, link, p)


@helper
def drop(S: I64, i: int, p: int, size: int) -> None:
    b = bin_of(size)
    link = i + ROOTS + b
    remove(S, link, p)
    if S[link] == 0:
        unmark(S, i, b)


@helper
def smallest(S: I64, i: int, size: int) -> int:
    """Where KEY is the size: the first block in order of (size, order) that has at least this size, or 0."""
    b = bin_of(size)
    p = at_least(S, i + ROOTS + b, size, -1)
    if p == 0:
        b = next_bin(S, i, b + 1)
        if b >= 0:
            p = first(S, i + ROOTS + b)
    return p


@helper
def largest(S: I64, i: int) -> int:
    """Where KEY is the size: the largest block, or 0."""
    b = last_bin(S, i)
    return last(S, i + ROOTS + b) if b >= 0 else 0
