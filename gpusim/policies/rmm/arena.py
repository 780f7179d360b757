"""RMM's arena: one range cut into superblocks of at least 1 MiB, in one global set and in the arenas of streams.

    the range      | superblock | superblock |   superblock   | superblock | ...
    each of them   is in the global set or in one stream's arena, and is tiled by blocks; free neighbours merge inside it

All choices are first fits: of the first superblock of a set, by address, with a large enough block, and of the first such
block in it.  A set is a treap (`fits`) of superblocks, whose SIZE is that of their largest free block, and every superblock
has a treap of its free blocks; a superblock changes sets with all that is in it.

Source: rmm/mr/arena_memory_resource.hpp and detail/arena.hpp, RMM 26.04.
"""

from __future__ import annotations

from gpusim.policies import bits, fits
from gpusim.policies.arena import SIZE
from gpusim.policies.bins import ADDR, LEFT, LIVE, NEXT, PREV
from gpusim.policies.compiled import I64, helper
from gpusim.policies.fits import MOST
from gpusim.policies.rmm import device
from gpusim.policies.rmm.table import ENDLESS, MADE, MIB, OWN, STREAMS, SYNCS, give_block, rounded, take_block

# Words of a block after those of `fits`: the superblock it is in.
IN, BLOCK_WORDS = 8, 9
# Words of a superblock: bytes, the root of its free blocks, the set it is in, the next one in the same stream's arena.
LENGTH, TREE, SET, LINK, SUPERBLOCK_WORDS = range(8, 13)

# The arena's words; a set is named by the word of its root.  Two words of each stream follow: its set, its first superblock.
RANGE, CLASSES, GLOBAL, SEEN, SPARE, FRESH, END = range(OWN, OWN + 7)
ARENAS = OWN + 8


def words(streams: int, superblocks: int) -> int:
    """Of the arena's own in a table."""
    return ARENAS - OWN + 2 * streams + SUPERBLOCK_WORDS * superblocks


# --- sizes ------------------------------------------------------------------------------------------------------------


@helper
def class_below(size: int) -> int:
    """The largest size class that is not above `size` >= 256: steps of 256 up to 2 KiB, then four to a doubling.

    Between 48 and 64 KiB it is 54 KiB, as in the library; those end at 256 GiB.
    """
    if size < 2048:
        return size // 256 * 256
    if 54 << 10 <= size < 64 << 10:
        return 54 << 10
    step = 1 << (bits.highest(size) - 2)
    return min(size // step * step, 256 << 30)


@helper
def rounded_up(S: I64, size: int) -> int:
    """The size of a block for a request of `size` > 0."""
    need = rounded(size)
    if S[CLASSES] == 0 or need <= 2048:
        return need
    if need > 256 << 30:
        return ENDLESS
    if 54 << 10 < need < 64 << 10:
        return 64 << 10
    below = class_below(need)
    if below == need:
        return need
    if below == 48 << 10:
        return 54 << 10
    return below + (1 << (bits.highest(need) - 2))


# --- blocks of one superblock -----------------------------------------------------------------------------------------


@helper
def new_block(S: I64, s: int, addr: int, size: int, prev: int, next_: int) -> int:
    """A live block of superblock s."""
    p = take_block(S, BLOCK_WORDS, NEXT)
    S[p + ADDR], S[p + SIZE], S[p + PREV], S[p + NEXT] = addr, size, prev, next_
    S[p + LEFT], S[p + IN] = LIVE, s
    return p


@helper
def unlink(S: I64, p: int) -> None:
    prev, next_ = S[p + PREV], S[p + NEXT]
    if prev != 0:
        S[prev + NEXT] = next_
    if next_ != 0:
        S[next_ + PREV] = prev
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
        prev = S[p + PREV]
        q = new_block(S, s, S[p + ADDR], need, prev, p)
        if prev != 0:
            S[prev + NEXT] = q
        S[p + PREV] = q
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
            unlink(S, next_)
        unlink(S, p)
        fits.moved(S, prev, S[prev + ADDR], S[prev + SIZE] + size)
    elif is_free(S, next_):
        unlink(S, p)
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
        S[FRESH] += SUPERBLOCK_WORDS
    S[s + ADDR], S[s + SIZE], S[s + LENGTH], S[s + PREV], S[s + NEXT] = addr, 0, length, prev, next_
    if prev != 0:
        S[prev + NEXT] = s
    if next_ != 0:
        S[next_ + PREV] = s
    S[s + TREE] = 0
    return new_block(S, s, addr, length, 0, 0)


@helper
def put(S: I64, s: int, set_: int) -> None:
    S[s + SET] = set_
    fits.insert(S, set_, s)


@helper
def first(S: I64, set_: int, need: int) -> int:
    """The first superblock of the set that has room, or 0."""
    return fits.lowest_in(S, S[set_], need) if fits.most(S, S[set_]) >= need else 0


@helper
def divisible(S: I64, s: int, need: int) -> bool:
    """The superblock is empty, and at least 1 MiB of it would remain."""
    return empty(S, s) and S[s + LENGTH] >= max(need, MIB) + MIB


@helper
def front(S: I64, s: int, need: int) -> int:
    """A live block at the start of a new superblock, in no set, that is cut from the front of an empty one."""
    length = max(need, MIB)
    addr, left = S[s + ADDR], S[s + LENGTH] - length
    q = S[s + TREE]
    S[q + ADDR], S[q + SIZE], S[q + MOST] = addr + length, left, left
    S[s + LENGTH] = left
    fits.moved(S, s, addr + length, left)
    p = new_superblock(S, addr, length, S[s + PREV], s)
    if length > need:
        t = S[p + IN]
        q = new_block(S, t, addr + need, length - need, p, 0)
        S[p + SIZE], S[p + NEXT], S[t + SIZE] = need, q, length - need
        fits.insert(S, t + TREE, q)
    return p


@helper
def absorb(S: I64, s: int, t: int) -> None:
    """Of two neighbours in the global set that are empty, the second becomes a part of the first."""
    fits.remove(S, GLOBAL, t)
    length = S[s + LENGTH] + S[t + LENGTH]
    p, after = S[s + TREE], S[t + NEXT]
    S[p + SIZE], S[p + MOST] = length, length
    S[s + LENGTH], S[s + NEXT] = length, after
    if after != 0:
        S[after + PREV] = s
    fits.moved(S, s, S[s + ADDR], length)
    give_block(S, S[t + TREE], NEXT)
    S[t + NEXT] = S[SPARE]
    S[SPARE] = t


@helper
def mergeable(S: I64, s: int) -> bool:
    return s != 0 and S[s + SET] == GLOBAL and empty(S, s)


@helper
def coalesce(S: I64, s: int) -> None:
    """A superblock of the global set, when it is empty, and its empty neighbours there are one."""
    if empty(S, s):
        for k in range(2):
            first = S[s + PREV] if k else s
            second = S[first + NEXT] if first != 0 else 0
            if mergeable(S, first) and mergeable(S, second):
                absorb(S, first, second)


# --- the resource -----------------------------------------------------------------------------------------------------


@helper
def construct(S: I64) -> None:
    S[MADE] = -1
    S[FRESH] = ARENAS + 2 * S[STREAMS]
    if S[RANGE] >= MIB:
        addr = device.take(S, S[RANGE], 0)
        if addr >= 0:
            S[MADE] = 1
            p = new_superblock(S, addr, S[RANGE], 0, 0)
            join(S, S[p + IN], p)
            put(S, S[p + IN], GLOBAL)


@helper
def arena_of(S: I64, stream: int) -> int:
    stream = min(stream, S[STREAMS] - 1)
    S[SEEN] = max(S[SEEN], stream + 1)
    return ARENAS + 2 * stream


@helper
def attempt(S: I64, own: int, need: int) -> int:
    """A block, or 0."""
    home = own if need <= MIB else GLOBAL
    s = first(S, home, need)
    there = s != 0 and (home == own or not divisible(S, s, need))
    if home == own and not there:
        s = first(S, GLOBAL, need)
    if s == 0:
        return 0
    if not there and divisible(S, s, need):
        p = front(S, s, need)
        s = S[p + IN]
    else:
        if not there:
            fits.remove(S, GLOBAL, s)
        p = cut(S, s, need)
    if there:
        fits.settle(S, s)
    else:
        put(S, s, home)
        if home == own:
            S[s + LINK] = S[own + 1]
            S[own + 1] = s
    return p


@helper
def defragment(S: I64) -> None:
    """The device is waited for; then all superblocks are in the global set."""
    S[SYNCS] += 1
    for own in range(ARENAS, ARENAS + 2 * S[SEEN], 2):
        s = S[own + 1]
        S[own] = S[own + 1] = 0
        while s != 0:
            following = S[s + LINK]
            put(S, s, GLOBAL)
            coalesce(S, s)
            s = following


@helper
def take(S: I64, stream: int, need: int) -> int:
    """A block of `need` bytes for the stream; 0: out of memory."""
    own = arena_of(S, stream)
    for again in range(2):
        p = attempt(S, own, need)
        if p != 0:
            return p
        if not again:
            defragment(S)
    return 0


@helper
def give(S: I64, stream: int, p: int) -> None:
    """The host waits for the stream when the block is large, and again when it is neither the stream's nor global."""
    own, s, size = arena_of(S, stream), S[p + IN], S[p + SIZE]
    set_ = S[s + SET]
    if size > MIB:
        S[SYNCS] += 1
    if set_ != own and (size <= MIB or set_ != GLOBAL):
        S[SYNCS] += 1
    join(S, s, p)
    fits.settle(S, s)
    if set_ == GLOBAL:
        coalesce(S, s)


@helper
def destroy(S: I64) -> None:
    for i in range(ARENAS, ARENAS + 2 * S[SEEN]):
        S[i] = 0
    S[GLOBAL] = S[SEEN] = S[SPARE] = 0


@helper
def largest(S: I64) -> int:
    """Size of the largest free block in any set, as a request."""
    found = fits.most(S, S[GLOBAL])
    for own in range(ARENAS, ARENAS + 2 * S[SEEN], 2):
        found = max(found, fits.most(S, S[own]))
    return class_below(found) if S[CLASSES] != 0 and found > 0 else found
