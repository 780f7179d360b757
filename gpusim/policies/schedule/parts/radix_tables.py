"""The tables of a radix tree of cached prefixes, and the heap of its leaves that may be evicted.

A node holds a run of pages of `page` tokens.  Each page of KV memory has one row: what its tokens are (a number that two pages
share if and only if their tokens are the same) and the next page of the run.  A run is split without copying it.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, kernel, outlined, tables_at
from gpusim.base.errors import PolicyError, suggest
from gpusim.base.tables import filled, i8, record, signature

NONE = -1
ROOT = 0
POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority", "tlru")
LRU, LFU, FIFO, MRU, FILO, SLRU, PRIORITY, TLRU = range(len(POLICIES))
LEAST = -(2**62)  # priority of the root, below any request's
MASK = 2**62 - 1  # of a hash: the same with and without overflow
DEEPEST = 20  # bits of a time stamp that order the nodes of one walk

TREE = record([
    (name, i8) for name in (
        "page", "policy", "unified", "protected_hits", "threshold", "estimate", "ticks", "evictable", "protected",
        "leaves", "free", "matched",
    )
])  # fmt: skip
NODE = record([
    (name, i8) for name in (
        "parent", "space", "first", "last", "pages", "children", "locks", "accessed", "created", "hits", "priority", "place",
        "key", "depth", "history",
    )
])  # fmt: skip
PAGE = record([("symbol", i8), ("next", i8)])


@by_pointer
class RadixTree(NamedTuple):
    """The tree, its nodes, the pages of KV memory, nodes by their parent and first page, and the heap of leaves."""

    tree: Annotated[Any, TREE, 1]
    nodes: Annotated[Any, NODE, "nodes"]
    pages: Annotated[Any, PAGE, "pages"]
    table: Annotated[Any, i8, "table"]
    heap: Annotated[Any, i8, "nodes"]


RADIX = signature(RadixTree)
radix_at = tables_at(RADIX)


def radix_tree(
    pages: int, page: int = 1, policy: str = "lru", *, unified: bool = True, protected_hits: int = 2, threshold: int = 0,
    estimate: int = 0,
) -> RadixTree:  # fmt: skip
    """An empty tree over so many pages of KV memory.

    page            tokens of a page
    policy          which leaf is evicted first, one of POLICIES
    unified         the rules of UnifiedRadixCache, which sglang 0.5.23 uses; False: those of RadixCache
    protected_hits  slru: hits from which a node is protected
    threshold, estimate  tlru: tokens that may be prefilled within the time allowed, and tokens that a next prompt adds

    Raises PolicyError for another policy.  Source: sglang 0.5.23, srt/mem_cache/{radix_cache,evict_policy}.py and
    srt/mem_cache/unified_cache/unified_tree_core.py.
    """
    if policy not in POLICIES:
        hint = suggest(policy, POLICIES) or ", ".join(POLICIES)
        raise PolicyError(f"there is no radix eviction policy '{policy}'", hint=hint)
    if policy == "tlru" and not unified:
        raise PolicyError("tlru needs the unified radix cache: RadixCache keeps no lengths of branches")
    nodes = pages + 2
    tree = filled(RadixTree, {"nodes": nodes, "pages": max(pages, 1), "table": 1 << (2 * nodes - 1).bit_length()})
    head = tree.tree[0]
    head["page"], head["policy"], head["unified"] = page, POLICIES.index(policy), unified
    head["protected_hits"], head["threshold"], head["estimate"] = protected_hits, threshold, estimate
    clear(tree)
    return tree


def clear(tree: RadixTree) -> None:
    """Empty the tree; what it knew of pages and nodes is lost."""
    head, nodes = tree.tree[0], tree.nodes
    for name in ("ticks", "evictable", "protected", "leaves", "matched"):
        head[name] = 0
    tree.table[:] = NONE
    nodes["parent"] = np.arange(1, nodes.size + 1)  # of a free node: the next free one
    nodes["parent"][-1] = NONE
    nodes["place"] = NONE
    for name, value in (("parent", NONE), ("first", NONE), ("last", NONE), ("locks", 1), ("priority", LEAST)):
        nodes[ROOT][name] = value
    for name in ("pages", "children", "accessed", "created", "hits", "depth", "history"):
        nodes[ROOT][name] = 0
    head["free"] = ROOT + 1


@kernel
def tick(t: RadixTree) -> int:
    """A time later than all before."""
    t.tree[0].ticks += 1
    return int(t.tree[0].ticks << DEEPEST)


@kernel
def rank(t: RadixTree, n: int) -> int:
    """What the policy compares before the time of the last access."""
    h, node = t.tree[0], t.nodes[n]
    if h.policy == LFU:
        return int(node.hits)
    if h.policy == FIFO:
        return int(node.created)
    if h.policy == MRU:
        return int(-node.accessed)
    if h.policy == FILO:
        return int(-node.created)
    if h.policy == SLRU:
        return int(node.hits >= h.protected_hits)
    if h.policy == PRIORITY:
        return int(node.priority)
    if h.policy == TLRU:
        needed = max(node.history + h.estimate - h.threshold, 0)
        return -1 if node.depth - node.pages * h.page >= needed else 0
    return 0


@kernel
def before(t: RadixTree, a: int, b: int) -> bool:
    x, y = t.nodes[a], t.nodes[b]
    return bool(x.key < y.key or (x.key == y.key and x.accessed < y.accessed))


@kernel
def put(t: RadixTree, i: int, n: int) -> None:
    t.heap[i] = n
    t.nodes[n].place = i


@outlined
def settle(t: RadixTree, n: int) -> None:
    """A leaf of the heap goes to where its key belongs."""
    t.nodes[n].key = rank(t, n)
    i, count = t.nodes[n].place, t.tree[0].leaves
    while i > 0 and before(t, n, t.heap[(i - 1) >> 1]):
        put(t, i, t.heap[(i - 1) >> 1])
        i = (i - 1) >> 1
    child = 2 * i + 1
    while child < count:
        if child + 1 < count and before(t, t.heap[child + 1], t.heap[child]):
            child += 1
        if not before(t, t.heap[child], n):
            break
        put(t, i, t.heap[child])
        i, child = child, 2 * child + 1
    put(t, i, n)


@outlined
def review(t: RadixTree, n: int) -> None:
    """A node is in the heap exactly when it may be evicted: no children, no locks."""
    node = t.nodes[n]
    evictable = node.locks == 0 and node.children == 0
    if evictable and node.place == NONE:
        node.place = t.tree[0].leaves
        t.tree[0].leaves += 1
        settle(t, n)
    elif not evictable and node.place != NONE:
        i = node.place
        node.place = NONE
        t.tree[0].leaves -= 1
        last = t.heap[t.tree[0].leaves]
        if last != n:
            put(t, i, last)
            settle(t, last)


@kernel
def touch(t: RadixTree, n: int, time: int) -> None:
    """The node was accessed at this time."""
    t.nodes[n].accessed = time
    if t.nodes[n].place != NONE:
        settle(t, n)


@kernel
def home(t: RadixTree, parent: int, space: int, symbol: int) -> int:
    """Where the search for a child begins."""
    x = (int(symbol) * 0x1E3779B97F4A7C15 + int(parent) * 0x42B2AE3D27D4EB4F + int(space) * 0x2545F4914F6CDD1D) & MASK
    x ^= x >> 29
    x = (x * 0x3F58476D1CE4E5B9) & MASK
    return (x ^ (x >> 32)) & (t.table.size - 1)


@kernel
def home_of(t: RadixTree, n: int) -> int:
    node = t.nodes[n]
    return home(t, node.parent, node.space, t.pages[node.first].symbol)


@outlined
def find(t: RadixTree, parent: int, space: int, symbol: int) -> int:
    """The child of this node whose run begins with this page, NONE without one."""
    i = home(t, parent, space, symbol)
    while t.table[i] != NONE:
        n = t.table[i]
        if t.nodes[n].parent == parent and t.pages[t.nodes[n].first].symbol == symbol and t.nodes[n].space == space:
            return int(n)
        i = (i + 1) & (t.table.size - 1)
    return NONE


@outlined
def enter(t: RadixTree, n: int) -> None:
    """A node can be found from its parent."""
    i = home_of(t, n)
    while t.table[i] != NONE:
        i = (i + 1) & (t.table.size - 1)
    t.table[i] = n


@outlined
def strike(t: RadixTree, n: int) -> None:
    """A node can no longer be found; those behind it in the table close the gap."""
    mask = t.table.size - 1
    i = home_of(t, n)
    while t.table[i] != n:
        i = (i + 1) & mask
    j = i
    while True:
        j = (j + 1) & mask
        if t.table[j] == NONE:
            break
        wanted = home_of(t, t.table[j])
        if ((j - wanted) & mask) >= ((j - i) & mask):
            t.table[i] = t.table[j]
            i = j
    t.table[i] = NONE
