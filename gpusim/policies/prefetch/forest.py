from __future__ import annotations

from gpusim.policies import decorators as policy


@policy.prefetch
def forest(pages, present, array_ahead, array_wasted, sure=4096, dense=0.05, sparse=0.5, leaf=16):  # type: ignore[no-untyped-def]
    """A tree for each allocation: whole blocks where nearly all that came ahead was used, 64 KiB where most was not.

    An allocation of which `sure` pages have come ahead is classed by the share of them that left unused: up to `dense` the
    whole block comes with a fault, from `sparse` on regions of `leaf` pages alone, between them, and before, more than half.

    Of the paper this is the tree for each object, and its size by coverage.  The paper classes by the times of accesses, which
    hardware of its own counts, detects linear streams, and has trees up to 4 MiB; here a tree ends with its block of 2 MiB.
    None of its numbers is reproduced: they are of a simulated GPU and of traces that are not public.

    Source: M. Lin, Y. Feng, G. Cox, H. Jeon, "Forest: access-aware GPU UVM management", ISCA 2025
    """
    if array_ahead < sure:
        return present * 2 > pages
    wasted = array_wasted / array_ahead
    if wasted <= dense:
        return True
    if wasted >= sparse:
        return pages <= leaf
    return present * 2 > pages
