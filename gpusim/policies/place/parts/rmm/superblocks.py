"""Superblocks: parts of one range, in sets, each tiled by blocks.

    the range      | superblock | superblock |   superblock   | superblock | ...
    each of them   is in the global set or in one stream's arena; its free blocks merge inside it

A set is a treap (`fits`) of superblocks, whose SIZE is that of their largest free block, and every superblock has a treap of
its free blocks; a superblock changes sets with all that is in it.  One that has never had room is in no treap: a block of
more than 1 MiB mostly fills a superblock of its own, which when it is freed becomes a part of the one beside it.

Source: rmm/mr/detail/arena.hpp, RMM 26.04.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import address_index as fits
from gpusim.policies.place.parts import neighbours
from gpusim.policies.place.parts.address_index import MOST
from gpusim.policies.place.parts.arena import SIZE
from gpusim.policies.place.parts.bins import ADDR, LEFT, LIVE, NEXT, PREV
from gpusim.policies.place.parts.rmm.table import MIB, OWN, give_block, take_block

# Words of a block after those of `fits`: the superblock it is in.
IN, BLOCK_WORDS = 8, 9
# Words of a superblock: bytes, the root of its free blocks, the set it is in, the next one in the same stream's arena.
LENGTH, TREE, SET, LINK, WORDS = range(8, 13)

# A set is named by the word of its root; this is the global one.  SPARE, FRESH, END: superblocks, as of the table's blocks.
GLOBAL, SPARE, FRESH, END, EXTRA = range(OWN, OWN + 5)


# --- blocks of one superblock -----------------------------------------------------------------------------------------


@helper
def new_block(S: I64, s: int, addr: int, size: int, prev: int, next_: int) -> int:
    """A live block of superblock s."""
    p = take_block(S, BLOCK_WORDS, NEXT)
    S[p + ADDR], S[p + SIZE], S[p + LEFT], S[p + IN] = addr, size, LIVE, s
    neighbours.link(S, p, prev, next_)
    return p


@helper
def forget(S: I64, p: int) -> None:
    """Block p is a part of a neighbour."""
    neighbours.unlink(S, p)
    give_block(S, p, NEXT)


@helper
def cut(S: I64, s: int, need: int) -> int:
    """A live block from superblock s, which has room for it."""
    p = fits.lowest_in(S, S[s + TREE], need)
    rest = S[p + SIZE] - need
    if rest == 0:
        fits.remove(S, s + TREE, p)
        S[p + LEFT] = LIVE
        q = p
    else:
        q = new_block(S, s, S[p + ADDR], need, S[p + PREV], p)
        fits.moved(S, p, S[p + ADDR] + need, rest)
    S[s + SIZE] = fits.most(S, S[s + TREE])
    return q


@helper
def is_free(S: I64, p: int) -> bool:
    return p != 0 and S[p + LEFT] != LIVE


@helper
def join(S: I64, s: int, p: int) -> None:
    """Live block p of superblock s becomes free, and one with its free neighbours."""
    addr, size, prev, next_ = S[p + ADDR], S[p + SIZE], S[p + PREV], S[p + NEXT]
    if is_free(S, prev):
        if is_free(S, next_):
            size += S[next_ + SIZE]
            fits.remove(S, s + TREE, next_)
            forget(S, next_)
        forget(S, p)
        fits.moved(S, prev, S[prev + ADDR], S[prev + SIZE] + size)
    elif is_free(S, next_):
        forget(S, p)
        fits.moved(S, next_, addr, S[next_ + SIZE] + size)
    else:
        fits.insert(S, s + TREE, p)
    S[s + SIZE] = fits.most(S, S[s + TREE])


# --- superblocks ------------------------------------------------------------------------------------------------------


@helper
def has_superblock(S: I64) -> bool:
    """There is room in the table for one more."""
    return S[SPARE] != 0 or S[FRESH] < S[END]


@helper
def empty(S: I64, s: int) -> bool:
    return S[s + SIZE] == S[s + LENGTH]


@helper
def new_superblock(S: I64, addr: int, length: int, prev: int, next_: int) -> int:
    """The block, live, that is all of a new superblock, which is in no set."""
    s = S[SPARE]
    if s != 0:
        S[SPARE] = S[s + NEXT]
    else:
        s = S[FRESH]
        S[FRESH] += WORDS
    S[s + ADDR], S[s + SIZE], S[s + LENGTH], S[s + TREE] = addr, 0, length, 0
    neighbours.link(S, s, prev, next_)
    return new_block(S, s, addr, length, 0, 0)


@helper
def changed(S: I64, s: int) -> None:
    """The largest free block of superblock s is another one.  One that had room stays in the treap, a full one comes later."""
    if S[s + LEFT] != LIVE:
        fits.settle(S, s)
    elif S[s + SIZE] > 0:
        fits.insert(S, S[s + SET], s)


@helper
def put(S: I64, s: int, set_: int) -> None:
    S[s + SET], S[s + LEFT] = set_, LIVE
    changed(S, s)


@helper
def first(S: I64, set_: int, need: int) -> int:
    """The first superblock of the set that has room, or 0."""
    return fits.lowest_in(S, S[set_], need) if fits.most(S, S[set_]) >= need else 0


@helper
def divisible(S: I64, s: int, need: int) -> bool:
    """The superblock is empty, and at least 1 MiB of it would remain."""
    return empty(S, s) and S[s + LENGTH] >= max(need, MIB) + MIB


@helper
def mergeable(S: I64, s: int) -> bool:
    return s != 0 and S[s + SET] == GLOBAL and empty(S, s)


@helper
def drop(S: I64, s: int) -> None:
    """Empty superblock s of the global set is no more."""
    if S[s + LEFT] != LIVE:
        fits.remove(S, GLOBAL, s)
    give_block(S, S[s + TREE], NEXT)
    neighbours.unlink(S, s)
    S[s + NEXT] = S[SPARE]
    S[SPARE] = s


@helper
def spread(S: I64, s: int, addr: int, length: int) -> None:
    """Empty superblock s has other bounds, and the same rank in its set."""
    p = S[s + TREE]
    S[p + ADDR], S[p + SIZE], S[p + MOST], S[s + LENGTH] = addr, length, length, length
    fits.moved(S, s, addr, length)


@helper
def front(S: I64, s: int, need: int) -> int:
    """A live block at the start of a new superblock, in no set, that is cut from the front of an empty one."""
    length = max(need, MIB)
    addr, left = S[s + ADDR], S[s + LENGTH] - length
    spread(S, s, addr + length, left)
    p = new_superblock(S, addr, length, S[s + PREV], s)
    if length > need:
        t = S[p + IN]
        q = new_block(S, t, addr + need, length - need, p, 0)
        S[p + SIZE], S[t + SIZE] = need, length - need
        fits.insert(S, t + TREE, q)
    return p


@outlined
def coalesced(S: I64, s: int) -> bool:
    """Superblock s, when it is empty and in the global set, becomes a part of an empty neighbour there; False: it has none."""
    if not mergeable(S, s):
        return False
    addr, length, prev, next_ = S[s + ADDR], S[s + LENGTH], S[s + PREV], S[s + NEXT]
    if mergeable(S, prev):
        if mergeable(S, next_):
            length += S[next_ + LENGTH]
            drop(S, next_)
        addr = S[prev + ADDR]
    elif mergeable(S, next_):
        prev = next_
    else:
        return False
    drop(S, s)
    spread(S, prev, addr, length + S[prev + LENGTH])
    return True


@helper
def settle(S: I64, s: int) -> None:
    """Superblock s has more room than before, or has joined the global set."""
    if not coalesced(S, s):
        changed(S, s)


@helper
def to_global(S: I64, s: int) -> None:
    """Superblock s, of a set that is no more, joins the global one."""
    S[s + SET], S[s + LEFT] = GLOBAL, LIVE
    settle(S, s)


@helper
def give_back(S: I64, p: int) -> None:
    """Live block p becomes free."""
    s = S[p + IN]
    join(S, s, p)
    settle(S, s)
