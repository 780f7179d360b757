"""The process whose turn is farthest away gives memory first: Belady's rule over time slices."""

from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.evict
def by_turn(turns, last_use):  # type: ignore[no-untyped-def]
    """Chunks of the process that has the GPU latest leave first, of one process those that were used longest ago.

    Of two processes in time slices the one that waits gives its memory up, and the one that runs keeps its own.  The driver's
    order does the opposite: what was served longest ago is of the process that runs next.

    Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966, by
    turns in place of uses
    """
    return last_use - 1e15 * turns
