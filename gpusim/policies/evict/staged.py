from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.evict
def staged(stage, last_use):  # type: ignore[no-untyped-def]
    """Caches leave first, then intermediates, then parameters and what else lasts; of each, what has waited longest.

    With the release policy three_stage memory is given up in these three stages before it is short.
    """
    return stage * 2.0**50 + last_use
