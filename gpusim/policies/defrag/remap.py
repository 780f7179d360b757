"""Virtual memory: the whole 2 MiB pages inside of holes are unmapped, and mapped again in one piece where they are needed.

Nothing is copied.  Each range of pages that goes costs a device call (and waits for the device), as does what is taken instead.

before_oom  1: when a request does not fit although enough bytes are free, before anything is evicted for it
threshold   when more than this share of the bytes held lies free outside of the largest free block; 0: never
every       after every so many allocations; 0: never

Source: the CUDA driver API's virtual memory management (cuMemUnmap, cuMemMap); PyTorch's expandable segments do the same.
"""

from __future__ import annotations

from gpusim.policies import occasions
from gpusim.policies.compiled import F64, verb
from gpusim.policies.contract import DUE

PARAMS = {"before_oom": 1, "threshold": 0.0, "every": 0}
LIMITS = {"before_oom": 1, "threshold": 1}
FORM = "remap"


@verb(DUE)
def due(P: F64, when: int, allocs: int, held: int, free: int, largest: int, size: int) -> int:
    return occasions.due(P, when, allocs, held, free, largest)
