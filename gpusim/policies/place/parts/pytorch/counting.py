"""What torch.cuda.memory_stats() counts.

Increases and decreases are net changes in PyTorch's order, which is what fixes the peaks.  `allocated` is the sum of the
increases since the latest reset, `freed` that of the decreases: it follows from the others.
"""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64, helper
from gpusim.policies.place.parts.pytorch.layout import (
    ALL_STATS,
    BASE,
    COUNTERS,
    CURRENT,
    KINDS,
    LARGE_STATS,
    MAX_SPLIT,
    NEVER,
    OVERSIZE_ALLOCATIONS,
    OVERSIZE_SEGMENTS,
    PEAK,
    RAISED,
    REJECTIONS,
    RETRIES,
    SMALL_STATS,
)


@helper
def up(S: I64, side: int, kind: int, by: int) -> None:
    """A statistic of one side, and of both, grows."""
    one, all_ = side + kind, ALL_STATS + kind
    now = S[one + CURRENT] + by
    S[one + CURRENT] = now
    S[one + RAISED] += by
    if now > S[one + PEAK]:
        S[one + PEAK] = now
    now = S[all_ + CURRENT] + by
    S[all_ + CURRENT] = now
    if now > S[all_ + PEAK]:
        S[all_ + PEAK] = now


@helper
def down(S: I64, side: int, kind: int, by: int) -> None:
    S[side + kind + CURRENT] -= by
    S[ALL_STATS + kind + CURRENT] -= by


@helper
def change(S: I64, side: int, kind: int, by: int) -> None:
    if by > 0:
        up(S, side, kind, by)
    else:
        down(S, side, kind, -by)


@outlined
def oversize(S: I64, stat: int, by: int) -> None:
    """One more, or one less, of what is not below max_split_size."""
    S[stat + CURRENT] += by
    if by > 0:
        S[stat + RAISED] += by
        S[stat + PEAK] = max(S[stat + PEAK], S[stat + CURRENT])


@outlined
def reset_peaks(S: I64) -> None:
    for stat in range(ALL_STATS, OVERSIZE_SEGMENTS + 1, 4):
        S[stat + PEAK] = S[stat + CURRENT]


@outlined
def reset_accumulated(S: I64) -> None:
    for stat in range(ALL_STATS, OVERSIZE_SEGMENTS + 1, 4):
        S[stat + RAISED] = 0
        S[stat + BASE] = S[stat + CURRENT]
    for counter in range(RETRIES, REJECTIONS + 1):
        S[counter] = 0


def statistics(S: I64) -> dict[str, int]:
    """torch.cuda.memory_stats() of the allocator with this table: the same names, the same numbers."""
    found: dict[str, int] = {}
    sides = {"all": ALL_STATS, "small_pool": SMALL_STATS, "large_pool": LARGE_STATS}
    for k, kind in enumerate(KINDS):
        for name, side in sides.items():
            parts = [SMALL_STATS, LARGE_STATS] if side == ALL_STATS else [side]
            found |= _numbers(S, f"{kind}.{name}", side + 4 * k, [part + 4 * k for part in parts])
    for name, stat in (("oversize_allocations", OVERSIZE_ALLOCATIONS), ("oversize_segments", OVERSIZE_SEGMENTS)):
        found |= _numbers(S, name, stat, [stat])
    found |= {name: int(S[RETRIES + i]) for i, name in enumerate(COUNTERS)}
    found["max_split_size"] = -1 if S[MAX_SPLIT] == NEVER else int(S[MAX_SPLIT])
    return found


def _numbers(S: I64, name: str, stat: int, parts: list[int]) -> dict[str, int]:
    raised = sum(int(S[part + RAISED]) for part in parts)
    gained = sum(int(S[part + CURRENT] - S[part + BASE]) for part in parts)
    return {
        f"{name}.current": int(S[stat + CURRENT]), f"{name}.peak": int(S[stat + PEAK]),
        f"{name}.allocated": raised, f"{name}.freed": raised - gained,
    }  # fmt: skip
