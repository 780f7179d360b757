"""A radix tree of cached prefixes as SGLang keeps it: match, insert, lock, unlock and evict, compiled.

Keys are whole pages (`radix_tables`): the tokens behind the last whole page are cut off by the caller.  A space keeps prefixes
of one adapter or salt apart from all others.  Rules are those of sglang 0.5.23; a time is the number of an event.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import entry, kernel, outlined
from gpusim.policies.schedule.parts.radix_tables import (
    NONE,
    ROOT,
    TLRU,
    RadixTree,
    enter,
    find,
    review,
    settle,
    strike,
    tick,
    touch,
)

I64 = npt.NDArray[np.int64]


@kernel
def new_node(t: RadixTree, parent: int, space: int, priority: int) -> int:
    n = t.tree[0].free
    node = t.nodes[n]
    t.tree[0].free = node.parent
    node.parent, node.space, node.priority = parent, space, priority
    node.children = node.locks = node.hits = node.depth = node.history = 0
    node.place = NONE
    node.accessed = tick(t)
    node.created = tick(t)
    return int(n)


@outlined
def split(t: RadixTree, n: int, kept: int) -> int:
    """The first `kept` pages of a node become a node above it; returns that one."""
    lower = t.nodes[n]
    u = new_node(t, lower.parent, lower.space, lower.priority)
    upper = t.nodes[u]
    upper.hits, upper.locks, upper.children, upper.pages = lower.hits, lower.locks, 1, kept
    upper.first = last = lower.first
    for _ in range(kept - 1):
        last = t.pages[last].next
    strike(t, n)
    upper.last, lower.first = last, t.pages[last].next
    lower.pages -= kept
    lower.parent = u
    enter(t, u)
    enter(t, n)
    if t.tree[0].unified:
        upper.created = lower.created
        upper.depth = lower.depth - lower.pages * t.tree[0].page
        upper.history = lower.history
        touch(t, n, tick(t))
    return u


@kernel
def common(t: RadixTree, n: int, key: I64, at: int, end: int) -> int:
    """How many pages of the node's run are those of the key from `at` on."""
    p, same = t.nodes[n].first, 0
    most = min(t.nodes[n].pages, end - at)
    while same < most and t.pages[p].symbol == key[at + same]:
        same += 1
        p = t.pages[p].next
    return same


@outlined
def match(t: RadixTree, key: I64, pages: int, space: int) -> int:
    """The node at which the longest cached prefix ends (split off if need be); `tree.matched` says how many pages it has."""
    t.tree[0].matched = 0
    if pages == 0:
        return ROOT
    n, at = ROOT, 0
    time = 0
    unified = t.tree[0].unified
    if not unified:
        time = tick(t)
        t.nodes[ROOT].accessed = time
    while at < pages:
        child = find(t, n, space, key[at])
        if child == NONE:
            break
        if not unified:
            touch(t, child, time)
        same = common(t, child, key, at, pages)
        at += same
        n = child
        if same < t.nodes[child].pages:
            n = split(t, child, same)
            break
    if unified:
        _touch_path(t, n)
    t.tree[0].matched = at
    return n


@kernel
def _touch_path(t: RadixTree, n: int) -> None:
    """One time for the whole path, earlier the nearer to the root."""
    time = tick(t)
    while n != NONE:
        touch(t, n, time)
        time -= 1
        n = t.nodes[n].parent


@outlined
def insert(t: RadixTree, key: I64, held: I64, pages: int, space: int, priority: int, inserted: int) -> int:
    """The key's pages are in the KV pages `held`; returns the node at which the key ends.

    inserted  tokens that this request has inserted before: nodes up to there are not hit again
    `tree.matched` says how many leading pages were there already: their copies in `held` are the caller's to free.
    """
    n, at, size = ROOT, 0, t.tree[0].page
    time = tick(t)
    touch(t, ROOT, time)
    t.nodes[ROOT].priority = max(t.nodes[ROOT].priority, priority)
    while at < pages:
        child = find(t, n, space, key[at])
        if child == NONE:
            break
        n = child
        touch(t, n, tick(t) if t.tree[0].unified else time)
        same = common(t, n, key, at, pages)
        at += same
        if same < t.nodes[n].pages:
            n = split(t, n, same)
        node = t.nodes[n]
        node.priority = max(node.priority, priority)
        node.hits += at * size > inserted
        if node.place != NONE:
            settle(t, n)
    t.tree[0].matched = at
    if at < pages:
        parent, n = n, _add_leaf(t, n, key, held, at, pages, space, priority)
        t.nodes[n].hits = int(pages * size > inserted)
        review(t, parent)
        review(t, n)
    return n


@kernel
def _add_leaf(
    t: RadixTree, parent: int, key: I64, held: I64, at: int, pages: int, space: int, priority: int
) -> int:
    """The rest of a key becomes a leaf, which is still to be looked over."""
    size = t.tree[0].page
    n = new_node(t, parent, space, priority)
    node = t.nodes[n]
    node.first, node.last, node.pages = held[at], held[pages - 1], pages - at
    for i in range(at, pages):
        t.pages[held[i]].symbol = key[i]
        t.pages[held[i]].next = held[i + 1] if i + 1 < pages else NONE
    t.nodes[parent].children += 1
    t.tree[0].evictable += node.pages * size
    enter(t, n)
    node.depth = node.history = pages * size
    if t.tree[0].policy == TLRU:
        above = parent
        while above != NONE and t.nodes[above].history < node.depth:
            t.nodes[above].history = node.depth
            above = t.nodes[above].parent
    return n


@outlined
def lock(t: RadixTree, n: int) -> None:
    """A request uses the path to this node."""
    while n != ROOT:
        node = t.nodes[n]
        if node.locks == 0:
            t.tree[0].evictable -= node.pages * t.tree[0].page
            t.tree[0].protected += node.pages * t.tree[0].page
        node.locks += 1
        review(t, n)
        n = node.parent


@outlined
def unlock(t: RadixTree, n: int) -> None:
    """A request no longer uses the path to this node."""
    while n != ROOT:
        node = t.nodes[n]
        if node.locks == 1:
            t.tree[0].evictable += node.pages * t.tree[0].page
            t.tree[0].protected -= node.pages * t.tree[0].page
        node.locks -= 1
        review(t, n)
        n = node.parent


@outlined
def evict(t: RadixTree, tokens: int, freed: I64, count: int) -> int:
    """Evict whole leaves until so many tokens are free: their pages follow the `count` in `freed`; the new count."""
    size = t.tree[0].page
    while tokens > 0 and t.tree[0].leaves > 0:
        n = t.heap[0]
        node = t.nodes[n]
        p = node.first
        for _ in range(node.pages):
            freed[count] = p
            count += 1
            p = t.pages[p].next
        tokens -= node.pages * size
        t.tree[0].evictable -= node.pages * size
        parent = node.parent
        strike(t, n)
        node.locks = 1
        review(t, n)
        node.parent = t.tree[0].free
        t.tree[0].free = n
        t.nodes[parent].children -= 1
        review(t, parent)
    return count


@outlined
def path_pages(t: RadixTree, n: int, out: I64) -> int:
    """The KV pages from the root to this node, in order; how many they are."""
    count, above = 0, n
    while above != ROOT:
        count += t.nodes[above].pages
        above = t.nodes[above].parent
    end = count
    while n != ROOT:
        end -= t.nodes[n].pages
        p = t.nodes[n].first
        for i in range(t.nodes[n].pages):
            out[end + i] = p
            p = t.pages[p].next
        n = t.nodes[n].parent
    return count


@entry()
def radix_match(t: RadixTree, key: I64, space: int) -> tuple[int, int]:
    """(node, pages matched) of the longest cached prefix of the key."""
    n = match(t, key, key.size, space)
    return n, t.tree[0].matched


@entry()
def radix_insert(t: RadixTree, key: I64, held: I64, space: int, priority: int, inserted: int) -> tuple[int, int]:
    """(node, pages that were there already) of a key whose pages are in the KV pages `held`."""
    n = insert(t, key, held, key.size, space, priority, inserted)
    return n, t.tree[0].matched


@entry()
def radix_lock(t: RadixTree, n: int, more: int) -> None:
    """One lock more (more = 1) or less (0) on the path to a node."""
    if more:
        lock(t, n)
    else:
        unlock(t, n)


@entry()
def radix_evict(t: RadixTree, tokens: int, freed: I64) -> int:
    """Evict at least so many tokens where there are so many; the pages freed are in `freed`: how many they are."""
    return evict(t, tokens, freed, 0)


@entry()
def radix_path(t: RadixTree, n: int, out: I64) -> int:
    """How many KV pages the path to a node has; they are in `out`."""
    return path_pages(t, n, out)
