"""Jobs that wait, so that the best of those that find a place is at hand however many wait."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from gpusim.policies.cluster_view import ClusterView
from gpusim.policies.clusters import Decision

Key = Callable[[ClusterView, int], float]
_Alike = tuple[object, ...]


class JobQueues:
    """A heap for each kind of demand: jobs that want the same GPUs find a place where the first of them does.

    key   the lowest goes first, of equal ones the oldest
    fill  whether others may go before the first where it finds no place
    rule  of `ClusterView.place`
    """

    def __init__(self, key: Key, fill: bool, rule: str = "best") -> None:
        self._key, self._fill, self._rule = key, fill, rule
        self._heaps: dict[_Alike, list[tuple[float, int]]] = {}

    def arrived(self, view: ClusterView, job: int) -> None:
        """The job waits, new or stopped."""
        heapq.heappush(self._heaps.setdefault(view.demand(job), []), (self._key(view, job), job))

    def first(self) -> int | None:
        """The job that goes first; None: none waits."""
        return min((heap[0] for heap in self._heaps.values()), default=(0.0, None))[1]

    def place(self, view: ClusterView) -> Decision:
        """The best job that finds a place, or the first alone."""
        for (_, job), alike in sorted((heap[0], alike) for alike, heap in self._heaps.items()):
            if gpus := view.place(job, self._rule):
                heapq.heappop(self._heaps[alike])
                if not self._heaps[alike]:
                    del self._heaps[alike]
                return job, gpus
            if not self._fill:
                break
        return None
