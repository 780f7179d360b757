"""Is there a plan within this capacity?  An exact search, limited by the number of nodes it may visit.

In some plan nothing can be lowered, so every buffer lies on the floor or on a buffer that shares a section with it.  The
search builds such plans upwards.  Each section has a *floor*, below which nothing more is placed.  Where the floor is a
*valley* (sections of one height between higher ones), a node picks a section of it and chooses what is next there: one of the
buffers that lie on this floor and fit between the walls, or none at this height; then the floor rises to the next height
at which anything could lie.  These cases exclude each other, so that no plan is met twice.

A branch ends when
    a section's floor and the buffers that it still needs exceed the capacity (section inference),
    a buffer would fit below the floor, under all that is still to come: then some other plan is lower (dominance),
    nothing can be next in a section, or
    the same buffers, with the same heights to lie at, were searched before.
Buffers that no longer share sections, even in a chain, are searched on their own; when one group fails, so does the
choice that cut it off, whatever the others' plans were.  Buffers that are the same in all take turns in one order.

Source: M. D. Moffitt, "MiniMalloc: a lightweight memory allocator for hardware-accelerated machine learning", ASPLOS 2023
(canonical plans, section inference, dominance, decomposition).  Valleys, their choice by fewest options, and the memory
of failures are ours; the first follows the skyline packing of E. K. Burke et al., Operations Research 52 (2004).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import entry, kernel
from gpusim.policies.place.parts.packing.board import (
    DONE,
    G_END,
    G_FIRST,
    G_FROM,
    G_NEXT,
    G_PARENT,
    G_TO,
    N_FORCED,
    N_GROUP,
    N_GROUPS,
    N_KEY,
    N_MEMBERS,
    N_RISE,
    N_SECTION,
    N_TRIED,
    NO_BUFFER,
    Board,
    board,
    fits,
    key_of,
    lie,
    measure,
)
from gpusim.policies.place.parts.packing.buffers import I64, Buffers
from gpusim.policies.place.parts.packing.valleys import beneath, pick

FOUND, NONE, LIMIT = 1, -1, 0  # what a search answers


def search(buffers: Buffers, capacity: int, order: I64, rule: int, nodes: int) -> tuple[int, I64, int]:
    """(FOUND, NONE or LIMIT; offsets if found; nodes visited).  `order` ranks the buffers, all of size > 0, best first."""
    b = board(buffers.take(order))
    answer, visited = _search(b, capacity, rule, nodes)
    offset = np.empty_like(b.offset)
    offset[order] = b.offset
    return int(answer), offset, int(visited)


@kernel
def _open(b: Board, d: int, group: int, capacity: int, rule: int) -> None:
    """Make node d, which asks about the group; it has no options when the group cannot be placed."""
    g, node = b.group[group], b.node[d]
    node[N_SECTION], node[N_RISE], node[N_FORCED], node[N_TRIED], node[N_KEY] = -1, -1, -1, -1, 0
    section, rise = -2, -1
    while section == -2:
        measure(b, g)
        for s in range(g[G_FIRST], g[G_END]):
            if b.need[s] > 0:
                b.floor[s] = max(b.floor[s], b.lowest[s, 0])
                if b.floor[s] + b.need[s] > capacity:
                    return
        forced = beneath(b, g)
        if forced == -2:
            return
        if forced >= 0:
            node[N_FORCED] = forced
            break
        section, rise = pick(b, g, capacity, rule)
    if section == -1:
        return
    key = key_of(b, g)
    if b.failed[key >> 44] == key:
        node[N_FORCED] = -1
        return
    node[N_SECTION], node[N_RISE], node[N_KEY] = section, rise, key
    for s in range(g[G_FIRST], g[G_END]):
        x = b.saved[d, s]
        x[0], x[1], x[2] = b.floor[s], b.top[s], b.need[s]


@kernel
def _back(b: Board, d: int) -> None:
    """Everything as node d found it."""
    g = b.group[b.node[d, N_GROUP]]
    for s in range(g[G_FIRST], g[G_END]):
        x = b.saved[d, s]
        b.floor[s], b.top[s], b.need[s] = x[0], x[1], x[2]
    for k in range(g[G_FROM], g[G_TO]):
        b.offset[b.members[k]] = -1


@kernel
def _option(b: Board, d: int) -> Any:
    """The next option of node d: a buffer, NO_BUFFER or DONE."""
    node = b.node[d]
    node[N_TRIED] += 1
    if node[N_FORCED] >= 0:
        return node[N_FORCED] if node[N_TRIED] == 0 else DONE
    section = node[N_SECTION]
    if section < 0:
        return DONE
    g = b.group[node[N_GROUP]]
    for k in range(g[G_FROM] + node[N_TRIED], g[G_TO]):
        i = b.members[k]
        if b.first[i] <= section < b.end[i] and lie(b, i) == b.floor[section] and fits(b, i):
            node[N_TRIED] = k - g[G_FROM]
            return i
    if node[N_TRIED] <= g[G_TO] - g[G_FROM] and node[N_RISE] >= 0:
        node[N_TRIED] = g[G_TO] - g[G_FROM] + 1
        return NO_BUFFER
    return DONE


@kernel
def _place(b: Board, i: int) -> None:
    """Buffer i lies on what is below it."""
    lie(b, i)
    b.offset[i] = b.support[i]
    for s in range(b.first[i], b.end[i]):
        b.floor[s] = b.top[s] = b.support[i] + b.size[i]
        b.need[s] -= b.size[i]


@kernel
def _split(b: Board, d: int, placed: int, groups: int, members: int) -> Any:
    """The group of node d without buffer `placed`, as groups that share no section: (next group, groups, members)."""
    g = b.group[b.node[d, N_GROUP]]
    head, lo, hi = g[G_NEXT], g[G_FIRST], g[G_END]
    b.spans[lo : hi + 1] = 0
    for k in range(g[G_FROM], g[G_TO]):
        i = b.members[k]
        if i != placed:
            b.spans[b.first[i] + 1] += 1
            b.spans[b.end[i]] -= 1
    start, across = lo, 0
    for s in range(lo + 1, hi + 1):
        across += b.spans[s]
        if across == 0:
            begin = members
            for k in range(g[G_FROM], g[G_TO]):
                i = b.members[k]
                if i != placed and start <= b.first[i] and b.end[i] <= s:
                    b.members[members] = i
                    members += 1
            if members > begin:
                x = b.group[groups]
                x[G_FIRST], x[G_END], x[G_FROM], x[G_TO], x[G_NEXT], x[G_PARENT] = start, s, begin, members, head, d
                head = groups
                groups += 1
            start = s
    return head, groups, members


@entry()
def _search(b: Board, capacity: int, rule: int, nodes: int) -> Any:
    n, d, head, groups, members, visited, new = len(b.size), 0, 0, 1, len(b.size), 0, True
    for i in range(n):
        b.members[i] = i
    x = b.group[0]
    x[G_FIRST], x[G_END], x[G_FROM], x[G_TO], x[G_NEXT], x[G_PARENT] = 0, len(b.need), 0, n, -1, -1
    while True:
        node = b.node[d]
        if new:
            if head < 0:
                return FOUND, visited
            visited += 1
            if visited > nodes or d + 2 > len(b.node):
                return LIMIT, visited
            node[N_GROUP], node[N_GROUPS], node[N_MEMBERS] = head, groups, members
            _open(b, d, head, capacity, rule)
        g = b.group[node[N_GROUP]]
        option = _option(b, d)
        if option == DONE:
            if node[N_KEY] != 0:
                b.failed[node[N_KEY] >> 44] = node[N_KEY]
            d, new = g[G_PARENT], False
            if d < 0:
                return NONE, visited
            _back(b, d)
            continue
        groups, members = node[N_GROUPS], node[N_MEMBERS]
        if option == NO_BUFFER:
            b.floor[node[N_SECTION]] = node[N_RISE]
            for k in range(G_PARENT):
                b.group[groups, k] = g[k]
            b.group[groups, G_PARENT] = d
            head, groups = groups, groups + 1
        else:
            _place(b, option)
            head, groups, members = _split(b, d, option, groups, members)
        d, new = d + 1, True
