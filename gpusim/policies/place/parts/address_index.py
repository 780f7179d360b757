"""The index of an arena's free blocks by address: a treap in which every block knows the largest size below it.

Finds the lowest address, at or after a given one, with room for a request: first, next and worst fit in O(log n).
Blocks keep their links while only their size or address changes within their rank, which is what splitting and merging
do.

Source: R. Seidel, C. Aragon, "Randomized search trees", Algorithmica 16, 1996.
"""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.arena import INDEX, SIZE
from gpusim.policies.place.parts.bins import ADDR, LEFT, RIGHT, priority

PARENT, MOST = 6, 7  # further words of a free block: its parent in the treap, the largest size in its subtree
ROOT = INDEX
WORDS = 1


@helper
def most(S: I64, p: int) -> int:
    """The largest size in the subtree of p, 0 when it is empty."""
    return S[p + MOST] if p != 0 else 0


@helper
def largest(S: I64) -> int:
    """Size of the largest free block, 0 when there is none."""
    return most(S, S[ROOT])


@helper
def update(S: I64, p: int, end: int) -> None:
    """Find MOST again from p up to, and without, its ancestor `end` (0: all the way)."""
    while p != end:
        S[p + MOST] = max(S[p + SIZE], most(S, S[p + LEFT]), most(S, S[p + RIGHT]))
        p = S[p + PARENT]


@helper
def settle(S: I64, p: int) -> None:
    """The same from p upwards, as far as it changes anything."""
    while p != 0:
        found = max(S[p + SIZE], most(S, S[p + LEFT]), most(S, S[p + RIGHT]))
        if found == S[p + MOST]:
            return
        S[p + MOST] = found
        p = S[p + PARENT]


@helper
def hang(S: I64, link: int, p: int, parent: int) -> None:
    S[link] = p
    if p != 0:
        S[p + PARENT] = parent


@helper
def insert(S: I64, root: int, p: int) -> None:
    """Block p joins the treap whose root is named by the word `root`."""
    addr, size, mine = S[p + ADDR], S[p + SIZE], priority(p)
    link, parent, q = root, 0, S[root]
    while q != 0 and priority(q) > mine:
        if size > S[q + MOST]:
            S[q + MOST] = size
        parent = q
        link = q + LEFT if addr < S[q + ADDR] else q + RIGHT
        q = S[link]
    hang(S, link, p, parent)
    left, low = p + LEFT, p  # split the subtree of q around p
    right, high = p + RIGHT, p
    while q != 0:
        if addr < S[q + ADDR]:
            hang(S, right, q, high)
            right, high = q + LEFT, q
            q = S[right]
        else:
            hang(S, left, q, low)
            left, low = q + RIGHT, q
            q = S[left]
    S[left] = 0
    S[right] = 0
    update(S, low, p)
    update(S, high, p)
    update(S, p, S[p + PARENT])


@helper
def remove(S: I64, root: int, p: int) -> None:
    above = parent = S[p + PARENT]
    link = root
    if parent != 0:
        link = parent + LEFT if S[parent + LEFT] == p else parent + RIGHT
    left, right = S[p + LEFT], S[p + RIGHT]
    while left != 0 and right != 0:
        if priority(left) > priority(right):
            hang(S, link, left, parent)
            parent, link = left, left + RIGHT
            left = S[link]
        else:
            hang(S, link, right, parent)
            parent, link = right, right + LEFT
            right = S[link]
    hang(S, link, left + right, parent)  # one of them is 0
    update(S, parent, above)
    settle(S, above)


@helper
def add(S: I64, p: int) -> None:
    insert(S, ROOT, p)


@helper
def drop(S: I64, p: int) -> None:
    remove(S, ROOT, p)


@helper
def moved(S: I64, p: int, addr: int, size: int) -> None:
    S[p + ADDR], S[p + SIZE] = addr, size
    settle(S, p)


@helper
def lowest_in(S: I64, p: int, size: int) -> int:
    """The lowest block of at least `size` in the subtree of p, which has one."""
    while True:
        left = S[p + LEFT]
        if most(S, left) >= size:
            p = left
        elif S[p + SIZE] >= size:
            return p
        else:
            p = S[p + RIGHT]


@helper
def lowest(S: I64, size: int) -> int:
    """The lowest free block of at least `size`, or 0."""
    root = S[ROOT]
    return lowest_in(S, root, size) if most(S, root) >= size else 0


@helper
def lowest_from(S: I64, addr: int, size: int) -> int:
    """The lowest free block of at least `size` that begins at `addr` or after it, or 0."""
    found, q = 0, S[ROOT]
    while q != 0:
        if S[q + ADDR] < addr:
            q = S[q + RIGHT]
        else:
            if S[q + SIZE] >= size or most(S, S[q + RIGHT]) >= size:
                found = q  # the lowest so far: it, or one right of it
            q = S[q + LEFT]
    if found == 0 or S[found + SIZE] >= size:
        return found
    return lowest_in(S, S[found + RIGHT], size)


@helper
def last_from(S: I64, addr: int) -> int:
    """The last free block that begins at `addr` or before it, or 0."""
    found, q = 0, S[ROOT]
    while q != 0:
        if S[q + ADDR] <= addr:
            found = q
            q = S[q + RIGHT]
        else:
            q = S[q + LEFT]
    return found
