from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.pool
def local_first(tier, far):  # type: ignore[no-untyped-def]
    """Memories of the own host first, in the order of the chain; those of other hosts when nothing else has room."""
    return tier + 1e6 * far
