from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.pool
def none(tier):  # type: ignore[no-untyped-def]
    """The nearest tier with room; lenders of one tier in the order of the machine."""
    return tier
