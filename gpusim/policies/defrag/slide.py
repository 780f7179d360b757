"""Compaction: all blocks slide together at the low end of the memory (mark and slide).

The device is idle meanwhile; every block that moves is copied within the device's memory, at the profile's copy rate.

before_oom  1: when a request does not fit although enough bytes are free, before anything is evicted for it
threshold   when more than this share of the bytes held lies free outside of the largest free block; 0: never
every       after every so many allocations; 0: never

Source: R. Jones, A. Hosking, E. Moss, "The Garbage Collection Handbook", 2011, chapter 3.
"""

from __future__ import annotations

from gpusim.policies import occasions
from gpusim.policies.compiled import F64, verb
from gpusim.policies.contract import DUE

PARAMS = {"before_oom": 1, "threshold": 0.0, "every": 0}
LIMITS = {"before_oom": 1, "threshold": 1}
FORM = "slide"


@verb(DUE)
def due(P: F64, when: int, allocs: int, held: int, free: int, largest: int, size: int) -> int:
    return occasions.due(P, when, allocs, held, free, largest)
