"""Slabs: a block of each size class comes from pages that serve this class only, until they are empty.

Requests of up to a page round up to a class; there are `steps` of them a doubling.  A slab is the smallest number of
pages that holds eight blocks (at most 4096).  The slab that most recently got room serves first, its latest freed block;
an empty slab's pages can serve any class again.  Larger requests are whole pages of their own.  Pages are best fit among
the empty ones that are held, else new ones; empty pages are given back, each by itself, when the device refuses.

steps      classes a doubling, a power of two up to 32: at most 1/steps of a request is lost by rounding up
page       bytes of a page, a power of two and at least the 2 MiB that devices map memory in
min_block  bytes of the smallest class; not below page / 4096

Sources: J. Bonwick, "The slab allocator", USENIX 1994; J. Evans, "A scalable concurrent malloc(3) implementation for
FreeBSD" (jemalloc), BSDCan 2006; D. Leijen et al., "mimalloc: free list sharding in action", MSR-TR-2019-18.
"""

from __future__ import annotations

from gpusim.base import bits
from gpusim.policies.compiled import F64, I64, helper, verb
from gpusim.policies.contract import ALLOC, BLOCK, CALLS, FREE, HELD, LARGEST, RELEASE, ROUNDED
from gpusim.policies.place.parts import arena, bins, chunks
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts import size_bins as classes
from gpusim.policies.place.parts.bins import ADDR, PREV, RIGHT, ROOTS
from gpusim.policies.place.parts.chunks import LAST_CHUNK, size_of

PARAMS = {"steps": 8, "page": 2097152, "min_block": 512}

# SLOTS_OF: unit -> slot in its slab, -1 for pages.  Free lists are links: slot | next link << SLOT_BITS, 0 ends a list.
STEPS, PAGE, MIN_BLOCK, SLOTS_OF, SPARE_SLAB, FRESH_SLAB, SPARE_LINK, FRESH_LINK = range(device.END, device.END + 8)
PAGES = FRESH_LINK + 1              # index of the empty pages that are held
CLASSES = PAGES + bins.WORDS        # heads of the lists of slabs with room, with the bitmaps of bins
WORDS = CLASSES + bins.WORDS - device.END
# A slab: its class, free blocks, its pages, blocks that were never given, its neighbours in the list of its class (LEFT and
# RIGHT), and the blocks that were given, latest freed first.
CLASS, ROOM, CHUNK, FRESH = range(4)
FIRST, LAST = 6, 7
SLAB = 8
IN_SLAB, FULL_SLOTS, SLOT_BITS = 8, 4096, 12


def state(capacity: int, n_units: int, max_live: int, params: F64) -> I64:
    steps = min(32, 1 << (max(1, int(params[0])) - 1).bit_length())
    page = 1 << (max(device.PAGE, int(params[1])) - 1).bit_length()
    smallest = max(page // FULL_SLOTS, int(params[2]))
    # A class never has more blocks in lists than it had live ones: a slab gives new ones only when no other has room.
    links = min((page // smallest).bit_length() * steps * max_live, capacity // smallest) + 1
    segments = capacity // page + 1
    nodes = 2 * max_live + 4 * min(segments, 4 * max_live + 65536)
    words = WORDS + n_units + SLAB * max_live + links
    S = device.new(capacity, n_units, nodes, words, device.LOWEST, 2 * min(segments, 4 * max_live + 65536))
    S[STEPS], S[PAGE], S[MIN_BLOCK], S[SLOTS_OF] = steps, page, smallest, device.END + WORDS
    S[FRESH_SLAB] = S[SLOTS_OF] + n_units
    S[FRESH_LINK] = S[FRESH_SLAB] + SLAB * max_live
    return S


@helper
def class_of(S: I64, size: int) -> int:
    """The size of the block that a request of at most a page gets."""
    size = max(size, S[MIN_BLOCK])
    step = max(S[MIN_BLOCK], (1 << bits.highest(size)) // S[STEPS])
    return (size + step - 1) // step * step


@helper
def slots_of(S: I64, slab: int) -> int:
    return min(FULL_SLOTS, size_of(S, S[slab + CHUNK]) // S[slab + CLASS])


# --- pages ------------------------------------------------------------------------------------------------------------


@helper
def give_empty_pages(S: I64) -> None:
    r = chunks.first_segment(S)
    while r != 0:
        after, p = chunks.following(S, r), S[r + LAST_CHUNK]
        while p != 0:
            before = S[p + PREV]
            if chunks.is_free(S, p):
                r = chunks.unmap(S, PAGES, r, p)
            p = before
        r = after


@helper
def take_pages(S: I64, need: int) -> int:
    """A live chunk of whole pages; 0 when the device has none."""
    need = (need + S[PAGE] - 1) // S[PAGE] * S[PAGE]
    p = bins.smallest(S, PAGES, need)
    if p == 0:
        r = device.take(S, need)
        if r == 0:
            give_empty_pages(S)
            r = device.take(S, need)
        return chunks.whole(S, r, need, 0) if r != 0 else 0
    chunks.drop(S, PAGES, p)
    if size_of(S, p) > need:
        q = chunks.split(S, p, need)
        chunks.put(S, PAGES, p)
        p = q
    return p


# --- slabs ------------------------------------------------------------------------------------------------------------


@helper
def list_slab(S: I64, slab: int) -> None:
    """The slab has room: it becomes the first of its class."""
    classes.add(S, CLASSES, slab, S[slab + CLASS])


@helper
def unlist_slab(S: I64, slab: int) -> None:
    """The slab is full, or no slab any more."""
    classes.drop(S, CLASSES, slab, S[slab + CLASS])


@helper
def new_slab(S: I64, size: int) -> int:
    """An empty slab of the class `size`, or 0 when there are no pages for it."""
    pages = take_pages(S, IN_SLAB * size)
    if pages == 0:
        return 0
    slab = S[SPARE_SLAB]
    if slab != 0:
        S[SPARE_SLAB] = S[slab + RIGHT]
    else:
        slab = S[FRESH_SLAB]
        S[FRESH_SLAB] = slab + SLAB
    S[slab + CLASS], S[slab + CHUNK] = size, pages
    S[slab + ROOM], S[slab + FRESH], S[slab + FIRST], S[slab + LAST] = slots_of(S, slab), 0, 0, 0
    list_slab(S, slab)
    return slab


@helper
def pop(S: I64, slab: int) -> int:
    """A slot of a slab with room: the latest freed, else the first that was never given."""
    link = S[slab + FIRST]
    if link == 0:
        S[slab + FRESH] += 1
        return S[slab + FRESH] - 1
    word = S[link]
    S[slab + FIRST] = word >> SLOT_BITS
    S[link] = S[SPARE_LINK] << SLOT_BITS
    S[SPARE_LINK] = link
    return word & (FULL_SLOTS - 1)


@helper
def push(S: I64, slab: int, slot: int) -> None:
    link = S[SPARE_LINK]
    if link != 0:
        S[SPARE_LINK] = S[link] >> SLOT_BITS
    else:
        link = S[FRESH_LINK]
        S[FRESH_LINK] = link + 1
    first = S[slab + FIRST]
    if first == 0:
        S[slab + LAST] = link
    S[link] = first << SLOT_BITS | slot
    S[slab + FIRST] = link


@helper
def drop_slab(S: I64, slab: int) -> None:
    """An empty slab's pages can serve any class again, its links any slab."""
    unlist_slab(S, slab)
    chunks.insert(S, PAGES, S[slab + CHUNK])
    if S[slab + FIRST] != 0:
        S[S[slab + LAST]] = S[SPARE_LINK] << SLOT_BITS
        S[SPARE_LINK] = S[slab + FIRST]
    S[slab + RIGHT] = S[SPARE_SLAB]
    S[SPARE_SLAB] = slab


# --- verbs ------------------------------------------------------------------------------------------------------------


@verb(ALLOC)
def alloc(S: I64, unit: int, size: int, stream: int) -> int:
    S[CALLS] = 0
    if size == 0:
        return arena.nothing(S)
    if size > chunks.SIZE_MASK >> 1:
        return -1
    if size > S[PAGE]:
        p = take_pages(S, size)
        if p == 0:
            return -1
        S[S[SLOTS_OF] + unit] = -1
        return chunks.hand(S, unit, p)
    need = class_of(S, size)
    slab = S[CLASSES + ROOTS + bins.bin_of(need)]
    if slab == 0:
        slab = new_slab(S, need)
        if slab == 0:
            return -1
    slot = pop(S, slab)
    S[slab + ROOM] -= 1
    if S[slab + ROOM] == 0:
        unlist_slab(S, slab)
    S[S[arena.UNITS] + unit] = slab
    S[S[SLOTS_OF] + unit] = slot
    S[ROUNDED] += need
    S[BLOCK] = need
    return S[S[slab + CHUNK] + ADDR] + slot * need


@verb(FREE)
def free(S: I64, unit: int, stream: int) -> int:
    S[CALLS] = 0
    slot, slab = S[S[SLOTS_OF] + unit], S[S[arena.UNITS] + unit]
    if slab == 0:
        return 0
    if slot < 0:
        chunks.insert(S, PAGES, chunks.taken(S, unit))
        return 0
    S[S[arena.UNITS] + unit] = 0
    S[ROUNDED] -= S[slab + CLASS]
    if S[slab + ROOM] == 0:
        list_slab(S, slab)
    S[slab + ROOM] += 1
    push(S, slab, slot)
    if S[slab + ROOM] == slots_of(S, slab):
        drop_slab(S, slab)
    return 0


@verb(RELEASE)
def release(S: I64, bytes: int) -> int:
    S[CALLS] = 0
    held = S[HELD]
    give_empty_pages(S)
    return held - S[HELD]


@verb(LARGEST)
def largest(S: I64) -> int:
    page, run = S[PAGE], chunks.largest(S, PAGES)
    if run > page:
        return run
    found = page // IN_SLAB if run == page else 0  # a slab of one page
    b = bins.last_bin(S, CLASSES)
    if b >= 0:
        found = max(found, S[S[CLASSES + ROOTS + b] + CLASS])
    return found
