"""Allocations and frees of a Kineto trace paired into tensors: by address, or in old traces by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusim.trace.importers.kineto_events import MemoryInstant


@dataclass
class Lives:
    """Tensors are numbered: those older than the profile first, then each allocation in the order of time.

    older     bytes and address of each tensor that is freed without having been allocated, and as the last one, when the
              profile tells, of all that was there before it and stays
    tensor    of each instant, the tensor that it begins or ends
    lost      instants that take an address still in use -> the tensor there, whose free went unseen
    guessed   frees whose tensor is one of several of its size
    agreeing  instants after which as many bytes are in use as the profile says
    stated    instants of which it says so
    """

    older: list[tuple[int, int]] = field(default_factory=list)
    tensor: list[int] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    guessed: int = 0
    agreeing: int = 0
    stated: int = 0


def pair(memory: Sequence[MemoryInstant]) -> Lives:
    """Which tensor each instant is of.

    Bytes are blocks of PyTorch's allocator, so a free names the size of its allocation.  Without addresses it takes the
    latest allocation of that size: bytes in use are right whichever it is, only lifetimes may be mistaken.
    """
    lives = Lives()
    live: dict[int, list[int]] = {}  # address, or bytes where there is none -> what is in use there, the latest last
    begun = 0
    for i, instant in enumerate(memory):
        known = instant.addr >= 0
        held = live.setdefault(instant.addr if known else -1 - abs(instant.bytes), [])
        if instant.bytes >= 0:
            if known and held:
                lives.lost[i] = held.pop()
            held.append(begun)
            lives.tensor.append(begun)
            begun += 1
        elif held:
            lives.guessed += len(held) > 1
            lives.tensor.append(held.pop())
        else:
            lives.older.append((-instant.bytes, instant.addr))
            lives.tensor.append(-len(lives.older))
    _compare(lives, memory)
    older = len(lives.older)
    lives.tensor = [older + t if t >= 0 else -1 - t for t in lives.tensor]
    lives.lost = {i: older + t for i, t in lives.lost.items()}
    return lives


def _compare(lives: Lives, memory: Sequence[MemoryInstant]) -> None:
    """Adds up the bytes in use, holds them against those that the profile states, and finds what was there before."""
    stated = next((m for m in memory if m.allocated >= 0), None)
    if stated is None:
        return
    before = memory[: memory.index(stated) + 1]
    start = stated.allocated - sum(m.bytes for m in before)
    kept = start - sum(size for size, _ in lives.older)
    if kept > 0:
        lives.older.append((kept, -1))
    in_use = start
    for instant in memory:
        in_use += instant.bytes
        if instant.allocated >= 0:
            lives.stated += 1
            lives.agreeing += in_use == instant.allocated
