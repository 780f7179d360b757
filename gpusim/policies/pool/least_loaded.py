from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.pool
def least_loaded(tier, free, capacity, lender, size, reserve=0.0):  # type: ignore[no-untyped-def]
    """Of the lenders of the nearest tier the one with the most free memory.

    reserve  share of its memory that each lender keeps for itself
    """
    if lender and free - size < reserve * capacity:
        return float("inf")
    return tier * 1e15 - free
