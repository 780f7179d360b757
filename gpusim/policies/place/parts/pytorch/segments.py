"""Segments that cudaMalloc gave: taken for a request, released when they are one free block."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR, OWNER
from gpusim.policies.place.parts.pytorch import blocks, events, pools
from gpusim.policies.place.parts.pytorch.counting import down, oversize, up
from gpusim.policies.place.parts.pytorch.layout import (
    DEVICE_ALLOCS,
    DEVICE_FREES,
    GROWN,
    MAX_SPLIT,
    NUMBER,
    NUMBERS,
    OVERSIZE_SEGMENTS,
    OWNED,
    POOL,
    PRIVATE,
    RESERVED_BYTES,
    SEGMENT,
    STATS,
    STREAM_BIT,
    size_of,
    stream_of,
)


@helper
def number(S: I64, r: int, pool: int) -> None:
    """A new segment or range of this pool: its words."""
    S[r + POOL], S[r + NUMBER] = pool, S[NUMBERS]
    S[NUMBERS] += 1


@helper
def belongs(S: I64, pool: int, grown: int, bytes_: int) -> None:
    """A private pool counts what was taken for it, as PyTorch does (times), and what it holds."""
    private = S[pool + PRIVATE]
    if private != 0:
        S[private + GROWN] += grown
        S[private + OWNED] += bytes_


@outlined
def take(S: I64, pool: int, stream: int, size: int) -> int:
    """The block, marked as in use, that is a whole new segment of this size; 0 when the device refuses."""
    r = device.take(S, size)
    if r == 0:
        return 0
    number(S, r, pool)
    belongs(S, pool, 1, size)
    up(S, S[pool + STATS], SEGMENT, 1)
    up(S, S[pool + STATS], RESERVED_BYTES, size)
    if size >= S[MAX_SPLIT]:
        oversize(S, OVERSIZE_SEGMENTS, 1)
    S[DEVICE_ALLOCS] += 1
    events.note(S, events.SEGMENT_ALLOC, S[r + ADDR], size, stream)
    return blocks.new(S, r, S[r + ADDR], stream << STREAM_BIT | size, 0, 0)


@outlined
def release(S: I64, pool: int, p: int) -> None:
    """Free block p is a whole segment: back to the device."""
    size, r = size_of(S, p), S[p + OWNER]
    events.note(S, events.SEGMENT_FREE, S[p + ADDR], size, stream_of(S, p))
    pools.drop(S, pool, p)
    arena.give_node(S, p)
    device.give(S, r, size)
    belongs(S, pool, -1, -size)
    down(S, S[pool + STATS], SEGMENT, 1)
    down(S, S[pool + STATS], RESERVED_BYTES, size)
    if size >= S[MAX_SPLIT]:
        oversize(S, OVERSIZE_SEGMENTS, -1)
    S[DEVICE_FREES] += 1
