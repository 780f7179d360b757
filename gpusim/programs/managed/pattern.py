"""What the threads of a kernel touch: an index expression for each access, evaluated warp by warp.

An access of thread (tx, ty) of thread block (bx, by) in step i = outer * inner + j touches the element

    affine    start + tx*TX + ty*TY + bx*BX + by*BY + j*IN + outer*OUT
    gather    the entry of an index table at that position (none behind its end)
    random    a hash of that position

of its array; those outside of the array are skipped, as behind `if (i < n)`, or wrap around it.  A warp is 32 threads in a row,
x first.  What a row of threads touches not wider apart than a page is one segment; what it moves are the sectors in it that the
threads touch.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.base.tables import f8, i8, record

AFFINE, GATHER, RANDOM = range(3)
LANES = 32
SECTOR = 32  # bytes that the smallest request moves, and the largest
LINE = 128

ACCESS = record(
    [("base", i8),                 # the address of element 0; allocations lie in windows of 2 MiB one after the other
     ("elements", i8), ("bytes", i8), ("write", i8),
     ("waits", i8),                # for all earlier accesses of the warp, as what is computed from them
     ("form", i8), ("wraps", i8), ("seed", i8), ("table", i8),  # where the index table begins ...
     ("length", i8),               # ... and how long it is
     ("start", i8), ("tx", i8), ("ty", i8), ("bx", i8), ("by", i8), ("in_", i8), ("out", i8)]
)  # fmt: skip
SHAPE = record(
    [("grid_x", i8), ("grid_y", i8), ("block_x", i8), ("block_y", i8), ("inner", i8), ("outer", i8), ("ns", f8)]
)  # fmt: skip


@kernel
def scramble(x: int, seed: int) -> int:
    """A hash of 31 bits (two rounds of Thomas Wang's shifts and odd multipliers, kept within 62 bits)."""
    x = (x ^ (x >> 15) ^ (seed * 40503)) & 0x7FFFFFFF
    x = (x * 739982445) & 0x7FFFFFFF
    x = (x ^ (x >> 12)) & 0x7FFFFFFF
    x = (x * 695872825) & 0x7FFFFFFF
    return x ^ (x >> 15)


@kernel
def element(a: Any, tables: Any, position: int) -> int:
    """The element at a position of the affine form; NONE (-1) outside of the array."""
    if a.form == GATHER:
        if position < 0 or position >= a.length:
            return -1
        position = tables[a.table + position]
    elif a.form == RANDOM:
        place = scramble(position, a.seed)
        if a.elements > 1 << 31:
            place = (place << 31) | scramble(position, a.seed + 1)
        position = place % a.elements
    if a.wraps:
        position %= a.elements
    return position if 0 <= position < a.elements else -1


@kernel
def segment(
    a: Any, shape: Any, tables: Any, bx: int, by: int, thread: int, step: int, room: int, page: int
) -> tuple[int, int, int, int]:
    """The first and the last byte that lanes from `thread` of a thread block on touch, how many lanes those are, their pitch.

    room: lanes that are left in the warp; page: bytes.  No bytes (last < first) where the lanes touch nothing.
    pitch: bytes from one lane's element to the next one's; 0 if they leave no sector out.
    """
    tx, ty, j, outer = thread, 0, step, 0
    if thread >= shape.block_x:  # divisions cost as much as all the rest
        tx, ty = thread % shape.block_x, thread // shape.block_x
    if step >= shape.inner:
        j, outer = step % shape.inner, step // shape.inner
    position = a.start + tx * a.tx + ty * a.ty + bx * a.bx + by * a.by + j * a.in_ + outer * a.out
    lanes, d = min(room, shape.block_x - tx), abs(a.tx)
    if a.form != AFFINE or a.wraps or d * a.bytes > page:
        lo = element(a, tables, position)
        if lo < 0:
            return 0, -1, 1, 0
        hi, n = lo, 1
        while n < lanes and (a.form == GATHER or a.wraps):  # on to the next lane, if no whole sector lies between
            e = element(a, tables, position + n * a.tx)
            if e < hi or (e - hi - 1) * a.bytes >= SECTOR:
                break
            hi, n = e, n + 1
        return a.base + lo * a.bytes, a.base + (hi + 1) * a.bytes - 1, n, 0
    lo, hi = position, position + (lanes - 1) * a.tx
    if hi < lo:
        lo, hi = hi, lo
    if lo < 0:
        lo += (max(d, 1) - 1 - lo) // max(d, 1) * d
    if hi >= a.elements:
        hi -= (hi - a.elements + max(d, 1)) // max(d, 1) * d
    if hi < lo or lo < 0 or hi >= a.elements:
        return 0, -1, lanes, 0
    pitch = d * a.bytes
    return a.base + lo * a.bytes, a.base + (hi + 1) * a.bytes - 1, lanes, pitch if pitch >= a.bytes + SECTOR else 0


@kernel
def requests(first: int, pitch: int, size: int, lo: int, hi: int) -> tuple[int, int]:
    """How many sectors and how many lines of the bytes lo..hi a warp touches: `size` bytes every `pitch` from `first` on."""
    if pitch == 0:
        return hi // SECTOR - lo // SECTOR + 1, hi // LINE - lo // LINE + 1
    at = first + max((lo - first - size) // pitch + 1, 0) * pitch
    sectors, lines, line = 0, 0, -1
    while at <= hi:
        begin, end = max(at, lo), min(at + size - 1, hi)
        sectors += end // SECTOR - begin // SECTOR + 1
        lines += end // LINE - max(begin // LINE, line + 1) + 1
        line = end // LINE
        at += pitch
    return sectors, lines
