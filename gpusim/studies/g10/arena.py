"""A memory that is given out in one piece per tensor: first fit from either end."""

from __future__ import annotations

from bisect import bisect_left, insort


class Arena:
    """`pages` pages; what is free is a list of holes (first, one past the last), by address."""

    def __init__(self, pages: int) -> None:
        self.holes = [(0, pages)]

    def from_left(self, pages: int) -> int:
        """The first page of the lowest block of this size, -1 if there is none."""
        for i, (first, last) in enumerate(self.holes):
            if last - first >= pages:
                self._shrink(i, first + pages, last)
                return first
        return -1

    def from_right(self, pages: int) -> int:
        """The first page of the highest block of this size, -1 if there is none."""
        for i in range(len(self.holes) - 1, -1, -1):
            first, last = self.holes[i]
            if last - first >= pages:
                self._shrink(i, first, last - pages)
                return last - pages
        return -1

    def give_back(self, first: int, pages: int) -> None:
        last = first + pages
        i = bisect_left(self.holes, (first, last))
        if i < len(self.holes) and self.holes[i][0] == last:
            last = self.holes.pop(i)[1]
        if i > 0 and self.holes[i - 1][1] == first:
            i -= 1
            first = self.holes.pop(i)[0]
        insort(self.holes, (first, last))

    @property
    def largest(self) -> int:
        """Pages of the largest hole."""
        return max((last - first for first, last in self.holes), default=0)

    def _shrink(self, i: int, first: int, last: int) -> None:
        if first < last:
            self.holes[i] = (first, last)
        else:
            del self.holes[i]
