"""The time of a collective on given GPUs: a latency, and one flow over all links that its bytes pass.

NCCL's estimate chooses algorithm and protocol; the time is that of the links, of which collectives reach a calibrated share.
Two protocols send more than the message: LL as many flags as data, LL128 8 bytes of flags in 128.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor, inf, log2

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.collectives import fabrics, nccl, passes
from gpusim.machine.collectives.fabrics import CollectiveFabric
from gpusim.machine.collectives.nccl import LatencyParts
from gpusim.machine.collectives.nccl_constants import Algorithm, Collective, Protocol
from gpusim.machine.collectives.passes import Kind, Ways
from gpusim.machine.collectives.search import CollectiveGraph, search
from gpusim.machine.collectives.traffic import CollectiveTraffic, traffic
from gpusim.machine.topology import transfers
from gpusim.machine.topology.topology import Topology
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
SMALL_SEND = 16384
"""Bytes up to which a send uses LL (NCCL_P2P_LL_THRESHOLD)."""


@dataclass(frozen=True)
class CollectiveTime:
    """A collective alone on its links.

    flow       what a Meeting of the engine is made of
    algorithm, protocol   as NCCL's estimate chooses; a send and an all-to-all have no algorithm
    ns         how long it takes while nothing else uses its links
    estimate   ns that NCCL itself expects; None: it estimates no such collective
    spread     between which multiples of `ns` eight of ten measured times are
    """

    flow: LinkFlow
    algorithm: Algorithm | None
    protocol: Protocol
    ns: float
    estimate: float | None
    spread: tuple[float, float]

    @property
    def blocks(self) -> int:
        """Multiprocessors that it takes from each GPU."""
        return self.flow.blocks


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
        self._traffic: dict[tuple[tuple[str, ...], Kind, Algorithm | None], CollectiveTraffic] = {}
        self._rates = transfers.rates(self.machine)

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
        comm, told = graph.communicator, max(1, size)
        way = nccl.choice(comm, collective, told)
        parts = nccl.latency_parts(comm, collective, way.algorithm, way.protocol)
        limit = nccl.most(comm, collective, way) if way.algorithm in ("Ring", "Tree") else inf
        found = self._passing(kind, way.algorithm, gpus)
        rate = min(self._rate(found, kind, graph), limit * found.unit * WIRE[way.protocol])
        rate *= told / (told + self._first(graph, kind, way.algorithm, size))
        latency = self._latency(graph, parts, way.protocol == "LL")
        blocks = graph.blocks(way.algorithm, way.protocol, size)
        flow = LinkFlow(latency, size * found.unit * WIRE[way.protocol], rate, found.links, blocks)
        estimate = 1e3 * nccl.time(comm, collective, way, told)
        return CollectiveTime(flow, way.algorithm, way.protocol, self.alone(flow), estimate, fabrics.spread(size))

    def _first(self, graph: CollectiveGraph, kind: Kind, algorithm: Algorithm, size: int) -> float:
        """Bytes of the message that pass a link before the last GPU has any: chunks go from GPU to GPU, one after the other."""
        if algorithm in ("NVLS", "NVLSTree"):
            stages = 1 + 2 * floor(log2(len(graph.nodes)))
            return stages * min(size / 2, self.fabrics[self._inside(graph)].chunk)
        if algorithm == "Ring" and kind in ("broadcast", "reduce"):
            return (graph.ranks - 2) * min(size, self.fabrics[self._inside(graph)].relay)
        return 0.0

    def _straight(self, kind: Kind, gpus: Sequence[str], size: int) -> CollectiveTime:
        """A send takes one step; of an all-to-all all sends begin together, and take what the farthest does.

        Source: NCCL groups them into one kernel (src/enqueue.cc of github.com/NVIDIA/nccl, Apache-2.0); an all-to-all of 0.2 to
        53 kB on eight V100 took 7 to 10 us (github.com/facebookresearch/param, et_replay/tests/inputs, a step of DLRM).
        """
        graph = self.graph(gpus)
        ends, part = (gpus, size) if kind == "send" else ((gpus[0], gpus[-1]), size // len(gpus))
        protocol: Protocol = "LL" if part <= SMALL_SEND else "Simple"
        pair = self.graph(ends) if len(gpus) > 1 else graph
        latency = self._latency(pair, nccl.latency_parts(pair.communicator, "AllGather", "Ring", protocol), True)
        found = self._passing(kind, None, gpus)
        rate, blocks = self._rate(found, kind, graph), graph.blocks("Ring", protocol, size)
        flow = LinkFlow(latency, size * found.unit * WIRE[protocol], rate, found.links, blocks)
        return CollectiveTime(flow, None, protocol, self.alone(flow), None, fabrics.spread(size))

    def _passing(self, kind: Kind, algorithm: Algorithm | None, gpus: Sequence[str]) -> CollectiveTraffic:
        """What a byte of the message is on the links; looked up once."""
        key = (tuple(gpus), kind, algorithm)
        if key not in self._traffic:
            found = passes.passed(self.graph(gpus), kind, algorithm, gpus, 1)
            self._traffic[key] = traffic(found, self._ways, self._rates, self.fabrics)
        return self._traffic[key]

    def _rate(self, found: CollectiveTraffic, kind: Kind, graph: CollectiveGraph) -> float:
        """bytes/ns of the flow that its links allow."""
        links = self.fabrics[fabrics.generation(self.machine, graph.nodes[0][0])]
        routes = [_share(self.fabrics[name], kind, graph.ranks) * rate for name, rate in found.routes.items()]
        return min(*routes, links.reduced * found.ports, _share(links, kind, graph.ranks) * found.direct, found.others)

    def _latency(self, graph: CollectiveGraph, parts: LatencyParts, quick: bool) -> float:
        """ns from the start to the first byte; `quick`: in LL, or of a single step."""
        inside = self.fabrics[self._inside(graph)]
        between = self.fabrics[fabrics.of_network(self.machine, self.fabrics)]
        farther = parts.crossings * self._farther(between)
        if quick:
            return 1e3 * (parts.base + inside.quick * parts.within + between.quick * parts.between + farther)
        return 1e3 * (inside.wait * (parts.base + parts.within) + between.wait * parts.between + farther)

    def _farther(self, measured: CollectiveFabric) -> float:
        """us that a message takes longer over this network than over the one of the measured steps."""
        network = self.machine.network
        return 0.0 if network is None or measured.latency is None else network.latency.value / 1e3 - measured.latency

    def _inside(self, graph: CollectiveGraph) -> str:
        """The fabric of the steps within the nodes."""
        if graph.nvlink:
            return fabrics.generation(self.machine, graph.nodes[0][0])
        node = graph.nodes[0]
        names = {fabrics.fabric_of(self.machine, self._ways.route(pair), self.fabrics) for pair in pairwise(node)}
        return "host" if "host" in names else "pcie"


def _share(fabric: CollectiveFabric, kind: Kind, ranks: int) -> float:
    """Of a link's rate that a collective of so many GPUs reaches."""
    if kind == "send":
        return fabric.straight
    return fabric.pair if ranks == 2 and fabric.pair else fabric.share
