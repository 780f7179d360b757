"""Evicted storages that hang together, as h_DTR^eq sees them: classes with a sum of costs, never split again.

The paper's union-find forest, without the forest: each member knows its class's label, and of two classes the smaller takes the
other's.  A recomputed member leaves; the others stay together, which is the paper's approximation of splitting.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.policies.plan.parts.recompute.state import RecomputeTables


@kernel
def found(run: RecomputeTables, s: int, value: int) -> None:
    """A new class of this storage alone."""
    c, storage = run.control[0], run.storages[s]
    c.labels -= 1
    label = run.classes[c.labels].unused
    storage.label, storage.next, storage.prev = label, s, s
    made = run.classes[label]
    made.value, made.members, made.first = value, 1, s


@kernel
def join(run: RecomputeTables, a: int, b: int) -> None:
    """The classes of two storages become one, whose value is the sum."""
    c = run.control[0]
    large, small = run.storages[a].label, run.storages[b].label
    if large == small:
        return
    if run.classes[large].members < run.classes[small].members:
        large, small = small, large
    keeps, gives = run.classes[large], run.classes[small]
    keeps.value += gives.value
    s = gives.first
    for _ in range(gives.members):
        run.storages[s].label = large
        s = run.storages[s].next
    x, y = keeps.first, gives.first  # two rings become one
    after, before = run.storages[x].next, run.storages[y].prev
    run.storages[x].next, run.storages[y].prev = y, x
    run.storages[before].next, run.storages[after].prev = after, before
    keeps.members += gives.members
    run.classes[c.labels].unused = small
    c.labels += 1


@kernel
def leave(run: RecomputeTables, s: int) -> None:
    """A storage is there again: its cost is taken from its class."""
    c, storage = run.control[0], run.storages[s]
    own = run.classes[storage.label]
    own.value -= storage.cost
    own.members -= 1
    if own.members == 0:
        run.classes[c.labels].unused = storage.label
        c.labels += 1
    else:
        own.first = storage.next
        run.storages[storage.prev].next = storage.next
        run.storages[storage.next].prev = storage.prev
