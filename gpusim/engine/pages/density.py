"""The density prefetcher: which pages move beside those that faulted (uvm_perf_prefetch.c, 595.45.04).

A binary tree over the pages of a block; a faulted page brings the largest node above it of which more than `threshold` percent
is, or is about to be, at the destination.  Pages of 64 KiB ("big pages") are filled first.  Regions do not see each other
within one batch: there is no cascade.
"""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.bits import add, clear, copy, count, fill, has, keep, next_set, subtract


@kernel
def first_big(offset: int, pages: int, big: int) -> int:
    """The page of a block, which begins `offset` pages into its window of 2 MiB, where its first whole big page begins.

    0 as well if no whole big page fits: the driver's region of them is empty then, and the leaves are not shifted.
    """
    p = -offset % big
    return p if p + big <= pages else 0


@outlined
def group_end(page: int, offset: int, pages: int, big: int) -> int:
    """Where the group of `page` ends: a big page, what comes before the first or after the last, or the block without any."""
    p = -offset % big
    if p + big > pages:
        return pages
    if page < p:
        return p
    end = page + big - (page - p) % big
    return min(end, pages)


@outlined
def group_begin(page: int, offset: int, pages: int, big: int) -> int:
    p = -offset % big
    if p + big > pages or page < p:
        return 0
    return page - (page - p) % big


@outlined
def region(W: Any, leaves: int, page: int, shift: int, n_leaves: int, threshold: int) -> tuple[int, int]:
    """The pages [first, outer) of the largest node above `page` that is dense enough; (0, 0) if none is.

    shift: the leaf of page 0; negative where the tree begins within the row (ATS).
    """
    leaf = page + shift
    size = 1
    while size < n_leaves:
        size *= 2
    while size > 0:
        a = leaf & ~(size - 1)
        b = min(a + size, n_leaves)
        if count(W, leaves, max(a - shift, 0), b - shift) * 100 > (b - a) * threshold:
            # Where the tree begins left of page 0, the driver answers with `shift` itself (since about release 525).
            return (shift if a < shift else a - shift), b - shift
        size //= 2
    return 0, 0


@outlined
def dense(W: Any, faulted: int, leaves: int, thrashing: int, out: int, shift: int, n_leaves: int, threshold: int) -> None:
    """Add to row `out` the regions of all pages of F that are not T.  Rows F, T, out and L (leaves) are all different."""
    end = n_leaves - shift
    page = next_set(W, faulted, 0, end)
    while page < end:
        skip = page + 1
        if not has(W, thrashing, page):
            first, outer = region(W, leaves, page, shift, n_leaves, threshold)
            if first < outer:
                fill(W, out, first, outer)
                skip = max(skip, outer)  # the other pages below this node have the same region
        page = next_set(W, faulted, skip, end)


@outlined
def grow(W: Any, faulted: int, thrashing: int, leaves: int, offset: int, pages: int, big: int) -> None:
    """Fill every group that has a faulted page and none that thrashes."""
    if big == 1:
        return
    page = next_set(W, faulted, 0, pages)
    while page < pages:
        end = group_end(page, offset, pages, big)
        begin = group_begin(page, offset, pages, big)
        if count(W, thrashing, begin, end) == 0:
            fill(W, leaves, begin, end)
        page = next_set(W, faulted, end, pages)


@outlined
def managed(
    W: Any, faulted: int, resident: int, thrashing: int, out: int, leaves: int, offset: int, pages: int, big: int,
    threshold: int,
) -> None:  # fmt: skip
    """Row `out`: the tree's answer for managed memory, without the faulted pages.  Row `leaves` is scratch."""
    clear(W, out)
    copy(W, leaves, resident)
    add(W, leaves, faulted)
    grow(W, faulted, thrashing, leaves, offset, pages, big)
    first = first_big(offset, pages, big)
    shift = big - first if first > 0 else 0
    dense(W, faulted, leaves, thrashing, out, shift, pages + shift, threshold)
    subtract(W, out, faulted)
    subtract(W, out, thrashing)


@outlined
def ats(
    W: Any, faulted: int, resident: int, thrashing: int, out: int, leaves: int, first: int, outer: int, threshold: int
) -> None:
    """Row `out`: the tree's answer for system memory, over the pages [first, outer) of the window; it keeps faulted pages."""
    clear(W, out)
    copy(W, leaves, resident)
    add(W, leaves, faulted)
    dense(W, faulted, leaves, thrashing, out, -first, outer - first, threshold)


# Where a preferred location stands to the destination of a service.
ANYWHERE, HERE, ELSEWHERE = range(3)


@outlined
def advise(
    W: Any, faulted: int, resident: int, thrashing: int, mapped: int, out: int, leaves: int, offset: int, pages: int, big: int,
    threshold: int, preferred: int, first_touch: bool, to_cpu: bool,
) -> None:  # fmt: skip
    """Row `out`: the pages of a managed block that move, or are mapped, beside the faulted ones.

    mapped: the pages that the CPU maps; read only where the destination is the CPU.
    """
    if preferred == ELSEWHERE:
        clear(W, out)
    elif first_touch and preferred == HERE:
        clear(W, out)
        fill(W, out, 0, pages)
        subtract(W, out, faulted)
        subtract(W, out, thrashing)
    else:
        managed(W, faulted, resident, thrashing, out, leaves, offset, pages, big, threshold)
    if to_cpu:
        copy(W, leaves, resident)
        keep(W, leaves, mapped)
        subtract(W, out, leaves)
