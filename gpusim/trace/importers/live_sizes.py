"""Tensors in use by their sizes: the latest that a block of so many bytes can be."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable

_ROUND = 512  # bytes: what PyTorch's allocator rounds a request up to
_LARGE = 2**20  # bytes: a request above may get a block that is up to as much larger, which is not worth a split


class LiveSizes:
    def __init__(self, sizes: Iterable[int]) -> None:
        """sizes: those that will come."""
        self._sizes = sorted(set(sizes))
        self._of_size: dict[int, dict[int, None]] = {size: {} for size in self._sizes}  # in the order of allocation
        self._size: dict[int, int] = {}

    def add(self, tensor: int, size: int) -> None:
        self._size[tensor] = size
        if size in self._of_size:  # what stays from before the profile to its end has a size of its own
            self._of_size[size][tensor] = None

    def remove(self, tensor: int) -> None:
        self._of_size.get(self._size.pop(tensor), {}).pop(tensor, None)

    def size(self, tensor: int) -> int:
        return self._size[tensor]

    def __contains__(self, tensor: int) -> bool:
        return tensor in self._size

    def latest(self, request: int, but: Collection[int]) -> int:
        """The tensor allocated last that a request of so many bytes may have got, -1 for none; the best fit first."""
        least = -(-request // _ROUND) * _ROUND
        most = least + _LARGE if least > _LARGE else least
        at = bisect_left(self._sizes, least)
        while at < len(self._sizes) and self._sizes[at] <= most:
            for tensor in reversed(self._of_size[self._sizes[at]]):
                if tensor not in but:
                    return tensor
            at += 1
        return -1
