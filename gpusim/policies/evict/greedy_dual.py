from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.evict
def greedy_dual(last_use, depth, credit=1000.0, half=32768.0):  # type: ignore[no-untyped-def]
    """Of keys and values in a tier: LRU, but what is dear to compute again counts as used later.

    credit  uses of other chunks for which a chunk stays longer that costs twice as much as the first of a prompt
    half    tokens before a chunk whose attention takes as long as everything else of it

    Source: GreedyDual of P. Cao, S. Irani, "Cost-aware WWW proxy caching algorithms", USITS 1997, with the number of uses
    so far in the place of its rising floor.
    """
    return last_use + credit * depth / half
