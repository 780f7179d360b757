"""What a memory snapshot records of the latest verb, in order, for a listener.

The list is kept only while there is a listener: recording costs nothing otherwise, and little compile time, since it is a
function of its own.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.pytorch.layout import HEARD, LISTENING, MAX_HEARD

ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom",
)  # fmt: skip
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM = range(8)


@outlined
def _write(S: I64, action: int, addr: int, size: int, stream: int) -> None:
    if S[HEARD] < S[MAX_HEARD]:
        i = S[LISTENING] + 4 * S[HEARD]
        S[i], S[i + 1], S[i + 2], S[i + 3] = action, addr, size, stream
    S[HEARD] += 1


@helper
def note(S: I64, action: int, addr: int, size: int, stream: int) -> None:
    if S[LISTENING] != 0:
        _write(S, action, addr, size, stream)


def listen(S: I64, room: int = 1 << 16) -> I64:
    """The table with room for this many events of one verb, and a listener."""
    found = np.concatenate([S, np.zeros(4 * room, np.int64)])
    found[LISTENING], found[MAX_HEARD], found[HEARD] = len(S), room, 0
    return found


def heard(S: I64) -> list[tuple[str, int, int, int]]:
    """(action, address, bytes, stream) of the latest verb's events; an oom's address is the device's free bytes."""
    if S[HEARD] > S[MAX_HEARD]:
        raise ValueError(f"the latest verb made {S[HEARD]} events, and there is room for {S[MAX_HEARD]}")
    rows = S[S[LISTENING] : S[LISTENING] + 4 * S[HEARD]].reshape(-1, 4).tolist()
    return [(ACTIONS[action], addr, size, stream) for action, addr, size, stream in rows]
