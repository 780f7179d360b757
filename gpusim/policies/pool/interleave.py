from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.pool
def interleave(tier, taken):  # type: ignore[no-untyped-def]
    """The lenders of the nearest tier in turn, whatever lies between."""
    return tier * 1e9 + taken
