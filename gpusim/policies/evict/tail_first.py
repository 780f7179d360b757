from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.evict
def tail_first(depth, last_use):  # type: ignore[no-untyped-def]
    """Of keys and values in a tier: the chunk with most tokens of its prompt before it leaves first; of equals the oldest.

    A chunk helps only where all before it are there, so that what is left of each prompt is its head.
    """
    return last_use - depth * 2.0**32
