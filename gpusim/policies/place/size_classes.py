"""Slabs: a block of each size class comes from pages that serve this class only, until they are empty.

Requests of up to a page round up to a class; there are `steps` of them a doubling.  A slab is the smallest number of
pages that holds eight blocks (at most 4096).  The slab that most recently got room serves first, its lowest free block;
an empty slab's pages can serve any class again.  Larger requests are whole pages of their own.  Pages are placed first
fit.

steps      classes a doubling, a power of two up to 32: at most 1/steps of a request is lost by rounding up
page       bytes of a page, a power of two
min_block  bytes of the smallest class; not below page / 4096

Sources: J. Bonwick, "The slab allocator", USENIX 1994; J. Evans, "A scalable concurrent malloc(3) implementation for
FreeBSD" (jemalloc), BSDCan 2006; D. Leijen et al., "mimalloc: free list sharding in action", MSR-TR-2019-18.
"""

from __future__ import annotations

from gpusim.policies import arena, bins, bits, fits
from gpusim.policies.arena import ALIGN, EXTRA, INDEX, UNITS
from gpusim.policies.bins import ADDR, ROOTS
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, BLOCK, CALLS, FREE, LARGEST, RELEASE, ROUNDED

PARAMS = {"steps": 8, "page": 2097152, "min_block": 512}

STEPS, MIN_BLOCK, SLOTS_OF, SPARE, FRESH = range(EXTRA, EXTRA + 5)  # SLOTS_OF: unit -> slot of its slab, -1 for pages
# A slab: its class, number of free blocks, its pages, its neighbours in the list of the class's slabs with room (BEFORE
# is 0 for the head), and which blocks are free: a bit a block, and a bit for each word of those that is not 0.
CLASS, ROOM, PAGES, BEFORE, AFTER, WHICH, WORDS_OF = range(7)
SLAB = WORDS_OF + 64
IN_SLAB, FULL_SLOTS = 8, 4096
CLASSES = INDEX + fits.WORDS  # heads of the lists, with the bitmaps of bins


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    steps = min(32, 1 << (max(1, int(params[0])) - 1).bit_length())
    page = 1 << (max(FULL_SLOTS, int(params[1])) - 1).bit_length()
    index = fits.WORDS + bins.WORDS + n_units + SLAB * max_live
    S = arena.new(capacity, n_units, 2 * max_live + 1, index, page, page, page)
    S[STEPS], S[MIN_BLOCK] = steps, max(page // FULL_SLOTS, int(params[2]))
    S[SLOTS_OF] = CLASSES + bins.WORDS
    S[FRESH] = S[SLOTS_OF] + n_units
    return S


@helper
def class_of(S: I64, size: int) -> int:
    """The size of the block that a request of at most a page gets."""
    size = max(size, S[MIN_BLOCK])
    step = max(S[MIN_BLOCK], (1 << bits.highest(size)) // S[STEPS])
    return (size + step - 1) // step * step


@helper
def page_block(S: I64, need: int) -> int:
    """Live block of whole pages, the lowest address with enough room; 0 when there is none."""
    need = arena.rounded(S, need)
    p = fits.lowest(S, need)
    if p == 0:
        if arena.room(S) < need:
            return 0
        p = arena.cut_tail(S, need)
    elif arena.within(S, p, need):
        p = arena.cut(S, p, need, fits.drop, fits.moved)
    else:
        return 0
    arena.cover(S, S[p + ADDR] + S[p + arena.SIZE])
    return p


@helper
def list_slab(S: I64, slab: int) -> None:
    """The slab has room: it becomes the first of its class."""
    b = bins.bin_of(S[slab + CLASS])
    head = S[CLASSES + ROOTS + b]
    S[slab + BEFORE] = 0
    S[slab + AFTER] = head
    if head != 0:
        S[head + BEFORE] = slab
    else:
        bins.mark(S, CLASSES, b)
    S[CLASSES + ROOTS + b] = slab


@helper
def unlist_slab(S: I64, slab: int) -> None:
    """The slab is full, or no slab any more."""
    before, after = S[slab + BEFORE], S[slab + AFTER]
    if after != 0:
        S[after + BEFORE] = before
    if before != 0:
        S[before + AFTER] = after
        return
    b = bins.bin_of(S[slab + CLASS])
    S[CLASSES + ROOTS + b] = after
    if after == 0:
        bins.unmark(S, CLASSES, b)


@helper
def new_slab(S: I64, size: int) -> int:
    """An empty slab of the class `size`, or 0 when there are no pages for it."""
    pages = page_block(S, IN_SLAB * size)
    if pages == 0:
        return 0
    slab = S[SPARE]
    if slab != 0:
        S[SPARE] = S[slab + AFTER]
    else:
        slab = S[FRESH]
        S[FRESH] = slab + SLAB
    slots = min(FULL_SLOTS, S[pages + arena.SIZE] // size)
    S[slab + CLASS], S[slab + ROOM], S[slab + PAGES], S[slab + WHICH] = size, slots, pages, 0
    for w in range((slots + 63) // 64):
        rest = slots - 64 * w
        S[slab + WORDS_OF + w] = -1 if rest >= 64 else bits.bit(rest) - 1
        S[slab + WHICH] |= bits.bit(w)
    list_slab(S, slab)
    return slab


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > S[ALIGN]:
        p = page_block(S, size)
        if p == 0:
            return -1
        S[S[SLOTS_OF] + unit] = -1
        return arena.hand(S, unit, p)
    need = class_of(S, size)
    slab = S[CLASSES + ROOTS + bins.bin_of(need)]
    if slab == 0:
        slab = new_slab(S, need)
        if slab == 0:
            return -1
    w = bits.lowest(S[slab + WHICH])
    word = S[slab + WORDS_OF + w]
    slot = 64 * w + bits.lowest(word)
    word &= ~bits.bit(slot & 63)
    S[slab + WORDS_OF + w] = word
    if word == 0:
        S[slab + WHICH] &= ~bits.bit(w)
    S[slab + ROOM] -= 1
    if S[slab + ROOM] == 0:
        unlist_slab(S, slab)
    S[S[UNITS] + unit] = slab
    S[S[SLOTS_OF] + unit] = slot
    S[ROUNDED] += need
    S[BLOCK] = need
    return S[S[slab + PAGES] + ADDR] + slot * need


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    slot = S[S[SLOTS_OF] + unit]
    if slot < 0 or S[S[UNITS] + unit] == 0:
        p = arena.taken(S, unit)
        if p != 0:
            arena.give_back(S, p, fits.add, fits.drop, fits.moved)
        return 0
    S[CALLS] = 0
    slab = S[S[UNITS] + unit]
    S[S[UNITS] + unit] = 0
    S[ROUNDED] -= S[slab + CLASS]
    if S[slab + ROOM] == 0:
        list_slab(S, slab)
    S[slab + ROOM] += 1
    S[slab + WORDS_OF + (slot >> 6)] |= bits.bit(slot & 63)
    S[slab + WHICH] |= bits.bit(slot >> 6)
    pages = S[slab + PAGES]
    if S[slab + ROOM] == min(FULL_SLOTS, S[pages + arena.SIZE] // S[slab + CLASS]):
        unlist_slab(S, slab)
        arena.give_back(S, pages, fits.add, fits.drop, fits.moved)
        S[slab + AFTER] = S[SPARE]
        S[SPARE] = slab
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    return arena.lower(S)


@verb(LARGEST)
def largest(S: I64) -> int:
    page, run = S[ALIGN], max(fits.largest(S), arena.slack(S))
    if run > page:
        return run
    found = page // IN_SLAB if run == page else 0  # a slab of one page
    b = bins.last_bin(S, CLASSES)
    if b >= 0:
        found = max(found, S[S[CLASSES + ROOTS + b] + CLASS])
    return found
