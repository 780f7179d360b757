"""The links that a collective's bytes pass, and how often, by algorithm: a ring, a tree, or switches that reduce.

All counts are for one unit of bytes, so that a collective is one flow that passes a link as often as it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from gpusim.machine.collectives.nccl_constants import Algorithm
from gpusim.machine.collectives.search import CollectiveGraph
from gpusim.machine.topology import routes
from gpusim.machine.topology.routes import TransferRoute
from gpusim.machine.topology.topology import Topology

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "barrier"]
Pair = tuple[str, str]


@dataclass
class Passed:
    """Bytes of a unit, and how often a unit goes from one GPU to another (`hops`) or over a port to an NVSwitch (`ports`)."""

    unit: float
    hops: Counter[Pair] = field(default_factory=Counter)
    ports: Counter[str] = field(default_factory=Counter)


@dataclass
class Ways:
    """Routes of a machine, each looked up once."""

    machine: Topology
    known: dict[Pair, TransferRoute] = field(default_factory=dict)

    def route(self, pair: Pair) -> TransferRoute:
        if pair not in self.known:
            self.known[pair] = routes.between(self.machine, *pair)
        return self.known[pair]


def ring(graph: CollectiveGraph, kind: Kind, size: float) -> Passed:
    """n GPUs pass n-1 of n parts on, twice where they reduce and gather; a broadcast passes all of it on n-1 times."""
    n = graph.ranks
    share = {"all_reduce": 2 * (n - 1) / n, "barrier": 2 * (n - 1) / n, "broadcast": 1.0, "reduce": 1.0}.get(kind, (n - 1) / n)
    found = Passed(size * share / graph.ring.count)
    for channel in range(graph.ring.count):
        path = [gpu for node in graph.path(channel) for gpu in node]
        around = list(zip(path, [*path[1:], path[0]], strict=True))
        found.hops.update(around[:-1] if kind in ("broadcast", "reduce") else around)
    return found


def tree(graph: CollectiveGraph, size: float) -> Passed:
    """Bytes go up to the root and down again: along a chain on each node, and between the nodes' first GPUs by two trees."""
    found = Passed(size / graph.tree.count / 2)
    for channel in range(graph.tree.count):
        nodes = graph.path(channel)
        for node in nodes:
            for a, b in pairwise(node):
                found.hops += Counter({(a, b): 2, (b, a): 2})
        _join(found, [node[0] for node in nodes])
    return found


def switches(graph: CollectiveGraph, kind: Kind, size: float) -> Passed:
    """NVLS: of its part a head lets the switch read all GPUs', and lets it write the sum to all; nodes are joined by trees."""
    heads = graph.nvls.count if graph.nvls else 0
    found = Passed(size / heads / 2)
    for node in graph.nodes:
        for i, gpu in enumerate(node):
            port = next(link for link in graph.machine.neighbours[gpu] if graph.machine.nodes[link.b].kind == "nvswitch")
            own = int(i < heads)  # a head sends its part of the sum, and receives it
            out = {"all_gather": own, "reduce_scatter": heads}.get(kind, heads + own)
            back = {"all_gather": heads, "reduce_scatter": own}.get(kind, heads + own)
            found.ports += Counter({port.name: 2 * out, f"{port.b}>{port.a}": 2 * back})
    for head in range(heads):
        _join(found, [node[head] for node in graph.nodes])
    return found


def _join(found: Passed, gpus: Sequence[str]) -> None:
    """A GPU of each node sends up and down: half of the bytes along each of the two trees."""
    for second in (0, 1):
        for child, parent in branches(len(gpus), second):
            a, b = gpus[child], gpus[parent]
            found.hops.update([(a, b), (b, a)])


def pairs(gpus: Sequence[str], size: float) -> Passed:
    """Each sends a part to each other."""
    found = Passed(size / len(gpus))
    found.hops.update((a, b) for a in gpus for b in gpus if a != b)
    return found


def branches(count: int, second: int) -> Iterator[tuple[int, int]]:
    """(child, parent) of a binary tree over nodes 0..count-1; the second tree has the first one's leaves inside.

    Source: src/graph/trees.cc of github.com/NVIDIA/nccl (Apache-2.0).
    """

    def renamed(i: int) -> int:
        if not second:
            return i
        return count - 1 - i if count % 2 == 0 else (i + 1) % count

    for i in range(1, count):
        bit = i & -i
        up = (i ^ bit) | (bit << 1)
        yield renamed(i), renamed(up if up < count else i ^ bit)


def passed(graph: CollectiveGraph, kind: Kind, algorithm: Algorithm | None, gpus: Sequence[str], size: float) -> Passed:
    """Of a collective by this algorithm; None: it has none, each GPU sends to the others."""
    if kind == "send":
        return Passed(size, Counter({(gpus[0], gpus[1]): 1}))
    if kind == "all_to_all" or algorithm is None:
        return pairs(gpus, size)
    if algorithm == "Tree":
        return tree(graph, size)
    if algorithm in ("NVLS", "NVLSTree"):
        return switches(graph, kind, size)
    return ring(graph, kind, size)
