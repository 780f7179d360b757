"""Which storage of the pool leaves: the smallest h; among equals the last in pool order, among zeros the first."""

from __future__ import annotations

from math import inf

from gpusim.base.compiled import kernel
from gpusim.policies.plan.parts.recompute.heuristics import DTR, DTR_EQ, DTR_LOCAL, LRU, MSPS, RAND, SIZE
from gpusim.policies.plan.parts.recompute.problem import CHILD, PARENT
from gpusim.policies.plan.parts.recompute.state import RecomputeTables

PRIME = 2**31 - 1  # of the generator
SPLIT = 2.0**27 + 1
NEAR = 2.0**-50  # what plain division may be off, as a share, and more


@kernel
def append(run: RecomputeTables, s: int) -> None:
    c = run.control[0]
    if c.pool_end == run.pool.size:
        tidy(run)
    run.pool[c.pool_end] = s
    run.storages[s].slot = c.pool_end
    c.pool_end += 1
    c.pool_count += 1


@kernel
def remove(run: RecomputeTables, s: int) -> None:
    c, storage = run.control[0], run.storages[s]
    if storage.slot >= 0:
        run.pool[storage.slot] = -1
        storage.slot = -1
        c.pool_count -= 1


@kernel
def tidy(run: RecomputeTables) -> None:
    """Close the gaps; the order stays."""
    c = run.control[0]
    n = 0
    for k in range(c.pool_end):
        s = run.pool[k]
        if s >= 0:
            run.pool[n] = s
            run.storages[s].slot = n
            n += 1
    c.pool_end = n


@kernel
def choose(run: RecomputeTables) -> int:
    """The victim; the pool is not empty."""
    c = run.control[0]
    if c.pool_end > 2 * c.pool_count or c.heuristic == RAND:
        tidy(run)
    if c.heuristic == RAND:
        c.dice = c.dice * 48271 % PRIME
        return run.pool[c.dice % c.pool_count]
    by_size = c.heuristic != LRU
    by_age = c.heuristic == DTR or c.heuristic == DTR_EQ or c.heuristic == DTR_LOCAL
    best, victim = inf, -1
    for k in range(c.pool_end):
        s = run.pool[k]
        if s < 0:
            continue
        above = float(_cost(run, s))
        size = float(run.storages[s].size) if by_size else 1.0
        age = float(c.clock - run.storages[s].last) if by_age else 1.0
        below = size * age
        h = above / below if below > 0 else inf
        if h <= best + NEAR * abs(best):
            h = quotient(above, size, age)
            if h <= best:
                best, victim = h, s
            if h == 0:
                return s
    return victim


@kernel
def quotient(n: float, a: float, b: float) -> float:
    """n / (a b) rounded once, as of whole numbers: what rounding the product and the quotient loses is made up for."""
    p = a * b
    if p == 0:
        return inf
    q = n / p
    r = q * p
    return q + ((n - r) - _lost(q, p, r) - q * _lost(a, b, p)) / p


@kernel
def _lost(a: float, b: float, p: float) -> float:
    """a b - p exactly, where p is a b rounded (T. J. Dekker, Numerische Mathematik 18, 1971)."""
    x, y = a * SPLIT, b * SPLIT
    ah, bh = x - (x - a), y - (y - b)
    al, bl = a - ah, b - bh
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl


@kernel
def _cost(run: RecomputeTables, s: int) -> int:
    """The numerator of h: what it costs to have the storage again, as the heuristic reckons."""
    c = run.control[0]
    if c.heuristic == LRU:
        return run.storages[s].last
    if c.heuristic == SIZE:
        return 1
    cost = run.storages[s].cost
    if c.heuristic == DTR_EQ:
        cost += _classes_beside(run, s)
    elif c.heuristic == MSPS:
        cost += _beyond(run, s, PARENT)
    elif c.heuristic == DTR:
        cost += _beyond(run, s, PARENT) + _beyond(run, s, CHILD)
    return cost


@kernel
def _classes_beside(run: RecomputeTables, s: int) -> int:
    """The values of the distinct classes of evicted neighbours."""
    c = run.control[0]
    c.stamp += 1
    total = 0
    for e in range(run.near_start[s], run.near_start[s + 1]):
        if run.near_since[e] > c.created:
            break
        other = run.storages[run.near_id[e]]
        if other.material == 0:
            beside = run.classes[other.label]
            if beside.seen != c.stamp:
                beside.seen = c.stamp
                total += beside.value
    return total


@kernel
def _beyond(run: RecomputeTables, s: int, way: int) -> int:
    """The cost of the evicted storages that a chain of evicted storages leads to, over parents or over children."""
    c = run.control[0]
    c.stamp += 1
    run.storages[s].seen = c.stamp
    run.open[0] = s
    n, total = 1, 0
    while n > 0:
        n -= 1
        at = run.open[n]
        for e in range(run.near_start[at], run.near_start[at + 1]):
            if run.near_since[e] > c.created:
                break
            other = run.storages[run.near_id[e]]
            if run.near_way[e] & way and other.material == 0 and other.seen != c.stamp:
                other.seen = c.stamp
                total += other.cost
                run.open[n] = run.near_id[e]
                n += 1
    return total
