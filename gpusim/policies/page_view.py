"""What a prefetcher of pages in plain Python sees of the GPU that launches or faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PageView:
    """The memory of one GPU; blocks are 2 MiB, numbered through all allocations in the order in which they were made.

    now       ns
    kernel    what was launched last: equal for kernels of one name over the same arrays
    memory    blocks for which the GPU has room; free: those of them that nothing is in
    array     number of the allocation that a block belongs to
    resident  how many pages of a block are on the GPU
    """

    gpu: int
    now: float
    kernel: int
    memory: int
    free: int
    array: Callable[[int], int]
    resident: Callable[[int], int]
