"""RMM's arena: one range cut into superblocks of at least 1 MiB, in one global set and in the arenas of streams.

All choices are first fits: of the first superblock of a set, by address, with a large enough block, and of the first such
block in it (see `superblocks`).

Source: rmm/mr/arena_memory_resource.hpp and detail/arena.hpp, RMM 26.04.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import address_index as fits
from gpusim.policies.place.parts.arena import SIZE
from gpusim.policies.place.parts.rmm import superblocks
from gpusim.policies.place.parts.rmm import upstream as device
from gpusim.policies.place.parts.rmm.superblocks import FRESH, GLOBAL, IN, LINK, SET, SPARE
from gpusim.policies.place.parts.rmm.table import ENDLESS, MADE, MIB, OWN, STREAMS, SYNCS, rounded

# The arena's words, after those of its superblocks.  Two words of each stream follow: its set, its first superblock.
RANGE, CLASSES, SEEN = range(superblocks.EXTRA, superblocks.EXTRA + 3)
ARENAS = OWN + 8


def words(streams: int, n_superblocks: int) -> int:
    """Of the arena's own in a table."""
    return ARENAS - OWN + 2 * streams + superblocks.WORDS * n_superblocks


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


# --- the resource -----------------------------------------------------------------------------------------------------


@helper
def construct(S: I64) -> None:
    S[MADE] = -1
    S[FRESH] = ARENAS + 2 * S[STREAMS]
    if S[RANGE] >= MIB:
        addr = device.take(S, S[RANGE], 0)
        if addr >= 0:
            S[MADE] = 1
            p = superblocks.new_superblock(S, addr, S[RANGE], 0, 0)
            superblocks.join(S, S[p + IN], p)
            superblocks.put(S, S[p + IN], GLOBAL)


@helper
def arena_of(S: I64, stream: int) -> int:
    stream = min(stream, S[STREAMS] - 1)
    S[SEEN] = max(S[SEEN], stream + 1)
    return ARENAS + 2 * stream


@helper
def attempt(S: I64, own: int, need: int) -> int:
    """A block, or 0."""
    home = own if need <= MIB else GLOBAL
    s = superblocks.first(S, home, need)
    there = s != 0 and (home == own or not superblocks.divisible(S, s, need))
    if home == own and not there:
        s = superblocks.first(S, GLOBAL, need)
    if s == 0:
        return 0
    if not there and superblocks.divisible(S, s, need):
        p = superblocks.front(S, s, need)
        s = S[p + IN]
    else:
        if not there:
            fits.remove(S, GLOBAL, s)
        p = superblocks.cut(S, s, need)
    if there:
        fits.settle(S, s)
    else:
        superblocks.put(S, s, home)
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
            superblocks.to_global(S, s)
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
    own, set_, size = arena_of(S, stream), S[S[p + IN] + SET], S[p + SIZE]
    if size > MIB:
        S[SYNCS] += 1
    if set_ != own and (size <= MIB or set_ != GLOBAL):
        S[SYNCS] += 1
    superblocks.give_back(S, p)


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
