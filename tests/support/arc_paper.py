"""ARC as Figure 4 of its paper (Megiddo and Modha, FAST 2003) has it, for objects of any size: what decides how ours counts.

The paper's pages become bytes: an object of s bytes is s pages that are asked for, kept, remembered and evicted together.  So
|X| is the bytes of a list, c the bytes of the memory, the target p moves by s times the paper's step, and what the paper
does once for a page ("delete the LRU page in B1", REPLACE) is done until s bytes have room.  With s = 1 each loop runs at most
once, and Figure 4 is left.  No count depends on whether sizes are said in bytes or in KiB.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping


def misses(requests: Iterable[int], size_of: Mapping[int, int], c: int) -> int:
    """How many requests miss in a memory of c bytes, empty at first.  No object is larger than c."""
    t1, b1, t2, b2 = (Lru() for _ in range(4))
    p, missed = 0.0, 0
    for x in requests:
        s = size_of[x]
        if x in t1 or x in t2:  # case I
            (t1 if x in t1 else t2).pop(x)
            t2[x] = s
            continue
        missed += 1
        back_in_b2 = x in b2
        if x in b1:  # case II
            p = min(p + s * max(1.0, b2.bytes / b1.bytes), c)
        elif x in b2:  # case III
            p = max(p - s * max(1.0, b1.bytes / b2.bytes), 0)
        else:  # case IV: room in L1 = T1 + B1 (case A), then in the whole directory (case B)
            while t1.bytes + b1.bytes + s > c:
                (b1 or t1).drop_oldest()
            while b2 and t1.bytes + b1.bytes + t2.bytes + b2.bytes + s > 2 * c:
                b2.drop_oldest()
        while t1.bytes + t2.bytes + s > c:  # REPLACE
            if t1 and (t1.bytes > p or (back_in_b2 and t1.bytes == p) or not t2):
                t1.oldest_to(b1)
            else:
                t2.oldest_to(b2)
        (t2 if x in b1 or x in b2 else t1)[x] = s
        b1.pop(x, None)
        b2.pop(x, None)
    return missed


class Lru(OrderedDict[int, int]):
    """Object -> bytes, least recently used first."""

    bytes = 0

    def __setitem__(self, x: int, s: int) -> None:
        super().__setitem__(x, s)
        self.bytes += s

    def pop(self, x: int, default: int | None = None) -> int | None:  # type: ignore[override]
        s = super().pop(x, default)
        self.bytes -= s or 0
        return s

    def drop_oldest(self) -> tuple[int, int]:
        x = next(iter(self))
        return x, self.pop(x) or 0

    def oldest_to(self, ghosts: Lru) -> None:
        x, s = self.drop_oldest()
        ghosts[x] = s
