from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.evict
def largest(size):  # type: ignore[no-untyped-def]
    """The largest unit leaves first, so that few evictions make room; equal sizes leave in the order of arrival."""
    return -size
