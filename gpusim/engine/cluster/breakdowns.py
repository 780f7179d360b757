"""Which nodes of a cluster fail, when, and when each is back.

What fails does not depend on what runs, so all schedulers meet the same failures: nodes fail whether they are in use or not,
and a node that is away does not.  Where a spare node of its size and type stands by, it is in the place of a failed one as soon
as the failure is noticed; what is repaired goes to the place that has been empty longest, or stands by.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusim.policies.clusters import ClusterNode, ClusterSpec

ALL, WITHIN, BEYOND = "all", "within", "beyond"  # jobs on a node: all, those with several GPUs there, those on several nodes


@dataclass(frozen=True, kw_only=True)
class ClusterFailure:
    """What fails at random; times in s, rates in 1/s.

    rates    of a node, by its number of GPUs: those of all its components
    of_jobs  of each job that runs, in place of nodes
    one_gpu  it strikes one GPU of the node, and the jobs on it; else the node and all jobs there
    leaves   the node is away until it is repaired; else the program dies and its nodes stay
    group    nodes that fail together, the first of them a multiple of their number
    speed    what jobs that it reaches keep of their pace, for `lasts`
    reach    which jobs on the node it reaches: ALL, WITHIN, BEYOND
    kills    their programs die
    bytes    of a GPU's memory that are retired; the jobs there die where they have no room any more
    """

    name: str
    rates: Mapping[int, float] = field(default_factory=dict)
    of_jobs: float = 0.0
    one_gpu: bool = False
    leaves: bool = True
    group: int = 1
    detect: float = 0.0
    repair: float = math.inf
    speed: float = 1.0
    lasts: float = 0.0
    reach: str = ALL
    kills: bool = True
    bytes: float = 0.0


class ToldBreakdown(NamedTuple):
    """Of a log: when, s; number of the kind; node."""

    at: float
    kind: int
    node: int


class NodeBreakdown(NamedTuple):
    """What happens to a node: it fails, of a kind by number and on one GPU (-1: on all), or is back (kind -1)."""

    node: int
    kind: int = -1
    gpu: int = -1


class Breakdowns:
    """The failures of one run, drawn one after the other.

    spares  nodes that stand by for all jobs
    at      when the next thing happens, s; `happen` carries it out
    """

    def __init__(
        self, cluster: ClusterSpec, kinds: Sequence[ClusterFailure], *, spares: Sequence[ClusterNode] = (), seed: int = 0,
        told: Sequence[ToldBreakdown] = (), begin: float = 0.0,
    ) -> None:  # fmt: skip
        self.kinds, self._nodes = tuple(kinds), cluster.nodes
        self._draws = random.Random(seed)
        self._told = deque(told)
        self._first: list[int] = []
        gpus = 0
        for node in cluster.nodes:
            self._first.append(gpus)
            gpus += node.gpus
        self._spares: dict[ClusterNode, int] = {}
        for node in spares:
            self._spares[node] = self._spares.get(node, 0) + 1
        self._up = [True] * len(cluster.nodes)
        self._missing: dict[ClusterNode, deque[tuple[int, float]]] = {}  # nodes without another in their place, not before
        self._coming: list[tuple[float, int, int, ClusterNode]] = []  # when, order, the node that is back; -1: one is repaired
        self._order = 0
        self._rates = [[kind.rates.get(node.gpus, 0.0) for kind in kinds] for node in cluster.nodes]
        self._each = [sum(row) for row in self._rates]
        self._total = sum(self._each)
        self._now, self._left = begin, self._draws.expovariate(1.0)
        self.at = self._next()

    def rate(self, nodes: Mapping[int, int]) -> float:
        """1/s: of failures of a job with so many GPUs on each of these nodes."""
        found = math.fsum(kind.of_jobs for kind in self.kinds)
        for number, kind in enumerate(self.kinds):
            if not kind.kills or (kind.reach == BEYOND and len(nodes) == 1):
                continue
            groups = {node // kind.group: node for node in nodes}
            for node in groups.values():
                strikes = nodes[node] / self._nodes[node].gpus if kind.one_gpu and not kind.leaves else float(kind.group)
                found += self._rates[node][number] * strikes
        return found

    @property
    def coming(self) -> bool:
        """Whether a node is to be back, or at once in its place."""
        return bool(self._coming)

    def _next(self) -> float:
        drawn = self._now + self._left / self._total if self._total > 0.0 else math.inf
        return min(drawn, self._told[0].at if self._told else math.inf, self._coming[0][0] if self._coming else math.inf)

    def happen(self) -> list[NodeBreakdown]:
        """What happens at `at`: a node is back, or one fails, or all of a group."""
        now = self.at
        self._left -= (now - self._now) * self._total
        self._now = now
        found: list[NodeBreakdown] = []
        if self._coming and self._coming[0][0] <= now:
            found = self._back(now)
        elif self._told and self._told[0].at <= now:
            _, kind, node = self._told.popleft()
            found = self._fails(now, kind, node)
        else:
            node, kind = self._drawn()
            self._left = self._draws.expovariate(1.0)
            found = self._fails(now, kind, node)
        self._total = math.fsum(each for each, up in zip(self._each, self._up, strict=True) if up)
        self.at = self._next()
        return found

    def _drawn(self) -> tuple[int, int]:
        """(node, kind), each as likely as its rate says."""
        up = [node for node, there in enumerate(self._up) if there]
        node = self._draws.choices(up, [self._each[each] for each in up])[0]
        return node, self._draws.choices(range(len(self.kinds)), self._rates[node])[0]

    def _fails(self, now: float, number: int, node: int) -> list[NodeBreakdown]:
        kind = self.kinds[number]
        if not self._up[node]:
            return []
        if not kind.leaves:
            gpu = self._first[node] + self._draws.randrange(self._nodes[node].gpus) if kind.one_gpu else -1
            return [NodeBreakdown(node, number, gpu)]
        first = node // kind.group * kind.group
        found = []
        for each in range(first, min(first + kind.group, len(self._nodes))):
            if self._up[each]:
                self._up[each] = False
                self._replace(now, kind, each)
                found.append(NodeBreakdown(each, number))
        return found

    def _replace(self, now: float, kind: ClusterFailure, node: int) -> None:
        like = self._nodes[node]
        if self._spares.get(like, 0):
            self._spares[like] -= 1
            self._push(now + kind.detect, node, like)
        else:
            self._missing.setdefault(like, deque()).append((node, now + kind.detect))
        if kind.repair < math.inf:
            self._push(now + max(kind.repair, kind.detect), -1, like)

    def _push(self, when: float, node: int, like: ClusterNode) -> None:
        self._order += 1
        heapq.heappush(self._coming, (when, self._order, node, like))

    def _back(self, now: float) -> list[NodeBreakdown]:
        _, _, node, like = heapq.heappop(self._coming)
        if node < 0:
            if not self._missing.get(like):
                self._spares[like] = self._spares.get(like, 0) + 1
                return []
            node, earliest = self._missing[like].popleft()
            if earliest > now:
                self._push(earliest, node, like)
                return []
        self._up[node] = True
        return [NodeBreakdown(node)]
