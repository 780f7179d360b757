from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.pool
def by_topology(evict_ns, reload_ns, free):  # type: ignore[no-untyped-def]
    """The memory to which and from which a copy takes the least time over unloaded links, whatever its place in the chain.

    Of equal ones, as all are behind one NVSwitch, that with the most free memory: a gigabyte counts as a nanosecond.
    """
    return evict_ns + reload_ns - 1e-9 * free
