"""The device below an allocator: cudaMalloc and cudaFree, and the driver's virtual memory, as an allocator sees them.

What a device has is bytes, in pages of 2 MiB: a call fails when not enough of them are left below CAPACITY.  Which address
it answers is a choice of its own, since allocators up to PyTorch 2.11 decide by address:

    lowest      the lowest free address: what a fresh process mostly sees
    bump        never an address twice
    recorded    the addresses of a recording, one after another, as long as sizes agree and the range is free; then lowest
    contiguous  lowest, and the range must lie below CAPACITY: a device without virtual memory, where holes cost

    | segment |  hole  | segment | segment |   untouched ...      | reserved range: mapped | not mapped | ...
    0                                      arena.TAIL             2^42

A segment is the index of a live block of the table's arena: ADDR is its address, and the words from OWN on are its
owner's.  Reserved ranges begin at 2^42, lowest first; they hold no bytes, their pages do once they are mapped.
"""

from __future__ import annotations

import numpy as np

from gpusim.policies.compiled import I64, helper
from gpusim.policies.contract import CALL_LIST, CALLS, CAPACITY, HELD, MAX_CALLS
from gpusim.policies.far import far
from gpusim.policies.place.parts import address_index as fits
from gpusim.policies.place.parts import arena, neighbours
from gpusim.policies.place.parts.bins import ADDR, LEFT, LIVE, NEXT, PREV

PAGE = 2 << 20
VIRTUAL = 1 << 42  # where reserved ranges begin
CHOICES = ("lowest", "bump", "recorded", "contiguous")
LOWEST, BUMP, RECORDED, CONTIGUOUS = range(4)
SIZE = arena.SIZE
OWN = 5            # a segment's words from here are its owner's, up to arena.NODE

# Words of the table.  USED: bytes in use, in whole pages; NEXT_CALL and LAST_CALL: what is left of a recording; RESERVED:
# the lowest reserved range; LAST_RANGE: where the latest one ends.
CHOICE, USED, NEXT_CALL, LAST_CALL, RESERVED, LAST_RANGE = range(arena.INDEX + fits.WORDS, arena.INDEX + fits.WORDS + 6)
END = LAST_RANGE + 1  # the allocator's own words begin here


def new(capacity: int, n_units: int, nodes: int, words: int, choice: int, calls: int) -> I64:
    """The table of an allocator over an empty device.

    nodes  blocks of arena.NODE words: two for each segment, and what the allocator takes
    words  of the allocator's own, from END on; the list of device calls (room for `calls`) follows them
    """
    S = arena.new(capacity, n_units, nodes, END - arena.INDEX + words + 2 * calls, PAGE, PAGE)
    S[CALL_LIST], S[MAX_CALLS], S[CHOICE] = END + words, calls, choice
    return S


def follow(S: I64, recorded: list[tuple[int, int]]) -> I64:
    """The table with a recording's segments, in order: (address, bytes) each, addresses in whole pages from 0 on."""
    if any(addr % PAGE or not 0 <= addr < VIRTUAL for addr, _ in recorded):
        raise ValueError("recorded addresses must be multiples of 2 MiB, counted from the lowest of the device")
    pairs = np.array(recorded, np.int64).reshape(-1)
    found = np.concatenate([S, pairs])
    found[CHOICE], found[NEXT_CALL], found[LAST_CALL] = RECORDED, len(S), len(found)
    return found


@helper
def paged(size: int) -> int:
    """Bytes in whole pages."""
    return (size + PAGE - 1) // PAGE * PAGE


@helper
def has(S: I64, size: int) -> bool:
    return S[USED] + size <= S[CAPACITY]


@helper
def idle(S: I64) -> int:
    """Bytes that are not in use."""
    return max(0, S[CAPACITY] - S[USED])


@helper
def called(S: I64, addr: int, size: int) -> None:
    """A device call, for the list; `size` is negative when memory is given back."""
    S[HELD] += size
    if S[CALLS] == S[MAX_CALLS]:
        S[S[CALL_LIST] + 2 * S[CALLS] - 1] += size
        return
    at = S[CALL_LIST] + 2 * S[CALLS]
    S[at] = addr
    S[at + 1] = size
    S[CALLS] += 1


# --- segments ---------------------------------------------------------------------------------------------------------


@helper
def lowest(S: I64, size: int, top: int) -> int:
    """A segment at the lowest free address that ends at `top` or before it, or 0."""
    r = fits.lowest(S, size)
    if r == 0:
        return arena.cut_tail(S, size) if S[arena.TAIL] + size <= top else 0
    return arena.cut(S, r, size, fits.drop, fits.moved) if S[r + ADDR] + size <= top else 0


@helper
def at(S: I64, addr: int, size: int) -> int:
    """A segment at this address, or 0 when the range is not free."""
    gap = addr - S[arena.TAIL]
    if gap < 0:
        hole = fits.last_from(S, addr)
        if hole == 0 or S[hole + ADDR] + S[hole + SIZE] < addr + size:
            return 0
        gap = addr - S[hole + ADDR]
        front = arena.cut(S, hole, gap, fits.drop, fits.moved) if gap > 0 else 0
        r = arena.cut(S, hole, size, fits.drop, fits.moved)
    else:
        front = arena.cut_tail(S, gap) if gap > 0 else 0
        r = arena.cut_tail(S, size)
    if front != 0:
        arena.give_back(S, front, fits.add, fits.drop, fits.moved)
    return r


@far
def recorded(S: I64, size: int, pages: int) -> int:
    """A segment at the recording's next address, or 0."""
    i = S[NEXT_CALL]
    if i == S[LAST_CALL] or S[i + 1] != size:
        return 0
    S[NEXT_CALL] = i + 2
    return at(S, S[i], pages)


@helper
def take(S: I64, size: int) -> int:
    """cudaMalloc: a segment with at least `size` bytes, or 0 when the device refuses."""
    pages = paged(size)
    if not has(S, pages):
        return 0
    r = 0
    if S[CHOICE] == BUMP:
        r = arena.take_node(S)
        S[r + ADDR] = S[arena.ROVER]
        S[r + SIZE] = pages
        S[r + LEFT] = LIVE  # as a segment of the arena is: what tells it from a reserved range
        S[arena.ROVER] += pages
    else:
        if S[CHOICE] == RECORDED:
            r = recorded(S, size, pages)
        if r == 0:
            r = lowest(S, pages, S[CAPACITY] if S[CHOICE] == CONTIGUOUS else VIRTUAL)
        if r == 0:
            return 0
    S[USED] += pages
    called(S, S[r + ADDR], size)
    return r


@helper
def give(S: I64, r: int, size: int) -> None:
    """cudaFree of segment r, which was taken with this size."""
    S[USED] -= paged(size)
    called(S, S[r + ADDR], -size)
    if S[CHOICE] == BUMP:
        arena.give_node(S, r)
    else:
        arena.give_back(S, r, fits.add, fits.drop, fits.moved)


# --- virtual memory ---------------------------------------------------------------------------------------------------


@helper
def reserve(S: I64, size: int) -> int:
    """A reserved range of addresses at the lowest place with room.  Ranges are few: a list by address."""
    size = paged(size)
    start, before, after = VIRTUAL, 0, S[RESERVED]
    if S[CHOICE] == BUMP:
        start = max(start, S[LAST_RANGE])
    while after != 0 and S[after + ADDR] < start + size:
        start = max(start, paged(S[after + ADDR] + S[after + SIZE]))
        before, after = after, S[after + NEXT]
    r = arena.take_node(S)
    S[r + ADDR], S[r + SIZE] = start, size
    S[r + LEFT] = LIVE
    S[LAST_RANGE] = start + size
    neighbours.link(S, r, before, after)
    if before == 0:
        S[RESERVED] = r
    return r


@helper
def unreserve(S: I64, r: int) -> None:
    neighbours.unlink(S, r)
    if S[r + PREV] == 0:
        S[RESERVED] = S[r + NEXT]
    arena.give_node(S, r)


@helper
def map_pages(S: I64, addr: int, pages: int, page: int) -> bool:
    """Put memory behind `pages` pages of `page` bytes from `addr` on: all of them, or none when the device has not enough."""
    taken = pages * paged(page)
    if not has(S, taken):
        return False
    S[USED] += taken
    called(S, addr, pages * page)
    return True


@helper
def unmap_pages(S: I64, addr: int, pages: int, page: int) -> None:
    S[USED] -= pages * paged(page)
    called(S, addr, -pages * page)
