"""Groups that exchange most have the best links."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import isclose

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.policies.placement.packed import packed
from gpusim.policies.placement.spread import spread
from gpusim.policies.placing import PlacementEstimate, PlacementView

_NO_WAY = PlacementEstimate(float("inf"), float("inf"), float("inf"))


def by_topology(view: PlacementView, tries: int = 4000, starts: int = 10) -> list[str]:
    """Groups that exchange most have the best links: the shortest estimate of the program's time that a search finds.

    tries   placements that are tried at most
    starts  where the search begins: packed, spread, then GPUs of each host in random orders

    From each start two ranks are exchanged, or a rank's GPU for a free one, each time the best of all such steps, as long as
    that makes the estimate shorter (`PlacementView.estimate`: exchanges on shared links, and kernels beside those that have
    streams of their own).  Of equal estimates the exchanges for which kernels wait decide, then the others; of equal
    placements the first is taken.

    Source: local search for process mapping by pairwise exchange: C. Schulz, J. L. Träff, "Better process mapping and sparse
    quadratic assignment", SEA 2017.
    """
    left = tries

    def cost(gpus: list[str]) -> PlacementEstimate:
        nonlocal left
        left -= 1
        try:
            return view.estimate(gpus)
        except GpusimError:  # a collective cannot be among these
            return _NO_WAY

    found, best = packed(view), cost(packed(view))
    for begin in _starts(view, starts):
        here, ns, better = begin, cost(begin), True
        while better and left > 0:
            better = False
            for step in _steps(view, here):
                if left > 0 and _shorter(now := cost(step), ns):
                    following, ns, better = step, now, True
            here = following if better else here
        if _shorter(ns, best):
            found, best = here, ns
        if left <= 0:
            break
    return found


def _starts(view: PlacementView, count: int) -> Iterator[list[str]]:
    """Packed, spread, and packed with the GPUs of each host in another order."""
    rng, hosts = np.random.default_rng(0), dict.fromkeys(view.machine.host[gpu] for gpu in view.gpus)
    yield from (packed(view), spread(view))[:count]
    for _ in range(count - 2):
        own = [[gpu for gpu in view.gpus if view.machine.host[gpu] == host] for host in hosts]
        yield [str(gpu) for of in own for gpu in rng.permutation(of)][: view.ranks]


def _steps(view: PlacementView, gpus: list[str]) -> Iterator[list[str]]:
    """Two ranks exchanged, or one on a free GPU."""
    for a, b in combinations(range(len(gpus)), 2):
        made = list(gpus)
        made[a], made[b] = gpus[b], gpus[a]
        yield made
    free = [gpu for gpu in view.gpus if gpu not in gpus]
    yield from ([*gpus[:rank], gpu, *gpus[rank + 1 :]] for rank in range(len(gpus)) for gpu in free)


def _shorter(one: PlacementEstimate, other: PlacementEstimate) -> bool:
    """By more than rounding, in the first of the times that differ."""
    differ = ((a, b) for a, b in zip(one, other, strict=True) if not isclose(a, b))
    return next((a < b for a, b in differ), False)
