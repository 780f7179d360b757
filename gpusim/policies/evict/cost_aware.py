from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.evict
def cost_aware(size, reload_ns, evict_ns, last_use, now, staleness=1.0):  # type: ignore[no-untyped-def]
    """The unit that frees most bytes per nanosecond of copying, and has waited long, leaves first.

    score = -(size / (reload_ns + evict_ns)) * waited ** staleness: a clean unit costs one copy, a dirty one two, so
    clean units go first; staleness 0 ignores recency.

    Source: the h-DTR heuristic (staleness, memory, cost) of M. Kirisame et al., "Dynamic tensor rematerialization",
    ICLR 2021, with the time of the copies in place of the time to compute again.
    """
    return -size / (reload_ns + evict_ns + 1.0) * (now - last_use + 1.0) ** staleness
