from __future__ import annotations

from gpusim.policies import decorators as policy
from gpusim.policies import horizon  # noqa: F401  the same order when time is the index of a request


@policy.evict
def belady(next_use):  # type: ignore[no-untyped-def]
    """The unit whose next access is furthest away leaves first; optimal in misses when all units are of one size.

    With different sizes it is still the classical rule, and no longer optimal.

    Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2),
    1966.
    """
    return -next_use
