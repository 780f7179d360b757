"""What release policies share that a network tells how much the next requests add."""

from __future__ import annotations

from gpusim.policies.compiled import I64, helper

AHEAD, SEEN = 8, 8
ASKED, ALLOCATED, SENT = range(3)  # words of S: requests so far; bytes allocated, and swapped out, at the latest


@helper
def growth(S: I64, allocated: int) -> int:
    """Bytes allocated less those freed since the latest request; what was swapped out then still counts."""
    return int(allocated - S[ALLOCATED] + S[SENT])


@helper
def keep_room(S: I64, expected: float, allocated: int, capacity: int) -> int:
    """Bytes that leave so that what is expected finds room; the request is counted."""
    lacking = int(min(expected, 2.0 * capacity)) - (capacity - allocated)
    S[ASKED] += 1
    S[ALLOCATED], S[SENT] = allocated, min(max(0, lacking), allocated)
    return int(S[SENT])
