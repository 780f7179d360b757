from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.pool
def oracle(size, next_in, room, evict_ns, reload_ns):  # type: ignore[no-untyped-def]
    """The fastest memory whose owner will not want it back before the unit's next access; others when there is none.

    Of equally fast ones that which its owner leaves the most of.

    A lender that wants memory back after all has those leave first whose next access is the farthest.
    """
    back = 0.0 if room >= size else 1e15
    return evict_ns + reload_ns + back - 1e-9 * room + 1e-9 * min(next_in, 1e15)
