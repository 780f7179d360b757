"""NCCL's estimate of a collective's time, and the algorithm and protocol that it therefore chooses.

It is what the library computes when a communicator is made, not a measurement; `times.py` has the time on links.

Source: src/graph/tuning.cc of github.com/NVIDIA/nccl @5067397c (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import floor, inf, log2
from typing import NamedTuple

from gpusim.base.errors import GpusimError
from gpusim.machine.collectives import nccl_constants as constants
from gpusim.machine.collectives.nccl_constants import PROTOCOLS, Algorithm, Collective, Generation, Medium, OfNodes, Protocol


@dataclass(frozen=True)
class Channels:
    """What the search for a graph found.

    count    channels
    rate     GB/s of each within a node
    shared   a tree on one GPU's NIC
    between  GB/s of each between nodes; None: the same
    """

    count: int
    rate: float
    shared: bool = False
    between: float | None = None

    @property
    def outer(self) -> float:
        """GB/s of each between nodes."""
        return self.rate if self.between is None else self.between

    def bus(self, nodes: int) -> float:
        """GB/s of all on so many nodes, as rings and trees are estimated."""
        return self.count * (self.rate if nodes <= 2 else self.outer)


@dataclass(frozen=True)
class Communicator:
    """The ranks of a collective, as NCCL's estimate sees them.

    capability      the lowest compute capability among the GPUs, 80 for 8.0
    nodes           hosts
    ranks_per_node  GPUs of each
    ring, tree      what the search found
    nvls            the same of the switches that reduce; None: there are none
    cpu             the hosts' processor: intel, amd or arm
    nvlink          all GPUs of a node reach each other over NVLink
    nic_latency     us that the network cards add
    ll128           protocol LL128 is safe: NVLink within the nodes, and cards that are near their GPUs
    same_rings      all channels pass the GPUs in the same order
    """

    capability: int
    nodes: int
    ranks_per_node: int
    ring: Channels
    tree: Channels
    nvls: Channels | None = None
    cpu: str = "intel"
    nvlink: bool = True
    nic_latency: float = 0.0
    ll128: bool = True
    same_rings: bool = True

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def generation(self) -> Generation:
        return constants.generation(self.capability)

    def of_nodes(self, table: OfNodes, row: Generation | None = None) -> float:
        """The entry of a table for this generation (or another row) and number of nodes."""
        return table[row or self.generation][min(self.nodes, 3) - 1]


class NcclEstimate(NamedTuple):
    """Latency in us and rate in GB/s (bytes of the message by the time beside the latency) of a collective one way."""

    algorithm: Algorithm
    protocol: Protocol
    latency: float
    rate: float


def steps(collective: Collective, ranks: int) -> int:
    """Steps of a ring."""
    return {"AllReduce": 2 * (ranks - 1), "AllGather": ranks - 1, "ReduceScatter": ranks - 1}.get(collective, ranks)


def ways(comm: Communicator, collective: Collective) -> Iterator[NcclEstimate]:
    """All algorithms and protocols that this communicator has for the collective."""
    if comm.ranks < 2:
        raise GpusimError(f"{collective} needs at least two ranks, not {comm.ranks}")
    for algorithm in _algorithms(comm, collective):
        for protocol in PROTOCOLS if algorithm in ("Ring", "Tree") else PROTOCOLS[2:]:
            if protocol != "LL128" or (comm.ll128 and comm.nvlink and comm.capability >= 70):
                rate = _rate(comm, collective, algorithm, protocol)
                if rate > 0:
                    yield NcclEstimate(algorithm, protocol, latency_parts(comm, collective, algorithm, protocol).total, rate)


def time(comm: Communicator, collective: Collective, way: NcclEstimate, size: int) -> float:
    """us that NCCL expects of a message of so many bytes (of all ranks together where it is gathered or scattered)."""
    rate, latency, index = way.rate, way.latency, floor(log2(size / 64)) if size >= 64 else -1
    if collective == "AllReduce" and index >= 0:
        on_x86 = way.algorithm == "NVLSTree" and comm.generation == "Blackwell" and comm.cpu in ("intel", "amd")
        if index < (23 if way.algorithm == "Tree" else 24 if on_x86 else 0):
            rate *= constants.TREE_LEFT[way.protocol][index]
        small = size / (comm.ring.count * comm.ranks) < 64
        if (way.algorithm, way.protocol) == ("Ring", "Simple") and comm.nodes > 1 and not small:
            latency *= 1.4 if comm.capability >= 80 else 1.9
    return latency + size / (1000 * rate)


def choice(comm: Communicator, collective: Collective, size: int) -> NcclEstimate:
    """The algorithm and protocol that NCCL takes for a message of so many bytes: the one that it expects to be fastest."""
    return min(ways(comm, collective), key=lambda way: time(comm, collective, way, size))


def most(comm: Communicator, collective: Collective, way: NcclEstimate) -> float:
    """GB/s of this way that the GPUs' processors allow whatever the links do: by channel, and of LL in all."""
    without = replace(comm, ring=Channels(comm.ring.count, inf), tree=Channels(comm.tree.count, inf))
    return way.rate if way.algorithm in ("NVLS", "NVLSTree") else _rate(without, collective, way.algorithm, way.protocol)


def _algorithms(comm: Communicator, collective: Collective) -> Iterator[Algorithm]:
    if collective == "AllReduce":
        yield "Tree"
    yield "Ring"
    if collective in ("Broadcast", "Reduce"):
        return
    if comm.ranks_per_node == 1 and comm.nodes > 1 and collective != "AllReduce":
        yield "PAT"
    if comm.nvls and comm.nvls.count > 1:
        if comm.nodes == 1:
            yield "NVLS"  # on several nodes it needs switches of the network that reduce, which are not modelled
        elif collective == "AllReduce":
            yield "NVLSTree"


def _rate(comm: Communicator, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> float:
    if algorithm in ("NVLS", "NVLSTree"):
        bus = _switch_rate(comm, collective, algorithm)
    elif algorithm == "Ring":
        bus = _ring_rate(comm, protocol)
    elif algorithm == "Tree":
        bus = _tree_rate(comm, protocol)
    else:
        return 0.75 * comm.tree.bus(comm.nodes)
    if algorithm == "Tree":
        return bus * 0.5
    if algorithm != "Ring" and collective != "AllReduce":
        return bus
    return bus * comm.ranks / steps(collective, comm.ranks)


def _ll_most(comm: Communicator) -> float:
    """On several nodes the processor decides, which must read the flags of the protocol's lines."""
    return comm.of_nodes(constants.LL_MOST, None if comm.nodes == 1 else "Ampere" if comm.cpu == "amd" else "Volta")


def _ring_rate(comm: Communicator, protocol: Protocol) -> float:
    bus = comm.ring.bus(comm.nodes)
    if protocol == "LL":
        return min(_ll_most(comm), bus * 0.5)
    if protocol == "LL128":
        return min(bus * 0.92, comm.ring.count * comm.of_nodes(constants.RING_LL128_PER_CHANNEL))
    return bus


def _tree_rate(comm: Communicator, protocol: Protocol) -> float:
    bus = min(comm.tree.bus(comm.nodes) * 0.92, comm.tree.count * comm.of_nodes(constants.TREE_PER_CHANNEL))
    if protocol == "LL":
        bus = min(bus / 3.8, _ll_most(comm))
    elif protocol == "LL128":
        most = comm.tree.count * comm.of_nodes(constants.TREE_LL128_PER_CHANNEL)
        bus = min(bus * (7 / 9 if comm.nodes == 1 else 120 / 128), most)
    return bus * (0.85 if comm.tree.shared else 1)


def _switch_rate(comm: Communicator, collective: Collective, algorithm: Algorithm) -> float:
    assert comm.nvls is not None
    count, rate = comm.nvls.count, comm.nvls.rate
    within = rate * constants.NVLS_EFFICIENCY[comm.generation] * (count - 1)
    per_node = comm.ranks_per_node
    within *= 2 if collective == "AllReduce" else (per_node - 1) / per_node
    if algorithm == "NVLS":
        return min(within, count * comm.nvls.outer)
    between = count * comm.nvls.outer * (2 if comm.nodes <= 2 else 1)
    return min(within, between, count * comm.of_nodes(constants.NVLS_TREE_PER_CHANNEL))


class LatencyParts(NamedTuple):
    """us of the start, of the steps within the nodes, and of those between them; `crossings`: how many times the latter wait
    for the network."""

    base: float
    within: float = 0.0
    between: float = 0.0
    crossings: float = 0.0

    @property
    def total(self) -> float:
        """us of all."""
        return self.base + self.within + self.between


def latency_parts(comm: Communicator, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> LatencyParts:
    """What the estimate's latency is made of."""
    at = PROTOCOLS.index(protocol)
    medium: Medium = "nvlink" if comm.nvlink else "pci"

    def step(where: Medium, of: Algorithm = algorithm) -> float:
        return constants.STEP_LATENCY[where, of][at]

    base, within = constants.BASE_LATENCY[algorithm][at], step(medium)
    between = step("net", "Tree" if comm.ranks_per_node == 1 else algorithm) + comm.nic_latency * _waits(protocol)
    doublings, waits = floor(log2(comm.nodes)), _waits(protocol)
    if algorithm == "Ring":
        return _ring_latency(comm, collective, protocol, LatencyParts(base, within, between))
    if algorithm == "Tree":
        return LatencyParts(base, 2 * (comm.ranks_per_node - 1) * within, 2 * doublings * between, 2 * doublings * waits)
    if algorithm == "PAT":
        return LatencyParts(base, 2.8 * comm.ranks, doublings * between / 3.5, doublings / 3.5 * waits)
    count = 2 * doublings if algorithm == "NVLSTree" else 0
    return LatencyParts(base, within, count * between, count * waits)


def _waits(protocol: Protocol) -> int:
    """How many times a step between nodes waits for the network, as the estimate counts a card's latency."""
    return 2 if protocol == "Simple" else 1


def _ring_latency(comm: Communicator, collective: Collective, protocol: Protocol, one: LatencyParts) -> LatencyParts:
    """`one`: of a single step."""
    count = steps(collective, comm.ranks)
    if collective in ("Broadcast", "Reduce"):
        medium: Medium = "net" if comm.nodes > 1 else "nvlink" if comm.nvlink else "pci"
        piped = comm.same_rings
        of: Algorithm = "Tree" if protocol == "Simple" and not piped else "Ring"
        passed = constants.STEP_LATENCY[medium, of][PROTOCOLS.index(protocol)] * (1 if piped else count)
        return LatencyParts(one.base, 0, passed, _waits(protocol)) if comm.nodes > 1 else LatencyParts(one.base, passed)
    overhead = 0.0 if comm.nodes == 1 else (2.0 if comm.cpu == "amd" else 1.0) * (3 if protocol == "Simple" else 1)
    crossings = (comm.nodes - 1) * (2 if collective == "AllReduce" else 1)
    within = (count - crossings) * max(one.within, overhead)
    return LatencyParts(one.base, within, crossings * one.between, crossings * _waits(protocol))
