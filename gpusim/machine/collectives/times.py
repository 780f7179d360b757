"""The time of a collective on given GPUs: a latency, and one flow over all links that its bytes pass.

NCCL's estimate chooses algorithm and protocol; the time is that of the links, of which collectives reach a calibrated share.
Two protocols send more than the message: LL as many flags as data, LL128 8 bytes of flags in 128.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import floor, gcd, inf, log2

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.collectives import fabrics, nccl, passes
from gpusim.machine.collectives.fabrics import CollectiveFabric
from gpusim.machine.collectives.nccl import LatencyParts
from gpusim.machine.collectives.nccl_constants import Algorithm, Collective, Protocol
from gpusim.machine.collectives.passes import Kind, Passed, Ways
from gpusim.machine.collectives.search import CollectiveGraph, search
from gpusim.machine.topology import transfers
from gpusim.machine.topology.topology import DIRECT, Topology
from gpusim.machine.topology.transfers import LinkFlow

WIRE: dict[Protocol, float] = {"LL": 2.0, "LL128": 128 / 120, "Simple": 1.0}
"""Bytes on a link for each byte of the message."""
_NCCL: dict[str, Collective] = {
    "all_reduce": "AllReduce", "barrier": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast", "reduce": "Reduce",
}  # fmt: skip
KINDS: tuple[Kind, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send", "barrier",
)  # fmt: skip
TOKEN = 4
"""Bytes of a barrier, which is an all-reduce of one number."""
CHUNK = 1 << 19
"""Bytes of a channel's step in a ring: an eighth of its buffer of 4 MiB."""
SMALL_SEND = 16384
"""Bytes up to which a send uses LL (NCCL_P2P_LL_THRESHOLD)."""


@dataclass(frozen=True)
class CollectiveTime:
    """A collective alone on its links.

    flow       what a Meeting of the engine is made of
    algorithm, protocol   as NCCL's estimate chooses; a send and an all-to-all have no algorithm
    blocks     multiprocessors that it takes from each GPU
    ns         how long it takes while nothing else uses its links
    estimate   ns that NCCL itself expects; None: it estimates no such collective
    spread     between which multiples of `ns` eight of ten measured times are
    """

    flow: LinkFlow
    algorithm: Algorithm | None
    protocol: Protocol
    blocks: int
    ns: float
    estimate: float | None
    spread: tuple[float, float]


@dataclass
class CollectiveTimes:
    """Times of collectives on a machine; graphs and routes are searched once.

    `fabrics`: by name, instead of the shipped ones.
    """

    machine: Topology
    fabrics: Mapping[str, CollectiveFabric] = field(default_factory=fabrics.shipped)

    def __post_init__(self) -> None:
        self._ways = Ways(self.machine)
        self._graphs: dict[tuple[str, ...], CollectiveGraph] = {}
        self._rates = transfers.rates(self.machine)
        self._kinds = {link.name: link.kind for link in self.machine.links.values()}

    def graph(self, gpus: Sequence[str]) -> CollectiveGraph:
        """The rings and trees of these GPUs.  Raises GpusimError as `search` does."""
        key = tuple(gpus)
        if key not in self._graphs:
            self._graphs[key] = search(self.machine, key)
        return self._graphs[key]

    def of(self, kind: Kind, gpus: Sequence[str], size: int) -> CollectiveTime:
        """The collective of so many bytes, which are those of `trace.exchanges`.

        Raises GpusimError for a kind that is none, for GPUs that have no such collective, and for a negative size.
        """
        if kind not in KINDS:
            raise GpusimError(f"'{kind}' is no collective", hint=suggest(kind, KINDS))
        if size < 0:
            raise GpusimError(f"a collective of {size} bytes does not exist")
        if kind == "send" and len(gpus) != 2:
            raise GpusimError(f"a send has two ends, not {len(gpus)}")
        size = TOKEN if kind == "barrier" else size
        return self._by_algorithm(kind, gpus, size) if kind in _NCCL else self._straight(kind, gpus, size)

    def alone(self, flow: LinkFlow) -> float:
        """ns of a flow that no other meets on its links."""
        return flow.latency + (flow.size / transfers.alone(flow, self._rates) if flow.size else 0.0)

    def _by_algorithm(self, kind: Kind, gpus: Sequence[str], size: int) -> CollectiveTime:
        """What NCCL has algorithms for."""
        graph, collective = self.graph(gpus), _NCCL[kind]
        who, told = graph.communicator, max(1, size)
        way = nccl.choice(who, collective, told)
        parts = nccl.latency_parts(who, collective, way.algorithm, way.protocol)
        found = passes.passed(graph, kind, way.algorithm, gpus, size)
        found.first = self._first(graph, kind, way.algorithm, size) * found.unit / told
        limit = nccl.most(who, collective, way) * found.unit / told if way.algorithm in ("Ring", "Tree") else inf
        flow = self._flow(graph, found, parts, limit, way.algorithm, way.protocol)
        return CollectiveTime(
            flow, way.algorithm, way.protocol, graph.blocks(way.algorithm, way.protocol, size), self.alone(flow),
            1e3 * nccl.time(who, collective, way, told), fabrics.spread(size),
        )  # fmt: skip

    def _first(self, graph: CollectiveGraph, kind: Kind, algorithm: Algorithm, size: int) -> float:
        """Bytes of the message that pass a link before the last GPU has any: chunks go from GPU to GPU, one after the other."""
        if algorithm in ("NVLS", "NVLSTree"):
            stages = 1 + 2 * floor(log2(len(graph.nodes)))
            return stages * min(size / 2, self.fabrics[self._inside(graph)].chunk)
        if algorithm == "Ring" and kind in ("broadcast", "reduce"):
            return (graph.ranks - 2) * min(size, CHUNK * graph.channels)
        return 0.0

    def _straight(self, kind: Kind, gpus: Sequence[str], size: int) -> CollectiveTime:
        """A send or an all-to-all: each GPU sends to the others in one step, in both protocols as a ring's step."""
        graph = self.graph(gpus)
        part = size / len(gpus) if kind == "all_to_all" else size
        protocol: Protocol = "LL" if part <= SMALL_SEND else "Simple"
        two = replace(graph.communicator, nodes=min(2, len(graph.nodes)), ranks_per_node=2 if len(graph.nodes) == 1 else 1)
        parts = nccl.latency_parts(two, "AllGather", "Ring", protocol)
        flow = self._flow(graph, passes.passed(graph, kind, None, gpus, size), parts, inf, None, protocol)
        blocks = graph.blocks("Ring", protocol, size)
        return CollectiveTime(flow, None, protocol, blocks, self.alone(flow), None, fabrics.spread(size))

    def _flow(
        self, graph: CollectiveGraph, found: Passed, parts: LatencyParts, limit: float, algorithm: Algorithm | None,
        protocol: Protocol,
    ) -> LinkFlow:  # fmt: skip
        """The flow of what passes; its rate is the least that any of its links, or `limit`, allow."""
        links, rate = self._links(graph, found, algorithm)
        size, rate = found.unit * WIRE[protocol], min(rate, limit * WIRE[protocol])
        if size:
            rate *= found.unit / (found.unit + found.first)
        latency = self._latency(graph, parts, protocol == "LL" or algorithm is None)
        most = gcd(*links.values())  # as large a unit as there is: links stand in the flow as often as it passes them
        return LinkFlow(latency, size * most, rate * most, tuple(name for name, n in links.items() for _ in range(n // most)))

    def _links(self, graph: CollectiveGraph, found: Passed, algorithm: Algorithm | None) -> tuple[Counter[str], float]:
        """How often a unit passes each link, and the units/ns that they allow."""
        links: Counter[str] = Counter()
        rate, inside = inf, self.fabrics[fabrics.generation(self.machine)]
        for pair, times in found.hops.items():
            route = self._ways.route(pair)
            fabric = self.fabrics[fabrics.fabric_of(self.machine, route, self.fabrics)]
            rate = min(rate, _share(fabric, algorithm, graph.ranks) * route.rate / 1e9 / times)
            for leg in route.legs:
                links.update({name: times * n for name, n in Counter(transfers.passed(self.machine, leg)).items()})
        links.update(found.ports)
        for name, times in links.items():
            share = _share(inside, algorithm, graph.ranks) if self._kinds.get(name) in DIRECT else 1.0
            rate = min(rate, (inside.reduced if name in found.ports else share) * self._rates[name] / times)
        return links, rate

    def _latency(self, graph: CollectiveGraph, parts: LatencyParts, quick: bool) -> float:
        """ns from the start to the first byte; `quick`: in LL, or of a single step."""
        inside = self.fabrics[self._inside(graph)]
        between = self.fabrics[fabrics.of_network(self.machine, self.fabrics)]
        if quick:
            return 1e3 * (parts.base + inside.quick * parts.within + between.quick * parts.between)
        return 1e3 * (inside.wait * (parts.base + parts.within) + between.wait * parts.between)

    def _inside(self, graph: CollectiveGraph) -> str:
        """The fabric of the steps within the nodes."""
        if graph.nvlink:
            return fabrics.generation(self.machine)
        node = graph.nodes[0]
        names = {fabrics.fabric_of(self.machine, self._ways.route(pair), self.fabrics) for pair in pairwise(node)}
        return "host" if "host" in names else "pcie"


def _share(fabric: CollectiveFabric, algorithm: Algorithm | None, ranks: int) -> float:
    """Of a link's rate that a collective by this algorithm reaches."""
    if algorithm is None:
        return fabric.straight
    return fabric.pair if ranks == 2 and fabric.pair else fabric.share
